//! Answers that are remembered for a while: bounded in number, and without what was asked, which may be
//! a secret.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Answers that are remembered.
const MAX: usize = 1024;

/// Two hashes with keys that nobody knows: nobody finds another question that has them too.
type Mark = (u64, u64);

pub struct Recent<A> {
    keys: (RandomState, RandomState),
    answers: Mutex<HashMap<Mark, (A, Instant)>>,
}

impl<A> Default for Recent<A> {
    fn default() -> Recent<A> {
        Recent { keys: (RandomState::new(), RandomState::new()), answers: Mutex::default() }
    }
}

impl<A: Clone> Recent<A> {
    /// The answer to this question, if it is still good.
    pub fn get(&self, question: &impl Hash, now: Instant) -> Option<A> {
        let answers = self.answers.lock();
        let (answer, until) = answers.get(&self.mark(question))?;
        (now < *until).then(|| answer.clone())
    }

    /// Remembers an answer for so long.
    pub fn put(&self, question: &impl Hash, answer: A, good_for: Duration, now: Instant) {
        let mark = self.mark(question);
        let mut answers = self.answers.lock();
        if answers.len() >= MAX && !answers.contains_key(&mark) {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MAX {
            // Somebody asks for much. The next who ask are asked for again; that is all that is lost.
            answers.clear();
        }
        answers.insert(mark, (answer, now + good_for));
    }

    fn mark(&self, question: &impl Hash) -> Mark {
        (self.keys.0.hash_one(question), self.keys.1.hash_one(question))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_a_while_and_not_too_many() {
        let recent = Recent::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        recent.put(&"a", 1, Duration::from_secs(10), start);
        assert_eq!((recent.get(&"a", at(9)), recent.get(&"a", at(10)), recent.get(&"b", at(9))), (Some(1), None, None));
        recent.put(&"a", 2, Duration::from_secs(10), at(5));
        assert_eq!(recent.get(&"a", at(14)), Some(2));
        for i in 0..MAX {
            recent.put(&i, 3, Duration::from_secs(1), at(20));
        }
        assert_eq!(recent.get(&"a", at(14)), None, "it was over, and made room");
        assert_eq!(recent.answers.lock().len(), MAX);
        recent.put(&"b", 4, Duration::from_secs(1), at(20));
        assert_eq!(recent.answers.lock().len(), 1);
        assert_eq!(recent.get(&"b", at(20)), Some(4));
    }
}

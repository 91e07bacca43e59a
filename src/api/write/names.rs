//! Names for objects that only say how theirs is to begin (apiserver/pkg/storage/names).

use std::fs::File;
use std::io::{self, Read};

/// Neither vowels, which make words, nor what looks like something else.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const RANDOM: usize = 5;
/// Bytes that such a name may have in all.
const MAX: usize = 63;

/// # Errors
/// When the system gives no random bytes.
pub fn generate(prefix: &str) -> io::Result<String> {
    let mut bytes = [0; RANDOM];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(name(prefix, bytes))
}

fn name(prefix: &str, random: [u8; RANDOM]) -> String {
    let mut name = prefix.to_owned();
    while name.len() > MAX - RANDOM {
        name.pop();
    }
    name.extend(
        random.iter().filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len())).map(|b| char::from(*b)),
    );
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (prefix, random, want) in [
            ("web-", [0, 1, 26, 27, 255], "web-bc9bq".to_owned()),
            ("", [0; 5], "bbbbb".to_owned()),
            (&"a".repeat(100), [0; 5], "a".repeat(58) + "bbbbb"),
            (&"ä".repeat(100), [0; 5], "ä".repeat(29) + "bbbbb"),
        ] {
            assert_eq!(name(prefix, random), want);
        }
        let (one, two) = (generate("a").expect("makes"), generate("a").expect("makes"));
        assert_ne!(one, two);
    }
}

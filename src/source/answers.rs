//! What the answers of a URL say, as a pure value: which pods it gives, which are kept although it
//! can't be read just now, when to ask again, and what is to be told, once per change.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::report::Report;
use super::{kept, manifest};
use crate::pod::identity::Origin;
use crate::pod::{Pod, Source};

/// The first wait after a failure; each further one doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after a failure, unless the usual one is longer.
const MAX_RETRY: Duration = Duration::from_secs(60);
/// More lines on one answer say nothing new.
const MAX_TOLD: usize = 100;

/// What an answer is known by, to ask for changes only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub validators: Validators,
    /// When it was made, as the server has it.
    pub date: Option<String>,
    pub body: Vec<u8>,
}

pub struct UrlSet {
    url: String,
    /// The URL as it may be shown.
    shown: String,
    node_name: String,
    /// Of the content that was read last.
    validators: Validators,
    digest: Option<u64>,
    /// What it gives, and of content with problems also what it gave before.
    pods: Vec<Arc<Pod>>,
    told: Vec<Report>,
    /// Failures since the last good answer.
    failures: u32,
    /// The last of them.
    why: Option<String>,
    heard: bool,
}

impl UrlSet {
    /// `ran_before`: the pods of a URL that the agent kept before it was started again. They stay
    /// until the URL has been read, which needs not be the one of before.
    pub fn new(url: &str, node_name: &str, ran_before: Vec<Arc<Pod>>) -> UrlSet {
        UrlSet {
            url: url.to_owned(),
            shown: shown(url),
            node_name: node_name.to_owned(),
            validators: Validators::default(),
            digest: None,
            pods: ran_before,
            told: Vec::new(),
            failures: 0,
            why: None,
            heard: false,
        }
    }

    /// What to ask with.
    pub fn validators(&self) -> &Validators {
        &self.validators
    }

    /// Whether there are pods that wait for the first answer.
    pub fn keeps_waiting(&self) -> bool {
        !self.heard && !self.pods.is_empty()
    }

    /// All pods; `None` while it isn't known what they are.
    pub fn pods(&self) -> Option<&[Arc<Pod>]> {
        self.heard.then_some(&self.pods)
    }

    /// How long to wait before the next question; `frequency`: while all is well.
    pub fn wait(&self, frequency: Duration) -> Duration {
        match self.failures.checked_sub(1) {
            None => frequency,
            Some(n) => (FIRST_RETRY.min(frequency) * 2u32.saturating_pow(n.min(16))).min(frequency.max(MAX_RETRY)),
        }
    }

    /// Takes an answer, or why there is none, and returns what is to be told.
    pub fn take(&mut self, answer: Result<Answer, String>, seen: Timestamp) -> Vec<Report> {
        let content = match answer.and_then(|answer| self.content(answer)) {
            Ok(content) => content,
            Err(why) => return self.fails(why),
        };
        self.failures = 0;
        let mut reports = Vec::new();
        if self.why.take().is_some() {
            reports.push(Report::Info(format!("{}: answers again", self.shown)));
        }
        if let Some((text, validators)) = content {
            reports.extend(self.read(&text, seen));
            self.validators = validators;
        }
        reports
    }

    /// What is to be read; `None` when nothing is other than before.
    fn content(&self, answer: Answer) -> Result<Option<(String, Validators)>, String> {
        let Answer { status, mut validators, date, body } = answer;
        match status {
            200 => {}
            304 if self.digest.is_some() => return Ok(None),
            status => return Err(format!("the answer has status {status}, not 200")),
        }
        // The kubelet takes this for an order to end all pods.
        if body.is_empty() {
            return Err("the answer is empty; a list without items is how to give no pods".to_owned());
        }
        let text = String::from_utf8(body).map_err(|_| "the answer is not UTF-8 text, no manifest".to_owned())?;
        // The content may change once more within that second.
        validators.last_modified.take_if(|modified| date.as_ref() == Some(modified));
        Ok(Some((text, validators)))
    }

    fn fails(&mut self, why: String) -> Vec<Report> {
        self.failures = self.failures.saturating_add(1);
        self.heard |= !self.pods.is_empty();
        let news = self.why.as_ref() != Some(&why);
        let text = format!("{}: {why}; the pods that it gave are kept", self.shown);
        self.why = Some(why);
        news.then_some(Report::Problem(text)).into_iter().collect()
    }

    fn read(&mut self, text: &str, seen: Timestamp) -> Vec<Report> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let digest = Some(hasher.finish());
        if self.digest == digest {
            return Vec::new();
        }
        self.digest = digest;
        let origin = Origin { source: Source::Http, node_name: &self.node_name, place: &self.url, seen };
        let mut manifest = manifest::read(text, origin);
        let shown = &self.shown;
        let mut tell: Vec<_> = manifest.problems.iter().map(|p| Report::Problem(p.at(shown))).collect();
        let broken = !tell.is_empty();
        let mut names = HashSet::new();
        manifest.pods.retain(|pod| {
            let first = names.insert(pod.name.clone());
            if !first {
                let text = format!("{shown}: pod {} stands in it twice; the first counts", pod.name);
                tell.push(Report::Problem(text));
            }
            first
        });
        tell.extend(manifest.warnings.iter().map(|w| Report::Warning(w.at(shown))));
        tell.extend(manifest.objects.iter().map(|object| {
            Report::Warning(format!("{shown}: {} is ignored: objects have to be in staticPodPath", object.key))
        }));
        if let Some(more) = tell.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
            tell.truncate(MAX_TOLD);
            tell.push(Report::Problem(format!("{shown}: and {more} more")));
        }
        self.pods = kept::take(manifest.pods, std::mem::take(&mut self.pods), broken);
        // Of what is broken throughout it isn't known which pods there should be.
        self.heard |= !broken || !self.pods.is_empty();
        let mut reports: Vec<_> = tell.iter().filter(|report| !self.told.contains(report)).cloned().collect();
        if tell.is_empty() && self.told.iter().any(|r| matches!(r, Report::Problem(_))) {
            reports.push(Report::Info(format!("{shown}: has no problem any more")));
        }
        self.told = tell;
        reports
    }
}

/// A URL, or a path, without the password that may stand in it.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        None => url.to_owned(),
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{host}{path}")
        }
    }
}

#[cfg(test)]
mod tests;

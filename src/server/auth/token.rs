//! Static tokens from a file, in the format of the API server's `--token-auth-file`: lines of
//! `token,user,uid` or `token,user,uid,"group1,group2"`.

use std::path::Path;
use std::{fmt, fs, io};

use super::User;

/// Bytes of the file.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading the tokens in {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path}:{line}: {why}")]
    Line { path: String, line: usize, why: &'static str },
}

/// Never shown.
#[derive(Default)]
pub struct Tokens(Vec<(String, User)>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// # Errors
    /// When the file can't be read, or a line of it is wrong.
    pub fn read(path: &Path) -> Result<Tokens, Error> {
        let shown = || path.display().to_string();
        let text = fs::metadata(path).and_then(|meta| match meta.len() {
            0..=MAX_FILE => fs::read_to_string(path),
            _ => Err(io::Error::other("it is too large")),
        });
        let text = text.map_err(|source| Error::Read { path: shown(), source })?;
        Tokens::parse(&text).map_err(|(line, why)| Error::Line { path: shown(), line, why })
    }

    /// The number of the line that is wrong, and what is.
    pub(super) fn parse(text: &str) -> Result<Tokens, (usize, &'static str)> {
        let mut tokens: Vec<(String, User)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut fields = line.splitn(4, ',').map(|field| field.trim().trim_matches('"').trim());
            let (token, name) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            if token.is_empty() {
                return Err((number, "the token is empty"));
            }
            if name.is_empty() || fields.next().is_none() {
                return Err((number, "there have to be a token, a user and a UID, with commas between them"));
            }
            if tokens.iter().any(|(other, _)| other == token) {
                return Err((number, "the token stands there twice"));
            }
            let groups = fields.next().unwrap_or_default().split(',').map(str::trim).filter(|group| !group.is_empty());
            let user = User::authenticated(name.to_owned(), groups.map(str::to_owned).collect());
            tokens.push((token.to_owned(), user));
        }
        Ok(Tokens(tokens))
    }

    /// With those of another file besides.
    pub fn and(mut self, other: Tokens) -> Tokens {
        self.0.extend(other.0);
        self
    }

    /// Takes the same time for every token of a length, so that none can be guessed piece by piece.
    pub fn user(&self, token: &str) -> Option<User> {
        let same = |other: &str| {
            let differ = other.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
            other.len() == token.len() && std::hint::black_box(differ) == 0
        };
        let mut found = None;
        for (other, user) in &self.0 {
            if same(other) {
                found = Some(user);
            }
        }
        found.cloned()
    }
}

//! Takes secrets out of what runtimes and plugins say before it is shown: it goes into the pods'
//! status and into logs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cri::Auth;

const HIDDEN: &str = "***";
/// Bytes; what is shorter stands in every text.
const MIN_SECRET: usize = 3;
/// Bytes; a word behind `Bearer` that is shorter is no token.
const MIN_TOKEN: usize = 16;

/// `text` without the secrets of `auths`, and without what looks like one: user and password in
/// URLs, their queries (which sign downloads), and authorization headers.
pub fn scrub<'a>(text: &str, auths: impl IntoIterator<Item = &'a Auth>) -> String {
    let mut text = text.to_owned();
    for auth in auths {
        let basic = STANDARD.encode(format!("{}:{}", auth.username, auth.password));
        for secret in [&auth.password, &auth.identity_token, &auth.registry_token, &basic] {
            if secret.len() >= MIN_SECRET {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut before = Before::Nothing;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let blank = piece.get(word.len()..).unwrap_or_default();
        let (shown, next) = scrub_word(word, before);
        out.push_str(&shown);
        out.push_str(blank);
        before = next;
    }
    out
}

/// What the words before tell of a word.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    /// `Authorization:`
    Header,
    /// `Authorization: Basic`
    HeaderScheme,
    /// `Bearer`
    Bearer,
}

fn scrub_word(word: &str, before: Before) -> (String, Before) {
    let plain = word.trim_matches(['"', '\'', '[', ']', ',', ';', ':']).to_lowercase();
    match before {
        Before::HeaderScheme if !plain.is_empty() => return (HIDDEN.to_owned(), Before::Nothing),
        Before::Bearer if plain.len() >= MIN_TOKEN && !plain.contains('=') => {
            return (HIDDEN.to_owned(), Before::Nothing);
        }
        Before::Header if !plain.is_empty() => return (word.to_owned(), Before::HeaderScheme),
        _ => {}
    }
    // `map[Authorization:[Bearer` is one word.
    let last = plain.rsplit([':', '[', '"']).next().unwrap_or_default();
    let next = match (last, plain.contains("authorization")) {
        ("authorization" | "proxy-authorization", _) => Before::Header,
        ("bearer" | "basic", true) => Before::HeaderScheme,
        ("bearer", false) => Before::Bearer,
        _ => Before::Nothing,
    };
    (scrub_urls(word), next)
}

/// Hides user, password and query of the URLs in a word.
fn scrub_urls(word: &str) -> String {
    let Some((head, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['"', '\'', ')', '>', '\\']).unwrap_or(rest.len());
    let (url, rest) = rest.split_at(end);
    let authority = url.find(['/', '?']).unwrap_or(url.len());
    let (authority, path) = url.split_at(authority);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let path = match path.split_once('?') {
        Some((path, query)) => {
            // The mark behind it belongs to the sentence.
            let mark = if query.ends_with(':') { ":" } else { "" };
            format!("{path}?{HIDDEN}{mark}")
        }
        None => path.to_owned(),
    };
    format!("{head}://{authority}{path}{}", scrub_urls(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_the_rest_stays() {
        let auth = Auth { username: "me".to_owned(), password: "hunter2".to_owned(), ..Default::default() };
        let table = [
            ("nothing: to hide, at a.io/b:1", "nothing: to hide, at a.io/b:1"),
            ("login as me with hunter2 failed", "login as me with *** failed"),
            ("got bWU6aHVudGVyMg== back", "got *** back"),
            ("Get \"https://u:p@a.io/v2/\": refused", "Get \"https://***@a.io/v2/\": refused"),
            ("Head https://a.io/b?sig=abc&x=1: 403", "Head https://a.io/b?***: 403"),
            ("(https://a.io/v2) (http://x:y@b.io)", "(https://a.io/v2) (http://***@b.io)"),
            ("from='http://x:y@b.io?q' to='http://c.io'", "from='http://***@b.io?***' to='http://c.io'"),
            ("Authorization: Basic abcd and more", "Authorization: Basic *** and more"),
            ("map[Authorization:[Bearer 0123456789abcdef0]]", "map[Authorization:[Bearer ***"),
            ("map[Authorization:[Basic YTpi] X:[y]]", "map[Authorization:[Basic *** X:[y]]"),
            ("Bearer realm=\"https://a.io/token\",service=\"a\"", "Bearer realm=\"https://a.io/token\",service=\"a\""),
            ("no basic auth credentials", "no basic auth credentials"),
            ("two  blanks\nand a line", "two  blanks\nand a line"),
        ];
        for (text, want) in table {
            assert_eq!(scrub(text, [&auth]), want, "{text}");
        }
    }

    #[test]
    fn an_empty_password_hides_nothing() {
        assert_eq!(scrub("all of this stays", [&Auth::default()]), "all of this stays");
    }
}

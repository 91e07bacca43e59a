//! The status page: three files that hold no data and need no credentials. What they show, the
//! browser asks for itself, with a token that stands in the address behind `#` and so is never sent
//! with it; there are no cookies, so no other site can ask in a browser's name.
//!
//! A browser is a guest: it has to call this machine by a loopback name, which no site that is led
//! here by its own DNS can do, and may not come from another site.

use super::resource::Resource;
use super::route::Route;
use crate::server::http::{Head, Method, Response};

/// The group of the page's token: it may see what the page shows, and nothing else.
pub const GROUP: &str = "cleat:page";

const HTML: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page, if that is asked for.
pub fn serve(head: &Head) -> Option<Response> {
    if !matches!(head.method, Method::Get | Method::Head) {
        return None;
    }
    let (kind, text) = match head.path.segments().as_slice() {
        // Others want the list of paths there.
        [] if head.header("accept").is_some_and(|kinds| kinds.contains("text/html")) => ("text/html", HTML),
        ["cleat", "page.js"] => ("text/javascript", SCRIPT),
        ["cleat", "page.css"] => ("text/css", STYLE),
        _ => return None,
    };
    if !is_local(head) {
        return Some(Response::text(403, "this page is served to 127.0.0.1, [::1] and localhost alone\n"));
    }
    let response = Response::new(200, &format!("{kind}; charset=utf-8"), text.as_bytes().to_vec())
        .with_header("Content-Security-Policy", POLICY)
        .with_header("Cross-Origin-Opener-Policy", "same-origin")
        .with_header("Cross-Origin-Resource-Policy", "same-origin")
        .with_header("Referrer-Policy", "no-referrer")
        .with_header("Cache-Control", "no-store");
    Some(response)
}

/// Refuses what a browser asks for another site, or under a name that isn't this machine's. Other
/// clients than browsers have neither header.
pub fn refuse_foreign(head: &Head) -> Option<Response> {
    let mut origins = head.headers().filter(|(name, _)| *name == "origin").map(|(_, origin)| origin).peekable();
    let is_browser = origins.peek().is_some() || head.headers().any(|(name, _)| name == "sec-fetch-site");
    let own = format!("https://{}", head.header("host").unwrap_or_default());
    let foreign = is_browser && (!is_local(head) || origins.any(|origin| origin != own));
    foreign.then(|| Response::text(403, "a browser may ask from the status page of this machine alone\n"))
}

fn is_local(head: &Head) -> bool {
    let host = head.header("host").unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    matches!(name, "127.0.0.1" | "localhost" | "[::1]") && port.bytes().all(|b| b.is_ascii_digit())
}

/// Whether the page needs it.
pub fn needs(route: &Route) -> bool {
    let shown = |resource: &Resource| matches!(resource, Resource::Pods | Resource::Events | Resource::Nodes);
    match route {
        Route::List(resource, _) | Route::Watch(resource, _) => shown(resource),
        Route::Metrics(..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let get = |path: &str, headers: &[(&str, &str)]| serve(&Head::example_with_host("GET", path, headers));
        let html = [("Host", "127.0.0.1:10270"), ("Accept", "text/html,*/*;q=0.8")];
        let page = get("/", &html).expect("is there");
        let header = |name: &str| page.headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
        assert_eq!((page.status, header("Content-Type")), (200, Some("text/html; charset=utf-8")));
        assert!(header("Content-Security-Policy").is_some_and(|p| p.starts_with("default-src 'none'")));
        assert!(get("/", &[html[0]]).is_none() && get("/api", &html).is_none());
        assert_eq!(get("/", &[("Host", "evil.example"), html[1]]).map(|r| r.status), Some(403));
        for (path, kind) in [("/cleat/page.js", "text/javascript"), ("/cleat/page.css", "text/css")] {
            let file = get(path, &html).expect("is there");
            assert!(file.headers.iter().any(|(_, value)| value.starts_with(kind)), "{path}");
        }
        assert!(serve(&Head::example("POST", "/cleat/page.js", &[])).is_none());
        // They are in the agent's memory.
        assert!(HTML.len() + SCRIPT.len() + STYLE.len() < 15_000);
        // Nothing from elsewhere, and nothing that a pod could write into the page.
        assert!(!HTML.contains("://") && !SCRIPT.contains("://") && !STYLE.contains("url("));
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(way), "{way}");
        }
    }

    #[test]
    fn who_comes_from_elsewhere() {
        let own = "https://127.0.0.1:10270";
        let table: &[(&[(&str, &str)], bool)] = &[
            (&[("Host", "node.example:10270")], false),
            (&[("Host", "127.0.0.1:10270"), ("Sec-Fetch-Site", "same-origin")], false),
            (&[("Host", "127.0.0.1:10270"), ("Origin", own)], false),
            (&[("Host", "[::1]:10270"), ("Origin", "https://[::1]:10270")], false),
            (&[("Host", "localhost"), ("Sec-Fetch-Site", "none")], false),
            (&[("Host", "evil.example:10270"), ("Sec-Fetch-Site", "same-origin")], true),
            (&[("Host", "127.0.0.1:10270"), ("Origin", "https://evil.example")], true),
            (&[("Host", "127.0.0.1:10270"), ("Origin", "null")], true),
            (&[("Host", "127.0.0.1:10270"), ("Origin", own), ("Origin", "https://evil.example")], true),
            (&[("Host", "127.0.0.1.evil.example"), ("Origin", "https://127.0.0.1.evil.example")], true),
            (&[("Host", "localhost:evil"), ("Sec-Fetch-Site", "none")], true),
        ];
        for (headers, want) in table {
            let head = Head::example_with_host("POST", "/api/v1/namespaces/default/pods", headers);
            assert_eq!(refuse_foreign(&head).is_some(), *want, "{headers:?}");
        }
    }

    #[test]
    fn what_the_page_needs() {
        let of = |method, path| needs(&Route::of(&Head::example(method, path, &[])));
        for path in ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/events?watch=1", "/api/v1/nodes"] {
            assert!(of("GET", path), "{path}");
        }
        for (method, path) in [
            ("GET", "/api/v1/secrets"),
            ("GET", "/api/v1/configmaps?watch=1"),
            ("GET", "/api/v1/namespaces/ns/secrets/s"),
            ("GET", "/api/v1/namespaces/ns/pods/web/log"),
            ("POST", "/api/v1/namespaces/ns/pods/web/exec"),
            ("GET", "/api/v1/namespaces/ns/pods/web/exec"),
            ("POST", "/api/v1/namespaces/ns/pods"),
            ("DELETE", "/api/v1/namespaces/ns/pods/web"),
            ("GET", "/cleat/v1/images"),
            ("POST", "/cleat/v1/namespaces/ns/pods/web/restart"),
        ] {
            assert!(!of(method, path), "{method} {path}");
        }
    }
}

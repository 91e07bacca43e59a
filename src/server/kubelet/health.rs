//! `/healthz`: how the agent is, and what is unhealthy.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::Parts;
use crate::server::http::{Query, Response};

/// The sync loop turns each second; after so long it is stuck.
const LOOP_STUCK: Duration = Duration::from_secs(30);

type Check = (&'static str, Result<(), String>);

pub fn healthz(parts: &Parts, only: Option<&str>, query: &Query, now: Instant) -> Response {
    let turned = parts.heartbeat.age(now);
    let sync_loop = match turned > LOOP_STUCK {
        true => Err(format!("it turned last {} s ago", turned.as_secs())),
        false => Ok(()),
    };
    // Lines are written to standard error one by one; there is nothing that could be behind.
    let log = Ok(());
    let checks =
        [("ping", Ok(())), ("log", log), ("syncloop", sync_loop), ("runtime", parts.runtime.health.check(now))];
    answer(&checks, only, query)
}

/// All checks, or one of them.
fn answer(checks: &[Check], only: Option<&str>, query: &Query) -> Response {
    let excluded = |name: &str| only.is_none() && query.all("exclude").any(|e| e == name);
    let asked: Vec<&Check> =
        checks.iter().filter(|(name, _)| only.is_none_or(|only| only == *name) && !excluded(name)).collect();
    if asked.is_empty() && only.is_some() {
        return Response::not_found();
    }
    let healthy = asked.iter().all(|(_, result)| result.is_ok());
    if healthy && !query.flag("verbose") {
        return Response::text(200, "ok");
    }
    let mut text = String::new();
    for (name, result) in asked {
        // Writing to a string can't fail.
        let _ = match result {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(why) => writeln!(text, "[-]{name} failed: {why}"),
        };
    }
    text.push_str(if healthy { "healthz check passed\n" } else { "healthz check failed\n" });
    Response::text(if healthy { 200 } else { 500 }, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let checks = [("ping", Ok(())), ("syncloop", Err("it is stuck".to_owned()))];
        let all = "[+]ping ok\n[-]syncloop failed: it is stuck\nhealthz check failed\n";
        let table: &[(Option<&str>, &str, u16, &str)] = &[
            (None, "", 500, all),
            (Some("ping"), "", 200, "ok"),
            (Some("ping"), "verbose", 200, "[+]ping ok\nhealthz check passed\n"),
            (Some("syncloop"), "", 500, "[-]syncloop failed: it is stuck\nhealthz check failed\n"),
            (Some("none"), "", 404, "404 page not found\n"),
            (None, "exclude=syncloop", 200, "ok"),
        ];
        for (only, query, status, body) in table {
            let response = answer(&checks, *only, &Query::parse(query));
            assert_eq!((response.status, String::from_utf8_lossy(&response.body)), (*status, (*body).into()));
        }
    }
}

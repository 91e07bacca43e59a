//! When what came from the API server is asked for again. Pure; chance, 0.0 to 1.0, is passed in.

use std::time::Duration;

/// A token is renewed after a day at the latest (pkg/kubelet/token/token_manager.go).
const TOKEN_MAX: Duration = Duration::from_secs(24 * 3600);
/// And some moments sooner, so that not all are at once.
const TOKEN_EARLY: Duration = Duration::from_secs(10);

/// After how long a token that is good for `lifetime` is renewed: at 80 % of it. It is counted from
/// when the token came, whatever the clocks of node and server say.
pub fn of_token(lifetime: Duration, chance: f64) -> Duration {
    let early = TOKEN_EARLY.mul_f64(chance.clamp(0.0, 1.0));
    lifetime.mul_f64(0.8).min(TOKEN_MAX).saturating_sub(early).max(Duration::from_secs(1))
}

/// After how long an object is asked for again that may change: `ttl`, and up to a tenth more.
pub fn of_object(ttl: Duration, chance: f64) -> Duration {
    ttl.mul_f64(1.0 + 0.1 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let secs = Duration::from_secs;
        let table = [(3600, 0.0, 2880), (3600, 1.0, 2870), (600, 0.5, 475), (1_000_000, 0.0, 86_400), (0, 1.0, 1)];
        for (lifetime, chance, want) in table {
            assert_eq!(of_token(secs(lifetime), chance), secs(want), "{lifetime} {chance}");
        }
        assert_eq!((of_object(secs(60), 0.0), of_object(secs(60), 1.0)), (secs(60), secs(66)));
    }
}

//! From thousandths of a CPU to what the kernel's scheduler takes (pkg/kubelet/cm/helpers_linux.go).

/// What the kernel takes as shares.
pub const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
/// Microseconds; the kernel takes no less.
const MIN_QUOTA: u64 = 1000;

/// The weight of a request, for cgroup v1.
pub fn shares(milli_cpu: i64) -> u64 {
    let shares = u64::try_from(milli_cpu.saturating_mul(SHARES_PER_CPU) / 1000).unwrap_or(0);
    shares.clamp(MIN_SHARES, MAX_SHARES)
}

/// Microseconds of CPU in each `period`, in microseconds, for a limit; `None` without one.
pub fn quota(milli_cpu: i64, period: u64) -> Option<u64> {
    let milli = u64::try_from(milli_cpu).ok().filter(|milli| *milli > 0)?;
    Some((milli.saturating_mul(period) / 1000).max(MIN_QUOTA))
}

/// The same weight for cgroup v2: the range of shares laid evenly on 1 to 10000, as the kubelet does
/// it for its own cgroups. Runtimes use a steeper scale for containers, since 2025.
pub fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(MIN_SHARES, MAX_SHARES);
    1 + (shares - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_shares() {
        let table = [
            (0, 2),
            (-5, 2),
            (1, 2),
            (2, 2),
            (3, 3),
            (10, 10),
            (100, 102),
            (250, 256),
            (350, 358),
            (1000, 1024),
            (256_000, 262_144),
            (300_000, 262_144),
            (i64::MAX, 262_144),
        ];
        for (milli, want) in table {
            assert_eq!(shares(milli), want, "{milli}m");
        }
    }

    #[test]
    fn limits_to_quotas() {
        let table = [
            (0, 100_000, None),
            (-1, 100_000, None),
            (1, 100_000, Some(1000)),
            (10, 100_000, Some(1000)),
            (11, 100_000, Some(1100)),
            (500, 100_000, Some(50_000)),
            (1500, 100_000, Some(150_000)),
            (500, 10_000, Some(5000)),
            (100, 5000, Some(1000)),
            (i64::MAX, 100_000, Some(u64::MAX / 1000)),
        ];
        for (milli, period, want) in table {
            assert_eq!(quota(milli, period), want, "{milli}m in {period}");
        }
    }

    #[test]
    fn shares_to_weights() {
        for (shares, want) in [(0, 1), (2, 1), (102, 4), (1024, 39), (2048, 79), (262_144, 10_000), (u64::MAX, 10_000)]
        {
            assert_eq!(weight(shares), want, "{shares}");
        }
    }
}

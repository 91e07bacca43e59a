//! Huge pages of the machine, for as long as a test needs them.

use std::fs;

/// Sets pages of 2 MiB aside, and gives them back.
pub struct HugePages(String);

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl HugePages {
    pub fn at_least(count: u64) -> HugePages {
        let before = fs::read_to_string(HUGE_PAGES).expect("the kernel has pages of 2 MiB");
        if before.trim().parse::<u64>().expect("a number") < count {
            fs::write(HUGE_PAGES, count.to_string()).expect("sets pages aside");
        }
        HugePages(before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HUGE_PAGES, &self.0);
    }
}

//! The one place with unsafe code: what the C library offers and no safe crate does.

#![allow(unsafe_code)]

/// Keeps the allocator to one arena. With one for each thread, every thread that once held much
/// memory keeps it; the agent has many threads that hold little.
pub fn one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and may be called at any time.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

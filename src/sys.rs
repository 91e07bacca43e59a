//! The one place with unsafe code: what the C library offers and no safe crate does.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{env, fs, io};

/// Keeps the allocator to one arena. With one for each thread, every thread that once held much
/// memory keeps it; the agent has many threads that hold little.
pub fn one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and may be called at any time.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives back what is held for work that is over: free pages of the allocator, and the program's own code and
/// constants, of which the little that an idle agent needs comes back from the page cache at once. On a board whose memory is
/// short the kernel would have to find that out by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer and may be called at any time.
    let _ = unsafe { libc::malloc_trim(0) };
    let (Ok(maps), Ok(program)) = (fs::read_to_string("/proc/self/maps"), env::current_exe()) else { return };
    for (start, length) in unwritten(&maps, &program) {
        // SAFETY: the range is a whole private mapping of a file that was never written to, so that what is
        // dropped is read from the file again when it is needed.
        let _ = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
}

/// The user of the process at the other end of a socket.
///
/// # Errors
/// Of the system.
pub fn peer_uid(socket: &UnixStream) -> io::Result<u32> {
    // Not rustix's: to that a process has a number above 0, and one of another PID namespace has none.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and there is room for as many bytes as is said.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &raw mut size,
        )
    };
    match result {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Address and length of the mappings of `program` that nobody has written to: code, which has no relocations,
/// and the constants before it. What the loader has relocated may be read-only by now, too, but doesn't begin the
/// file.
fn unwritten(maps: &str, program: &Path) -> Vec<(usize, usize)> {
    let mapping = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (range, access) = (fields.next()?, fields.next()?);
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let length = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
        let offset = fields.next()?;
        let path = fields.nth(2)?;
        let clean = access == "r-xp" || (access == "r--p" && usize::from_str_radix(offset, 16) == Ok(0));
        (clean && Path::new(path) == program).then_some((start, length))
    };
    maps.lines().filter_map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_program_has_not_written_is_given_back() {
        let maps = "\
1000-3000 r--p 00000000 fe:00 11 /usr/bin/cleat
3000-9000 r-xp 00002000 fe:00 11 /usr/bin/cleat
9000-a000 rwxp 00002000 fe:00 11 /usr/bin/cleat
a000-b000 rw-p 00000000 00:00 0 [heap]
b000-c000 r-xp 00000000 fe:00 12 /usr/bin/other
c000-d000 r-xp 00000000 00:00 0
d000-e000 r--p 00008000 fe:00 11 /usr/bin/cleat
";
        assert_eq!(unwritten(maps, Path::new("/usr/bin/cleat")), [(0x1000, 0x2000), (0x3000, 0x6000)]);
    }

    #[test]
    fn who_is_at_the_other_end() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        assert_eq!(peer_uid(&one).expect("is told"), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn the_program_goes_on_without_what_it_gave_back() {
        let before: Vec<u32> = (0..1000).collect();
        give_back();
        assert_eq!(before.iter().sum::<u32>(), 499_500);
    }
}

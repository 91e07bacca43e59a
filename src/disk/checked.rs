//! Files that tell whether they are whole: a first line with the length and a sum over the rest.

use std::io;
use std::path::Path;

use super::{read, write_atomic};

/// FNV-1a with 128 bits: it is to find damage, not forgery; whoever may write these files is root.
fn sum(content: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    content.iter().fold(BASIS, |sum, byte| (sum ^ u128::from(*byte)).wrapping_mul(PRIME))
}

fn first_line(content: &[u8]) -> String {
    format!("cleat 1 {} {:032x}\n", content.len(), sum(content))
}

/// Writes a file that only root may read, as [`write_atomic`] does.
///
/// # Errors
/// When it can't be written; then the old content is there.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut all = first_line(content).into_bytes();
    all.extend_from_slice(content);
    write_atomic(path, &all, 0o600)
}

/// The content of such a file that has at most `max` bytes.
///
/// # Errors
/// When it can't be read; `InvalidData` when it is not what was written.
pub fn load(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut all = read(path, max)?;
    let end = all.iter().position(|b| *b == b'\n').map_or(0, |end| end + 1);
    let content = all.split_off(end);
    match all == first_line(&content).as_bytes() {
        true => Ok(content),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged: its sum is another")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_damage_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        write(&path, b"some\ncontent").expect("writes");
        assert_eq!(load(&path, 1000).expect("reads"), b"some\ncontent");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        let good = fs::read(&path).expect("reads");
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x10;
            fs::write(&path, &bad).expect("writes");
            assert_eq!(load(&path, 1000).expect_err("is damaged").kind(), io::ErrorKind::InvalidData, "byte {i}");
            fs::write(&path, &good[..i]).expect("writes");
            assert!(load(&path, 1000).is_err(), "{i} bytes of it");
        }
        write(&path, b"").expect("writes");
        assert_eq!(load(&path, 1000).expect("reads"), b"");
        assert!(load(&path, 10).is_err(), "is too long");
    }
}

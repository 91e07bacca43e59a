//! Certificates on disk, with the kubelet's names: `NAME-TIME.pem` has a certificate and its key, and
//! `NAME-current.pem` leads to the newest one (k8s.io/client-go/util/certificate/certificate_store.go).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::x509::{Validity, validity};
use crate::disk;

/// Bytes of a file.
const MAX_FILE: u64 = 1 << 20;
/// Files of one name that are kept; the kubelet keeps all of them for ever.
const KEPT: usize = 2;

#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    name: &'static str,
}

/// A certificate whose key is there too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub validity: Validity,
    certificate: CertificateDer<'static>,
}

impl Held {
    /// Of PEM: the chain, and the key somewhere in it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(pem: &[u8]) -> Result<Held, String> {
        let mut chain = CertificateDer::pem_slice_iter(pem);
        let certificate = chain.next().ok_or("there is no certificate")?.map_err(|e| e.to_string())?;
        PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("there is no key: {e}"))?;
        let validity = validity(&certificate).ok_or("it doesn't say when it is good")?;
        Ok(Held { validity, certificate })
    }

    /// Whether it is for all of these names.
    pub fn is_for(&self, names: &[String]) -> bool {
        let Ok(certificate) = webpki::EndEntityCert::try_from(&self.certificate) else { return false };
        let names = names.iter().map(|name| ServerName::try_from(name.as_str()));
        names.into_iter().flatten().all(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

impl Store {
    pub fn new(dir: &Path, name: &'static str) -> Store {
        Store { dir: dir.to_owned(), name }
    }

    /// Where the newest one is, or will be.
    pub fn current(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.name))
    }

    /// The newest one; `None` when there is none that can be used.
    pub fn read(&self) -> Option<Held> {
        let path = self.current();
        let text = match disk::read(&path, MAX_FILE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            text => text.map_err(|e| e.to_string()),
        };
        text.and_then(|text| Held::parse(&text)).map_err(|why| log::warn!("{}: {why}", path.display())).ok()
    }

    /// Puts a new one there, in one step.
    ///
    /// # Errors
    /// When it can't be written; then the old one is there.
    pub fn write(&self, pem: &[u8], now: Timestamp) -> io::Result<()> {
        if !self.dir.is_dir() {
            disk::make_dir(&self.dir, 0o700)?;
        }
        let file = format!("{}-{}.pem", self.name, now.strftime("%Y-%m-%d-%H-%M-%S"));
        disk::write_atomic(&self.dir.join(&file), pem, 0o600)?;
        let fresh = self.dir.join(format!(".{}-current.pem.new", self.name));
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => std::os::unix::fs::symlink(&file, &fresh)?,
        }
        fs::rename(&fresh, self.current())?;
        fs::File::open(&self.dir)?.sync_all()?;
        self.forget_old();
        Ok(())
    }

    fn forget_old(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let current = format!("{}-current.pem", self.name);
        let ours = |name: &String| {
            let time = name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".pem"));
            *name != current && time.is_some_and(|time| time.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
        };
        let mut old: Vec<String> = names.filter(ours).collect();
        // By their names they are in the order of their times.
        old.sort_unstable();
        let target = fs::read_link(self.current()).ok();
        for name in old.iter().rev().skip(KEPT).filter(|name| target.as_deref() != Some(Path::new(name.as_str()))) {
            if let Err(e) = fs::remove_file(self.dir.join(name)) {
                log::warn!("removing the old certificate {name}: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(names: &[&str]) -> Vec<u8> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(names).expect("are names").self_signed(&key).expect("is made");
        (certificate.pem() + &key.serialize_pem()).into_bytes()
    }

    #[test]
    fn the_newest_one_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::new(&dir.path().join("pki"), "kubelet-client");
        assert_eq!(store.read(), None);
        let (first, second) = (pem(&["a"]), pem(&["b", "192.0.2.1"]));
        let at = |s| Timestamp::from_second(s).expect("a time");
        store.write(&first, at(0)).expect("writes");
        store.write(&second, at(1)).expect("writes");
        let link = fs::read_link(store.current()).expect("is a link");
        assert_eq!(link, Path::new("kubelet-client-1970-01-01-00-00-01.pem"));
        assert_eq!(fs::read(store.current()).expect("reads"), second);
        let held = store.read().expect("is held");
        let names = |all: &[&str]| -> Vec<String> { all.iter().map(|name| (*name).to_owned()).collect() };
        assert!(held.is_for(&names(&["b", "192.0.2.1"])) && !held.is_for(&names(&["b", "192.0.2.2"])));
        // Another one's files are left alone.
        let other = dir.path().join("pki/kubelet-client-mine.pem");
        fs::write(&other, "").expect("writes");
        for second in 2..5 {
            store.write(&first, at(second)).expect("writes");
        }
        let mut left: Vec<_> = fs::read_dir(dir.path().join("pki"))
            .expect("reads")
            .map(|entry| entry.expect("is there").file_name().into_string().expect("is text"))
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "kubelet-client-1970-01-01-00-00-03.pem",
                "kubelet-client-1970-01-01-00-00-04.pem",
                "kubelet-client-current.pem",
                "kubelet-client-mine.pem",
            ]
        );
    }

    #[test]
    fn what_is_no_certificate() {
        let whole = String::from_utf8(pem(&["a"])).expect("is text");
        let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE").expect("is there"));
        assert!(Held::parse(whole.as_bytes()).is_ok());
        for (text, why) in [("", "no certificate"), (certificate, "no key"), (key, "no certificate")] {
            let error = Held::parse(text.as_bytes()).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }
}

use super::*;

fn settings(dir: &Path, suites: &[&str], min_version: TlsVersion) -> Settings {
    let certificate = own_certificate(dir, "edge-1", &["192.0.2.10".parse().expect("an address")]).expect("is made");
    let cipher_suites = suites.iter().map(|s| (*s).to_owned()).collect();
    Settings { certificate, signed: None, client_ca_file: None, cipher_suites, min_version }
}

#[test]
fn a_certificate_is_made_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("pki");
    let first = settings(&dir, &[], TlsVersion::Default);
    let text = std::fs::read(&first.certificate.cert_file).expect("is there");
    let mode = |path: &Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).expect("is there").permissions()) & 0o777
    };
    assert_eq!((mode(&dir), mode(&first.certificate.key_file)), (0o700, 0o600));
    settings(&dir, &[], TlsVersion::Default).config().expect("they fit");
    assert_eq!(std::fs::read(&first.certificate.cert_file).expect("is there"), text);
    let der = CertificateDer::from_pem_slice(&text).expect("is PEM");
    assert_eq!(crate::certificates::subject(&der).map(|s| s.common_name).as_deref(), Some("edge-1"));
}

#[test]
fn versions_and_suites() {
    let dir = tempfile::tempdir().expect("a directory");
    let ok: &[(&[&str], TlsVersion, usize)] = &[
        (&[], TlsVersion::Default, 9),
        (&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"], TlsVersion::Tls12, 4),
        (&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], TlsVersion::Tls10, 4),
        (&["TLS_AES_128_GCM_SHA256"], TlsVersion::Tls13, 3),
    ];
    for (names, version, count) in ok {
        let settings = settings(dir.path(), names, *version);
        let config = settings.config().unwrap_or_else(|e| panic!("{names:?}: {e}"));
        assert_eq!(config.crypto_provider().cipher_suites.len(), *count, "{names:?}");
    }
    let unknown = settings(dir.path(), &["TLS_NULL"], TlsVersion::Default).config().map(drop);
    assert!(matches!(&unknown, Err(Error::CipherSuite { name, .. }) if name == "TLS_NULL"), "{unknown:?}");
}

#[test]
fn files_that_do_not_fit() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wrong = settings(dir.path(), &[], TlsVersion::Default);
    wrong.client_ca_file = Some(dir.path().join("none"));
    assert!(matches!(Acceptor::new(wrong.clone()).map(drop), Err(Error::Read { .. })));
    wrong.client_ca_file = Some(dir.path().join(OWN_KEY));
    assert!(matches!(Acceptor::new(wrong.clone()).map(drop), Err(Error::Empty { .. })));
    wrong.client_ca_file = None;
    let (_, other_key) = self_signed("other", &[]).expect("is made");
    std::fs::write(dir.path().join(OWN_KEY), other_key).expect("writes");
    assert!(matches!(Acceptor::new(wrong).map(drop), Err(Error::Pair { .. })));
}

#[test]
fn a_new_certificate_is_read_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = settings(dir.path(), &[], TlsVersion::Default);
    let start = Instant::now();
    let acceptor = Acceptor::new(settings.clone()).expect("fits");
    let first = acceptor.current(start);
    assert!(Arc::ptr_eq(&first, &acceptor.current(start + 2 * CHECK)), "nothing has changed");
    let (certificate, key) = self_signed("edge-1", &[]).expect("is made");
    let age = |path: &Path, seconds: u64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(path).and_then(|f| f.set_modified(at)).expect("sets the time");
    };
    std::fs::write(&settings.certificate.key_file, key).expect("writes");
    age(&settings.certificate.key_file, 1000);
    assert!(Arc::ptr_eq(&first, &acceptor.current(start + 4 * CHECK)), "half of a pair");
    std::fs::write(&settings.certificate.cert_file, certificate).expect("writes");
    age(&settings.certificate.cert_file, 1000);
    assert!(Arc::ptr_eq(&first, &acceptor.current(start + 4 * CHECK + CHECK / 2)), "it was looked at just now");
    assert!(!Arc::ptr_eq(&first, &acceptor.current(start + 6 * CHECK)), "a new pair");
}

#[test]
fn what_the_cluster_signed_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let signed = dir.path().join("signed.pem");
    let settings = Settings { signed: Some(signed.clone()), ..settings(dir.path(), &[], TlsVersion::Default) };
    assert_eq!(settings.pair().0, settings.certificate.cert_file);
    let start = Instant::now();
    let acceptor = Acceptor::new(settings.clone()).expect("is made");
    let first = acceptor.current(start);
    let both = [&settings.certificate.cert_file, &settings.certificate.key_file]
        .map(|path| std::fs::read(path).expect("is there"));
    std::fs::write(&signed, both.concat()).expect("writes");
    assert_eq!(settings.pair(), (signed.as_path(), signed.as_path()));
    assert!(!Arc::ptr_eq(&first, &acceptor.current(start + 2 * CHECK)), "it is there now");
}

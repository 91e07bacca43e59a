//! TLS of the client. Both versions have the same shape, so that the rest needs not know whether
//! the build has TLS.

#[cfg(feature = "tls")]
pub use with::configure;
#[cfg(not(feature = "tls"))]
pub use without::configure;

/// What TLS is made from, PEM.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub struct Parts<'a> {
    /// Whoever answers is believed.
    pub insecure: bool,
    /// `None`: those whom the system trusts.
    pub authority: Option<&'a [u8]>,
    /// The certificate and its key.
    pub certificate: Option<(&'a [u8], &'a [u8])>,
}

#[cfg(not(feature = "tls"))]
mod without {
    use ureq::config::ConfigBuilder;
    use ureq::typestate::AgentScope;

    /// # Errors
    /// Always.
    pub fn configure(_: ConfigBuilder<AgentScope>, _: &super::Parts<'_>) -> Result<ConfigBuilder<AgentScope>, String> {
        Err("https is not served by this build: it lacks the feature tls".to_owned())
    }
}

#[cfg(feature = "tls")]
mod with {
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::sign::CertifiedKey;
    use ureq::config::ConfigBuilder;
    use ureq::tls::{Certificate, ClientCert, PrivateKey};
    use ureq::typestate::AgentScope;

    use super::Parts;
    use crate::trust;

    /// # Errors
    /// When something isn't the PEM that it should be, or the key isn't the certificate's.
    pub fn configure(
        config: ConfigBuilder<AgentScope>,
        parts: &Parts<'_>,
    ) -> Result<ConfigBuilder<AgentScope>, String> {
        let authorities = match (parts.insecure, parts.authority) {
            (true, _) => Vec::new(),
            (false, Some(pem)) => trust::in_pem(pem)?,
            (false, None) => trust::in_file(&trust::system().ok_or(
                "it has no certificate-authority, and there are no certificates of authorities on this system",
            )?)?,
        };
        let client = parts.certificate.map(|(certificate, key)| client(certificate, key)).transpose()?;
        let tls = trust::tls(&authorities).disable_verification(parts.insecure).client_cert(client);
        Ok(config.tls_config(tls.build()))
    }

    fn client(certificate: &[u8], key: &[u8]) -> Result<ClientCert, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| format!("the client certificate: {e}"))?;
        let wrong = |e: &dyn std::fmt::Display| format!("the client's key: {e}");
        let der = PrivateKeyDer::from_pem_slice(key).map_err(|e| wrong(&e))?;
        let key = PrivateKey::from_pem(key).map_err(|e| wrong(&e))?;
        if chain.is_empty() {
            return Err("the client certificate: there is none in it".to_owned());
        }
        // What doesn't fit would be found out in the midst of a request.
        CertifiedKey::from_der(chain.clone(), der, &ring::default_provider())
            .map_err(|e| format!("the client certificate with its key: {e}"))?;
        let chain: Vec<_> = chain.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        Ok(ClientCert::new_with_certs(&chain, key))
    }
}

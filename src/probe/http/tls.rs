//! TLS without a look at the certificate: a probe asks whether somebody is there, not who
//! (pkg/probe/http does the same). Both versions of the functions have the same shape, so that the
//! rest needs not know whether the build has TLS.

#[cfg(feature = "tls")]
pub use with::connect;
#[cfg(not(feature = "tls"))]
pub use without::connect;

#[cfg(not(feature = "tls"))]
mod without {
    use super::super::response::Fault;
    use crate::probe::net::Timed;

    /// # Errors
    /// Always.
    pub fn connect(_: Timed, _: &str) -> Result<Timed, Fault> {
        Err(Fault::Error("https probes are not served by this build: it lacks the feature tls".to_owned()))
    }
}

#[cfg(feature = "tls")]
mod with {
    use std::sync::{Arc, OnceLock};

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{
        ClientConfig, ClientConnection, DigitallySignedStruct, Error, InvalidMessage, SignatureScheme, StreamOwned,
    };

    use super::super::response::Fault;
    use crate::probe::net::{Timed, describe};

    pub fn connect(mut stream: Timed, host: &str) -> Result<StreamOwned<ClientConnection, Timed>, Fault> {
        static CONFIG: OnceLock<Result<Arc<ClientConfig>, Error>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| config().map(Arc::new)).clone().map_err(|e| Fault::Error(tls(&e)))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|e| Fault::Failure(tls(&e)))?;
        let mut connection = ClientConnection::new(config, name).map_err(|e| Fault::Error(tls(&e)))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(|e| fault(&e))?;
        }
        Ok(StreamOwned::new(connection, stream))
    }

    fn fault(error: &std::io::Error) -> Fault {
        let cause = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        match cause {
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Fault::NotTls,
            _ => Fault::Failure(tls(&describe(error))),
        }
    }

    fn tls(error: &impl std::fmt::Display) -> String {
        format!("tls: {error}")
    }

    fn config() -> Result<ClientConfig, Error> {
        let provider = Arc::new(ring::default_provider());
        let anybody = Arc::new(Anybody(provider.clone()));
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth();
        // A new connection each time, so there is nothing to be resumed.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    #[derive(Debug)]
    struct Anybody(Arc<CryptoProvider>);

    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        // Signatures of unknown keys prove nothing either.
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}

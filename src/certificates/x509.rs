//! What of a certificate has to be known: who it is for, and from when until when. Reads DER; whether
//! the certificate is anybody's, others have found out before.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;

/// Who a certificate is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
}

/// When a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// Reads the subject of a certificate.
pub fn subject(certificate: &[u8]) -> Option<Subject> {
    let der = CertificateDer::from_slice(certificate);
    let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
    let mut name = certificate.subject();
    let mut subject = Subject::default();
    while let Some((SET, mut set)) = next(&mut name) {
        while let Some((SEQUENCE, mut attribute)) = next(&mut set) {
            let (kind, value) = (next(&mut attribute)?, next(&mut attribute)?);
            let (UTF8 | PRINTABLE | IA5, bytes) = value else { continue };
            let text = std::str::from_utf8(bytes).ok()?.to_owned();
            match kind {
                (OID, COMMON_NAME) => subject.common_name = text,
                (OID, ORGANIZATION) => subject.organizations.push(text),
                _ => {}
            }
        }
    }
    Some(subject)
}

/// Reads when a certificate is good (RFC 5280, 4.1).
pub fn validity(mut certificate: &[u8]) -> Option<Validity> {
    let (SEQUENCE, mut whole) = next(&mut certificate)? else { return None };
    let (SEQUENCE, mut signed) = next(&mut whole)? else { return None };
    let mut field = next(&mut signed)?;
    if field.0 == VERSION {
        field = next(&mut signed)?;
    }
    let (INTEGER, _serial) = field else { return None };
    let (_algorithm, _issuer) = (next(&mut signed)?, next(&mut signed)?);
    let (SEQUENCE, mut times) = next(&mut signed)? else { return None };
    Some(Validity { from: time(next(&mut times)?)?, until: time(next(&mut times)?)? })
}

/// `YYMMDDHHMMSSZ`, or with the century.
fn time((kind, bytes): (u8, &[u8])) -> Option<Timestamp> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    let (year, rest) = match kind {
        UTC_TIME => {
            let year: i16 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let number = |at: usize| -> Option<i8> { rest.get(at..at + 2)?.parse().ok() };
    let at = DateTime::new(year, number(0)?, number(2)?, number(4)?, number(6)?, number(8)?, 0).ok()?;
    TimeZone::UTC.to_timestamp(at).ok()
}

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The next DER element: its tag and its content.
fn next<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (bytes, after) =
            rest.split_at_checked(length - 0x80).filter(|(bytes, _)| (1..=3).contains(&bytes.len()))?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    *der = after;
    Some((*tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_when_until_when() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("is a name");
        params.not_before = rcgen::date_time_ymd(1999, 12, 31);
        params.not_after = rcgen::date_time_ymd(2075, 1, 2);
        let key = rcgen::KeyPair::generate().expect("a key");
        let der = params.self_signed(&key).expect("is made").der().to_vec();
        let at = |text: &str| text.parse::<Timestamp>().expect("is a time");
        let expected = Validity { from: at("1999-12-31T00:00:00Z"), until: at("2075-01-02T00:00:00Z") };
        assert_eq!(validity(&der), Some(expected));
        for length in 0..der.len().min(200) {
            // Cut anywhere it is no certificate, and nothing worse.
            let _ = validity(der.get(..length).expect("is there"));
        }
        assert_eq!(validity(b""), None);
    }

    #[test]
    fn times() {
        for (kind, text, is) in [
            (UTC_TIME, "491231235958Z", Some("2049-12-31T23:59:58Z")),
            (UTC_TIME, "500101000000Z", Some("1950-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "20500101000000Z", Some("2050-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "20501301000000Z", None),
            (UTC_TIME, "5001010000", None),
            (UTF8, "500101000000Z", None),
        ] {
            assert_eq!(time((kind, text.as_bytes())), is.map(|t| t.parse().expect("is a time")), "{text}");
        }
    }

    #[test]
    fn subjects() {
        let subject_of = |organizations: &[&str]| {
            let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
            for organization in organizations {
                params.distinguished_name.push(rcgen::DnType::OrganizationName, *organization);
            }
            params.distinguished_name.push(rcgen::DnType::LocalityName, "x".repeat(200));
            let key = rcgen::KeyPair::generate().expect("a key");
            subject(params.self_signed(&key).expect("is made").der())
        };
        let want = |organizations: &[&str]| {
            let organizations = organizations.iter().map(|o| (*o).to_owned()).collect();
            Some(Subject { common_name: "jane".to_owned(), organizations })
        };
        assert_eq!(subject_of(&[]), want(&[]));
        assert_eq!(subject_of(&["system:masters"]), want(&["system:masters"]));
        assert_eq!(subject(b"none"), None);
        for broken in [&[0x30][..], &[0x30, 0x84, 1, 1, 1, 1], &[0x30, 5, 1], &[0x30, 0x80], &[0x30, 0x83, 0xff]] {
            assert_eq!(next(&mut &*broken), None, "{broken:?}");
        }
    }
}

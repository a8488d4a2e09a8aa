//! The subject of a client's certificate: the user and its groups.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// UTF8String, PrintableString, TeletexString and IA5String.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The parts of a subject that Kubernetes reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// The user. If there are several, the last one.
    pub(super) common_name: String,
    /// The groups.
    pub(super) organizations: Vec<String>,
}

impl Subject {
    /// Reads the subject of a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Subject, String> {
        let certificate =
            EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        Subject::read(certificate.subject())
            .ok_or_else(|| "the subject of the client certificate cannot be read".to_owned())
    }

    /// Reads `RDNSequence` without its outer tag: sets of attributes, each an object identifier and a value.
    fn read(mut names: &[u8]) -> Option<Subject> {
        let mut subject = Subject::default();
        while !names.is_empty() {
            let mut set = element(&mut names, SET)?;
            while !set.is_empty() {
                let mut attribute = element(&mut set, SEQUENCE)?;
                let kind = element(&mut attribute, OBJECT_IDENTIFIER)?;
                if kind != COMMON_NAME && kind != ORGANIZATION {
                    continue;
                }
                let (tag, value) = any(&mut attribute)?;
                if !STRINGS.contains(&tag) {
                    return None;
                }
                let value = str::from_utf8(value).ok()?.to_owned();
                match kind {
                    COMMON_NAME => subject.common_name = value,
                    _ => subject.organizations.push(value),
                }
            }
        }
        Some(subject)
    }
}

/// Takes the content of an element with this tag.
pub(super) fn element<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    any(input).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// Takes the tag and the content of the next element (DER).
pub(super) fn any<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (tag, rest) = input.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // A subject is far shorter than 64 KiB.
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((*tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn subject(names: &[(DnType, DnValue)]) -> Result<Subject, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().expect("a key");
        Subject::of(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn the_user_and_the_groups_are_read() {
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        let long = "m".repeat(300);
        let names = [
            (DnType::CountryName, DnValue::PrintableString("NO".try_into().expect("printable"))),
            (DnType::OrganizationName, text(&long)),
            (DnType::CommonName, text("müller")),
        ];
        let expected = Subject { common_name: "müller".to_owned(), organizations: vec![long] };
        assert_eq!(subject(&names), Ok(expected));
        assert_eq!(subject(&[]), Ok(Subject::default()));
    }

    #[test]
    fn every_truncation_of_a_subject_is_refused_or_shorter() {
        // O=a + CN=b, in one set and in two.
        let organization = [0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x0a, 0x0c, 0x01, b'a'];
        let name = [0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x03, 0x13, 0x01, b'b'];
        let one = [&[0x31, 20], &organization[..], &name[..]].concat();
        let two = [&[0x31, 10], &organization[..], &[0x31, 10], &name[..]].concat();
        let whole = Subject { common_name: "b".to_owned(), organizations: vec!["a".to_owned()] };
        for names in [one, two] {
            assert_eq!(Subject::read(&names), Some(whole.clone()));
            for end in 0..names.len() {
                assert_ne!(Subject::read(&names[..end]), Some(whole.clone()), "{end}");
            }
        }
        let number = [0x31, 10, 0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x03, 0x02, 0x01, 0x07];
        assert_eq!(Subject::read(&number), None);
    }
}

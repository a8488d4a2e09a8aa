//! Semantic versions by the rules of the Go package blang/semver, which Kubernetes uses.

use std::cmp::Ordering;
use std::str::FromStr;

/// A semantic version, such as `1.2.3-rc.1+build5`. Comparison ignores the build metadata, as SemVer 2.0 demands.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

/// The error for text that is not a semantic version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct VersionError(String);

/// A part of a pre-release. Numbers sort below words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Version, VersionError> {
        let fail = |message: String| Err(VersionError(message));
        if text.is_empty() {
            return fail("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return fail("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let mut numbers = [0; 3];
        for (number, (what, text)) in
            numbers.iter_mut().zip([("Major", major), ("Minor", minor), ("Patch", patch)])
        {
            if !text.bytes().all(|b| b.is_ascii_digit()) {
                return fail(format!("Invalid character(s) found in {what} number {text:?}"));
            }
            if text.len() > 1 && text.starts_with('0') {
                return fail(format!("{what} number must not contain leading zeroes {text:?}"));
            }
            *number = text.parse().map_err(|_| VersionError(parse_uint(text)))?;
        }
        let pre_release =
            pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(identifier).collect())?;
        for part in build.iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return fail("Build meta data is empty".to_owned());
            }
            if !part.bytes().all(is_word) {
                return fail(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Version { numbers, pre_release })
    }
}

impl Version {
    /// Returns the bytes that a clone copies.
    pub(super) fn len(&self) -> usize {
        let words = self.pre_release.iter().map(|part| match part {
            Identifier::Number(_) => size_of::<Identifier>(),
            Identifier::Word(word) => size_of::<Identifier>() + word.len(),
        });
        words.sum()
    }

    /// Parses a version that may start with `v`, lack the minor and the patch number, or have leading zeros.
    pub(super) fn normalize(text: &str) -> Result<Version, VersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let digits = part.trim_start_matches('0');
            *part = if digits.starts_with(|c: char| c.is_ascii_digit()) {
                digits.to_owned()
            } else {
                format!("0{digits}")
            };
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(VersionError(
                    "short version cannot contain PreRelease/Build meta data".to_owned(),
                ));
            }
            parts.resize(3, "0".to_owned());
        }
        parts.join(".").parse()
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn parse_uint(text: &str) -> String {
    let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    format!("strconv.ParseUint: parsing {text:?}: {reason}")
}

fn identifier(text: &str) -> Result<Identifier, VersionError> {
    if text.is_empty() {
        return Err(VersionError("Prerelease is empty".to_owned()));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(VersionError(format!(
                "Numeric PreRelease version must not contain leading zeroes {text:?}"
            )));
        }
        return text.parse().map(Identifier::Number).map_err(|_| VersionError(parse_uint(text)));
    }
    if text.bytes().all(is_word) {
        return Ok(Identifier::Word(text.to_owned()));
    }
    Err(VersionError(format!("Invalid character(s) found in prerelease {text:?}")))
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        let released = self.pre_release.is_empty().cmp(&other.pre_release.is_empty());
        self.numbers
            .cmp(&other.numbers)
            .then(released)
            .then_with(|| self.pre_release.cmp(&other.pre_release))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

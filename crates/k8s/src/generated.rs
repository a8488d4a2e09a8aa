//! Names and hashes that the API server and controllers would generate.

use std::collections::{BTreeMap, HashSet};

use portolan::model::Name;

/// Makes names as the API server does for `metadata.generateName` (apiserver/pkg/storage/names), but reproducibly.
#[derive(Default)]
pub(super) struct Generated {
    taken: HashSet<(Name, Name)>,
    /// The number of names made of each base.
    made: BTreeMap<(Name, Name), u64>,
}

/// The characters of a suffix: no vowels, and none that are easily confused.
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The longest name that is made, and so the longest label value.
const MAX_GENERATED: usize = 63;

/// Writes a hash in the characters of a suffix.
pub(super) fn text(mut hash: u64, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        text.push(char::from(SUFFIX[(hash % SUFFIX.len() as u64) as usize]));
        hash /= SUFFIX.len() as u64;
    }
    text
}

impl Generated {
    pub(super) fn add(&mut self, namespace: &Name, name: &Name) {
        self.taken.insert((namespace.clone(), name.clone()));
    }

    pub(super) fn name(&mut self, namespace: &Name, base: &Name) -> Name {
        let mut end = base.len().min(MAX_GENERATED - SUFFIX_LENGTH);
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        let made = self.made.entry((namespace.clone(), base.clone())).or_default();
        loop {
            // FNV-1a of the base and the number of earlier names.
            let bytes = base.bytes().chain(made.to_le_bytes());
            let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            *made += 1;
            let name = format!("{}{}", &base[..end], text(hash, SUFFIX_LENGTH));
            let name = Name::from(name);
            if self.taken.insert((namespace.clone(), name.clone())) {
                return name;
            }
        }
    }
}

//! Values at run time.
//!
//! A value borrows from the program and the device where it can: a selector that reads attributes and compares them with
//! constants allocates nothing. Lists and maps are shared by reference counts.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount::Amount;
use super::device::{Field, Given};
use super::error::{Fault, NO_OVERLOAD};
use super::format::Format;
use super::net::{Cidr, Ip};
use super::time::Timestamp;
use super::url::Url;
use super::version::Version;

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    List(Arc<Vec<Value<'a>>>),
    Map(Arc<Map<'a>>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    /// The name of a type.
    Type(&'static str),
    Optional(Option<Arc<Value<'a>>>),
    Quantity(Amount),
    Version(Cow<'a, Version>),
    Ip(Ip),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(&'static Format),
    Device(&'a Given<'a>),
    /// `device.attributes` or `device.capacity`.
    Domains(Field, &'a Given<'a>),
    /// The values of one domain.
    Domain(Field, &'a Given<'a>, Cow<'a, str>),
}

pub(super) type Map<'a> = BTreeMap<Key<'a>, (Value<'a>, Value<'a>)>;

/// What identifies a map entry. Numbers of different types that are equal are the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Bool(bool),
    Number(i128),
    /// The bits of a number that is not whole.
    Fraction(u64),
    Str(Cow<'a, str>),
}

/// Counts what an evaluation does, because CEL's cost does not bound it: nothing is charged for constants, `&&` and `||`,
/// `==` is charged by the lengths of its operands and not by what is nested in them, and a call whose overload is found
/// at run time costs 1, however much text it copies.
///
/// A unit is a node that is evaluated, a value that is read or copied, or 8 bytes of text.
#[derive(Debug)]
pub(super) struct Work(u64);

impl Work {
    /// An evaluation that does more exceeds its cost.
    pub(super) const LIMIT: u64 = 2 * super::COST_LIMIT;

    pub(super) fn new() -> Work {
        Work(0)
    }

    pub(super) fn step(&mut self) -> Result<(), Fault> {
        self.spend(1)
    }

    pub(super) fn spend(&mut self, units: u64) -> Result<(), Fault> {
        self.0 = self.0.saturating_add(units);
        if self.0 > Work::LIMIT { Err(Fault::Cost) } else { Ok(()) }
    }

    pub(super) fn spent(&self) -> u64 {
        self.0
    }
}

/// Returns the work of reading or copying text.
pub(super) fn text_work(bytes: usize) -> u64 {
    bytes as u64 / 8
}

/// The longest list or map, and the longest string in bytes: an evaluation that exceeds it exceeds its cost.
pub(super) const MAX_ITEMS: usize = 1 << 17;
pub(super) const MAX_TEXT: usize = 10_000_000;

impl<'a> Value<'a> {
    /// Returns the same value, borrowing its text.
    pub(super) fn borrow<'b>(&'b self) -> Value<'b>
    where
        'a: 'b,
    {
        match self {
            Value::Str(text) => Value::Str(Cow::Borrowed(text)),
            Value::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Value::Version(version) => Value::Version(Cow::Borrowed(version)),
            other => other.clone(),
        }
    }

    /// Returns the work of a clone, which shares lists and maps, and copies text that it does not borrow.
    pub(super) fn clone_work(&self) -> u64 {
        1 + match self {
            Value::Str(Cow::Owned(text)) | Value::Domain(_, _, Cow::Owned(text)) => {
                text_work(text.len())
            }
            Value::Bytes(Cow::Owned(bytes)) => text_work(bytes.len()),
            Value::Version(Cow::Owned(version)) => text_work(version.len()),
            _ => 0,
        }
    }

    /// Returns the work of reading the value: its text, or clones of its items.
    pub(super) fn read_work(&self) -> u64 {
        match self {
            Value::Str(text) => 1 + text_work(text.len()),
            Value::Bytes(bytes) => 1 + text_work(bytes.len()),
            Value::List(items) => 1 + items.iter().map(Value::clone_work).sum::<u64>(),
            Value::Map(map) => {
                let entries = map.values();
                1 + entries.map(|(key, value)| key.clone_work() + value.clone_work()).sum::<u64>()
            }
            other => other.clone_work(),
        }
    }

    pub(super) fn str(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::Str(text.into())
    }

    pub(super) fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(Arc::new(items))
    }

    pub(super) fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::Str(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) | Value::Device(_) | Value::Domains(..) | Value::Domain(..) => "map",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Version(_) => "kubernetes.Semver",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// Returns the size by which costs are computed, which is 1 for values without one.
    pub(super) fn cost_size(&self) -> u64 {
        match self {
            Value::Ip(ip) => ip.len() as u64,
            Value::Cidr(cidr) => u64::from(cidr.prefix.div_ceil(8)),
            other => other.size().map_or(1, |size| size as u64),
        }
    }

    /// Returns the number of characters, bytes, items or entries.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Value::Str(text) if text.is_ascii() => text.len(),
            Value::Str(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(items) => items.len(),
            Value::Map(map) => map.len(),
            Value::Device(_) => 4,
            Value::Domains(field, device) => device.domains(*field).len(),
            Value::Domain(field, device, domain) => device.of_domain(*field, domain).count(),
            _ => return None,
        })
    }

    /// Returns the entries if the value is a map.
    pub(super) fn entries(&self) -> Option<Vec<(Value<'a>, Value<'a>)>> {
        Some(match self {
            Value::Map(map) => map.values().cloned().collect(),
            Value::Domains(field, device) => {
                let of = |name: &'a str| {
                    (Value::str(name), Value::Domain(*field, device, Cow::Borrowed(name)))
                };
                device.domains(*field).into_iter().map(of).collect()
            }
            Value::Domain(field, device, domain) => {
                let values = device.of_domain(*field, domain);
                values.map(|(name, value)| (Value::str(name), value)).collect()
            }
            Value::Device(_) => ["driver", "allowMultipleAllocations", "attributes", "capacity"]
                .into_iter()
                .filter_map(|name| Some((Value::str(name), self.field(name)?)))
                .collect(),
            _ => return None,
        })
    }

    /// Looks a name up in a map. Domains of a device that do not exist are empty maps, as Kubernetes has it.
    pub(super) fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Value::Domain(field, device, domain) => device.get(*field, domain, name),
            Value::Domains(field, device) => {
                Some(Value::Domain(*field, device, Cow::Owned(name.to_owned())))
            }
            Value::Device(device) => match name {
                "driver" => Some(Value::str(device.driver)),
                "allowMultipleAllocations" => Some(Value::Bool(device.device.is_shared())),
                "attributes" => Some(Value::Domains(Field::Attributes, device)),
                "capacity" => Some(Value::Domains(Field::Capacity, device)),
                _ => None,
            },
            Value::Map(map) => map.get(&Key::Str(Cow::Borrowed(name))).map(|entry| entry.1.clone()),
            _ => None,
        }
    }

    /// Looks a key up in a map.
    pub(super) fn find(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (_, Value::Str(name)) => self.field(name),
            (Value::Map(map), key) => map.get(&Key::of(key)?).map(|entry| entry.1.clone()),
            // No domain has such a key, so this one is empty.
            (Value::Domains(field, device), _) => {
                Some(Value::Domain(*field, device, Cow::Borrowed("\u{0}")))
            }
            _ => None,
        }
    }

    /// Returns whether a map has a key, or nothing if the value is not a map.
    pub(super) fn has_key(&self, key: &Value<'_>) -> Option<bool> {
        Some(match (self, key) {
            (Value::Domains(field, device), Value::Str(domain)) => {
                device.has_domain(*field, domain)
            }
            (Value::Domains(..), _) => false,
            (Value::Map(_) | Value::Domain(..) | Value::Device(_), key) => self.find(key).is_some(),
            _ => return None,
        })
    }
}

impl<'a> Key<'a> {
    /// Returns nothing for a value that cannot be a key.
    pub(super) fn of<'v>(value: &'v Value<'a>) -> Option<Key<'v>> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Number(i128::from(*value)),
            Value::Uint(value) => Key::Number(i128::from(*value)),
            Value::Double(value) if value.is_nan() => return None,
            Value::Double(value) => match whole(*value) {
                Some(number) => Key::Number(number),
                None => Key::Fraction(value.to_bits()),
            },
            Value::Str(text) => Key::Str(Cow::Borrowed(text)),
            _ => return None,
        })
    }

    pub(super) fn owned<'k>(value: &Value<'k>) -> Option<Key<'k>> {
        Some(match value {
            Value::Str(text) => Key::Str(text.clone()),
            other => match Key::of(other)? {
                Key::Bool(value) => Key::Bool(value),
                Key::Number(value) => Key::Number(value),
                Key::Fraction(value) => Key::Fraction(value),
                Key::Str(_) => return None,
            },
        })
    }
}

/// Returns the number if it is whole and within 64 bits, signed or not.
fn whole(number: f64) -> Option<i128> {
    let fits = number.trunc() == number && number.abs() < 18_446_744_073_709_551_616.0;
    fits.then_some(number as i128)
}

/// Compares numbers of any types.
fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let integer = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => {
            let b = integer(b)?;
            whole(*a).map_or_else(|| a.partial_cmp(&(b as f64)), |a| Some(a.cmp(&b)))
        }
        (_, Value::Double(_)) => compare_numbers(b, a).map(Ordering::reverse),
        (a, b) => Some(integer(a)?.cmp(&integer(b)?)),
    }
}

pub(super) fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// Orders two values, for `<` and the functions on lists.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Fault> {
    Ok(match (a, b) {
        (a, b) if is_number(a) && is_number(b) => {
            return compare_numbers(a, b).ok_or(Fault::Fixed("NaN values cannot be ordered"));
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        _ => return Err(NO_OVERLOAD),
    })
}

/// Returns `a == b`. Values of different types are unequal, except that a quantity, a version and other objects of
/// Kubernetes refuse to be compared with anything else.
pub(super) fn equal(a: &Value<'_>, b: &Value<'_>, work: &mut Work) -> Result<bool, Fault> {
    work.step()?;
    if matches!(a, Value::Null) || matches!(b, Value::Null) {
        return Ok(matches!((a, b), (Value::Null, Value::Null)));
    }
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => {
            work.spend(text_work(a.len().min(b.len())))?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            work.spend(text_work(a.len().min(b.len())))?;
            a == b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.quantity == b.quantity,
        (Value::Version(a), Value::Version(b)) => a == b,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Format(a), Value::Format(b)) => a.name == b.name,
        (
            Value::Quantity(_)
            | Value::Version(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Url(_)
            | Value::Format(_),
            _,
        ) => return Err(NO_OVERLOAD),
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => return equal(a, b, work),
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !possibly_equal(a, b, work)? {
                    return Ok(false);
                }
            }
            true
        }
        (a, b) if is_number(a) && is_number(b) => compare_numbers(a, b) == Some(Ordering::Equal),
        (a, b) => {
            work.spend(a.read_work())?;
            let (Some(entries), Some(size)) = (a.entries(), b.size()) else { return Ok(false) };
            if b.has_key(&Value::Null).is_none() || entries.len() != size {
                return Ok(false);
            }
            for (key, a) in &entries {
                let Some(b) = b.find(key) else { return Ok(false) };
                if !possibly_equal(a, &b, work)? {
                    return Ok(false);
                }
            }
            true
        }
    })
}

/// Elements that cannot be compared do not make their lists or maps unequal.
fn possibly_equal(a: &Value<'_>, b: &Value<'_>, work: &mut Work) -> Result<bool, Fault> {
    match equal(a, b, work) {
        Err(Fault::Cost) => Err(Fault::Cost),
        result => Ok(result.unwrap_or(true)),
    }
}

/// Returns whether the list contains the value; elements that cannot be compared are passed over.
pub(super) fn contains(
    items: &[Value<'_>],
    value: &Value<'_>,
    work: &mut Work,
) -> Result<bool, Fault> {
    for item in items {
        match equal(value, item, work) {
            Err(Fault::Cost) => return Err(Fault::Cost),
            Ok(true) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

//! What calls cost when they run.
//!
//! The rules are those of cel-go, of its extensions and of Kubernetes, in the order in which they override each other.

use super::error::Fault;
use super::value::{Value, Work};

/// Characters of a string that cost one unit are 10; those of a pattern are 4.
pub(super) const TEXT: f64 = 0.1;
pub(super) const PATTERN: f64 = 0.25;
pub(super) const LIST: u64 = 10;
pub(super) const MAP: u64 = 30;

/// How the cost of a call follows from its arguments and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    One,
    /// A share of the size of the first argument.
    Text(f64),
    /// The size of the second argument.
    Items,
    /// A share of the smaller of two sizes.
    Smaller,
    /// A share of the sum of two sizes.
    Sum,
    /// The product of the shares of two sizes.
    Product,
    Pattern,
    /// All elements, and the text in them.
    Traverse,
    /// A share of the size of the result.
    Joined,
    /// The size of the result, and a list.
    NewList,
    Flatten,
    /// The square of the size of this argument, and a list.
    Square(usize),
    /// The product of two sizes.
    Sets(u64),
    /// Bytes of a network, and the text of an address that is parsed.
    Network {
        contains_network: bool,
        parses: bool,
    },
    Validate,
}

impl Rule {
    /// Returns the rule for a function, and the overload if there is one only.
    pub(super) fn of(name: &str, overload: Option<&str>) -> Rule {
        match overload.unwrap_or_default() {
            "list_slice" | "lists_range" | "list_reverse" => return Rule::NewList,
            "list_flatten" | "list_flatten_int" => return Rule::Flatten,
            "list_distinct" => return Rule::Square(0),
            id if name == "sort" && !id.is_empty() => return Rule::Square(0),
            id if name == "@sortByAssociatedKeys" && !id.is_empty() => return Rule::Square(1),
            "list_sets_contains_list" | "list_sets_intersects_list" => return Rule::Sets(1),
            "list_sets_equivalent_list" => return Rule::Sets(2),
            _ => {}
        }
        match name {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Rule::Traverse,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP"
            | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => Rule::Text(TEXT),
            "ip" if overload != Some("cidr_ip") => Rule::Text(TEXT),
            "replace" | "split" | "ip.isCanonical" => Rule::Text(2.0 * TEXT),
            "join" => Rule::Joined,
            "find" | "findAll" => Rule::Pattern,
            "containsIP" => Rule::Network {
                contains_network: false,
                parses: overload == Some("cidr_contains_ip_string"),
            },
            "containsCIDR" => Rule::Network {
                contains_network: true,
                parses: overload == Some("cidr_contains_cidr_string"),
            },
            "validate" => Rule::Validate,
            _ => match overload.unwrap_or_default() {
                "starts_with_string" | "ends_with_string" | "string_to_bytes"
                | "bytes_to_string" | "strings_quote" | "string_format" => Rule::Text(TEXT),
                "in_list" => Rule::Items,
                "less_string"
                | "less_bytes"
                | "less_equals_string"
                | "less_equals_bytes"
                | "greater_string"
                | "greater_bytes"
                | "greater_equals_string"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals" => Rule::Smaller,
                "add_string" | "add_bytes" => Rule::Sum,
                "matches_string" => Rule::Pattern,
                "contains_string" => Rule::Product,
                _ => Rule::One,
            },
        }
    }

    /// Returns the cost that is known before the call. An argument that failed has size 1.
    pub(super) fn before(self, args: &[Option<&Value<'_>>], work: &mut Work) -> Result<u64, Fault> {
        let arg = |index: usize| args.get(index).copied().flatten();
        let size = |index: usize| arg(index).map_or(1, Value::cost_size);
        Ok(match self {
            Rule::One => 1,
            Rule::Text(share) => scale(size(0), share),
            Rule::Items => size(1),
            Rule::Smaller => scale(size(0).min(size(1)), TEXT),
            Rule::Sum => scale(size(0).saturating_add(size(1)), TEXT),
            Rule::Product => scale(size(0), TEXT).saturating_mul(scale(size(1), TEXT)),
            Rule::Pattern => pattern(size(0), size(1)),
            Rule::Traverse => match arg(0) {
                Some(value) => traverse(value, work)?,
                None => 1,
            },
            Rule::Joined | Rule::NewList => 0,
            Rule::Flatten => {
                let depth = match arg(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                ((size(0) as f64 * depth) as u64).saturating_add(1 + LIST)
            }
            Rule::Square(index) => {
                let first = match arg(index) {
                    Some(Value::List(items)) => items.first(),
                    _ => None,
                };
                let text = matches!(first, Some(Value::Str(_) | Value::Bytes(_)));
                let factor = if text { 2.0 + TEXT } else { 2.0 };
                let square = size(index).saturating_mul(size(index));
                ((square as f64 * factor) as u64).saturating_add(1 + LIST)
            }
            Rule::Sets(factor) => {
                size(0).saturating_mul(size(1)).saturating_mul(factor).saturating_add(1)
            }
            Rule::Network { contains_network, parses } => {
                let mut cost = scale(2 * size(0), TEXT);
                if contains_network {
                    cost += scale(size(0), TEXT) + 1;
                }
                if parses { cost + scale(size(1), TEXT) } else { cost }
            }
            Rule::Validate => match arg(0) {
                Some(Value::Format(format)) => pattern(size(1), format.pattern),
                _ => 1,
            },
        })
    }

    /// Returns the rest of the cost, which the result decides.
    pub(super) fn after(self, result: Option<&Value<'_>>) -> u64 {
        let size = || result.map_or(1, Value::cost_size);
        match self {
            Rule::Joined => scale(size(), 2.0 * TEXT),
            Rule::NewList => size() + 1 + LIST,
            _ => 0,
        }
    }
}

/// Returns the cost of `==` and `!=`. Objects of Kubernetes cost 1 on the left of `==`.
pub(super) fn equality(
    left: Option<&Value<'_>>,
    right: Option<&Value<'_>>,
    negated: bool,
    work: &mut Work,
) -> Result<u64, Fault> {
    let object = matches!(
        left,
        Some(
            Value::Quantity(_)
                | Value::Version(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Url(_)
                | Value::Format(_)
        )
    );
    if object && !negated { Ok(1) } else { Rule::Smaller.before(&[left, right], work) }
}

fn scale(size: u64, share: f64) -> u64 {
    (size as f64 * share).ceil() as u64
}

fn pattern(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TEXT).ceil() as u64;
    text.saturating_mul(scale(pattern, PATTERN))
}

fn traverse(value: &Value<'_>, work: &mut Work) -> Result<u64, Fault> {
    work.spend(value.read_work())?;
    Ok(match value {
        Value::Str(text) => (text.len() as f64 * TEXT) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TEXT) as u64,
        Value::List(items) => {
            let mut cost = 0_u64;
            for item in items.iter() {
                cost = cost.saturating_add(traverse(item, work)?);
            }
            cost
        }
        other => match other.entries() {
            Some(entries) => {
                let mut cost = 0_u64;
                for (key, value) in &entries {
                    cost = cost.saturating_add(traverse(key, work)?);
                    cost = cost.saturating_add(traverse(value, work)?);
                }
                cost
            }
            None => 1,
        },
    })
}

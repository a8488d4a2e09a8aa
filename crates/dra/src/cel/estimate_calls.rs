//! Estimates of single calls: those of Kubernetes' cost estimator and of cel-go's extensions, then of cel-go itself.

use super::ast::{Expr, Kind};
use super::cost::{LIST, PATTERN, TEXT};
use super::estimate::{Range, declared_size};
use super::types::{Object, Type};
use super::value::Value;

/// An argument with what is known about it.
pub(super) struct Argument<'c> {
    pub(super) expr: &'c Expr,
    pub(super) ty: &'c Type,
    pub(super) path: Vec<&'c str>,
    pub(super) size: Option<Range>,
}

impl Argument<'_> {
    pub(super) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// Returns the type and the size of the elements if the type has parameters.
    fn element(&self) -> Option<(Type, Range)> {
        let ty = match self.ty {
            Type::List(item) | Type::Optional(item) | Type::Meta(item) => (**item).clone(),
            Type::Map(entry) => entry.0.clone(),
            _ => return None,
        };
        let mut path = self.path.clone();
        path.push("@items");
        Some((ty, declared_size(&path).unwrap_or(Range::UNKNOWN)))
    }

    /// Returns an integer literal, negative ones as 0.
    fn literal(&self) -> Option<u64> {
        match &self.expr.kind {
            Kind::Const(Value::Int(number)) => Some(u64::try_from(*number).unwrap_or(0)),
            _ => None,
        }
    }
}

/// The cost of a call, and the size of its result if that is known.
#[derive(Clone, Copy)]
pub(super) struct Estimate {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl Estimate {
    pub(super) fn of(cost: Range) -> Estimate {
        Estimate { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Estimate {
        Estimate { cost, size: Some(size) }
    }

    /// A call that makes a list of this size.
    fn list(factor: f64, size: Range) -> Estimate {
        Estimate::sized(size.scale(factor).add(Range::fixed(1 + LIST)), size)
    }
}

/// Estimates a call without its arguments, or returns nothing for the functions that only combine those.
pub(super) fn estimate(
    name: &str,
    id: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<Estimate> {
    extension(id, target, args)
        .or_else(|| kubernetes(name, id, target, args))
        .or_else(|| standard(id, target, args))
}

fn extension(id: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Option<Estimate> {
    let sort = |list: &Argument<'_>, text: bool| {
        let size = list.size_or_unknown();
        Estimate::list(if text { 2.0 + TEXT } else { 2.0 }, size.times(size))
    };
    Some(match (id, target, args) {
        ("list_slice", Some(list), [start, end]) => {
            let end = end.literal().unwrap_or(list.size_or_unknown().max);
            let length = end.wrapping_sub(start.literal().unwrap_or(0));
            Estimate::list(1.0, Range::fixed(length))
        }
        ("lists_range", None, [end]) => {
            Estimate::list(1.0, Range::fixed(end.literal().unwrap_or(u64::MAX)))
        }
        ("list_reverse", Some(list), []) => Estimate::list(1.0, list.size_or_unknown()),
        ("list_flatten", Some(list), []) => Estimate::list(1.0, list.size_or_unknown()),
        ("list_flatten_int", Some(list), [depth]) => {
            let depth = depth.literal().unwrap_or(u64::MAX);
            Estimate::list(depth as f64, list.size_or_unknown())
        }
        ("list_distinct", Some(list), []) => sort(list, false),
        (id, Some(list), []) if id.starts_with("list_") && id.ends_with("_sort") => {
            sort(list, matches!(id, "list_string_sort" | "list_bytes_sort"))
        }
        (id, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => {
            sort(keys, id.starts_with("list_string_") || id.starts_with("list_bytes_"))
        }
        (
            "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list",
            _,
            [a, b],
        ) => {
            let factor = if id == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            let product = a.size_or_unknown().times(b.size_or_unknown());
            Estimate::of(product.scale(factor).add(Range::fixed(1)))
        }
        _ => return None,
    })
}

fn kubernetes(
    name: &str,
    id: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<Estimate> {
    let text = |arg: &Argument<'_>, share: f64| arg.size_or_unknown().scale(share);
    Some(match (name, target, args) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(list), _) => {
            let size = list.size_or_unknown();
            Estimate::of(match list.element() {
                Some((Type::Str | Type::Bytes, element)) => {
                    size.times(Range::fixed(1).add(element.scale(TEXT)))
                }
                Some(_) => size,
                None => size.scale(TEXT),
            })
        }
        ("url", _, [arg]) => Estimate::sized(text(arg, TEXT), arg.size_or_unknown()),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            Estimate::sized(text(target, TEXT), target.size_or_unknown())
        }
        ("replace", Some(target), [old, new, ..]) => {
            let size =
                replaced(target.size_or_unknown(), old.size_or_unknown(), new.size_or_unknown());
            Estimate::sized(text(target, 2.0 * TEXT), size)
        }
        ("split", Some(target), _) => {
            let limit = args.get(1).and_then(|limit| match &limit.expr.kind {
                // A negative limit counts as a large one.
                Kind::Const(Value::Int(limit)) => Some(*limit as u64),
                _ => None,
            });
            let max = limit.unwrap_or(target.size_or_unknown().max);
            Estimate::sized(text(target, 2.0 * TEXT), Range { min: 0, max })
        }
        ("join", Some(list), _) => {
            let count = list.size_or_unknown();
            let items = list.element().map_or(Range::fixed(0), |(_, size)| count.times(size));
            let separators =
                Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            let size = match args {
                [separator, ..] => items.add(separator.size_or_unknown().times(separators)),
                [] => items,
            };
            Estimate::sized(size.scale(TEXT), size)
        }
        ("find" | "findAll", Some(target), [pattern, ..]) => {
            let max = target.size_or_unknown().max;
            Estimate::sized(matched(target, pattern), Range { min: 0, max })
        }
        ("ip", _, _) if id == "cidr_ip" => Estimate::of(Range::fixed(1)),
        (
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            [arg, ..],
        ) => Estimate::of(text(arg, TEXT)),
        ("ip.isCanonical", _, [arg]) => Estimate::of(text(arg, 2.0 * TEXT)),
        ("containsIP" | "containsCIDR", _, [arg]) => {
            let bytes = Range { min: 4, max: 16 };
            let mut cost = bytes.add(bytes).scale(TEXT);
            if name == "containsCIDR" {
                cost = cost.add(bytes.scale(TEXT)).add(Range::fixed(1));
            }
            if matches!(id, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                cost = cost.add(text(arg, TEXT));
            }
            Estimate::of(cost)
        }
        ("validate", _, [arg]) => {
            const LONGEST_PATTERN: f64 = 128.0;
            Estimate::of(text(arg, TEXT).scale(LONGEST_PATTERN * PATTERN))
        }
        ("includes", Some(_), _) => Estimate::of(Range { min: 0, max: 48 }),
        (
            "format.named"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery",
            _,
            _,
        ) => Estimate::of(Range::fixed(1)),
        ("_==_", _, [left, right]) if left.ty == right.ty => match left.ty {
            Type::Object(Object::Ip | Object::Cidr | Object::Quantity | Object::Semver) => {
                Estimate::of(Range::fixed(1))
            }
            Type::Object(Object::Format) => Estimate::of(Range { min: 1, max: 64 }.scale(TEXT)),
            Type::Object(Object::Url) => {
                let max = right.size.map_or(1, |size| size.max);
                Estimate::of(Range { min: 1, max }.scale(TEXT))
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns the size of a text in which parts are replaced: the fewest and smallest, to the most and largest.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let most = if old.min == 0 {
        // An empty text is found before, between and after all characters.
        text.max.saturating_add(1).saturating_mul(new.max).saturating_add(text.max)
    } else if new.max <= old.min {
        text.max
    } else {
        let count = (text.max as f64 / old.min as f64).ceil() as u64;
        count.saturating_mul(new.max)
    };
    let fewest = if old.max == 0 {
        text.min.saturating_add(1).saturating_mul(new.min).saturating_add(text.min)
    } else if old.max <= new.min {
        text.min
    } else {
        let count = (text.min as f64 / old.max as f64).ceil() as u64;
        count.saturating_mul(new.min)
    };
    Range { min: fewest, max: most }
}

fn matched(text: &Argument<'_>, pattern: &Argument<'_>) -> Range {
    let text = text.size_or_unknown().add(Range::fixed(1)).scale(TEXT);
    text.times(pattern.size_or_unknown().scale(PATTERN))
}

fn standard(id: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Option<Estimate> {
    Some(match (id, target, args) {
        ("string_format", Some(target), _) => Estimate::of(target.size_or_unknown().scale(TEXT)),
        ("string_to_bytes", _, [arg]) => {
            let size = arg.size_or_unknown();
            let bytes = Range { min: size.min, max: size.max.wrapping_mul(4) };
            Estimate::sized(size.scale(TEXT), bytes)
        }
        ("bytes_to_string", _, [arg]) => {
            let size = arg.size_or_unknown();
            Estimate::sized(size.scale(TEXT), Range { min: size.min / 4, max: size.max })
        }
        ("strings_quote", _, [arg]) => {
            let size = arg.size_or_unknown();
            let quoted = Range {
                min: size.min.wrapping_add(2),
                max: size.max.wrapping_mul(2).wrapping_add(2),
            };
            Estimate::sized(size.scale(TEXT), quoted)
        }
        ("starts_with_string" | "ends_with_string", _, [arg]) => {
            Estimate::of(arg.size_or_unknown().scale(TEXT))
        }
        ("in_list", _, [_, list]) => Estimate::of(list.size_or_unknown().scale(1.0)),
        ("matches_string", Some(target), [pattern]) => Estimate::of(matched(target, pattern)),
        ("contains_string", Some(target), [part]) => {
            let text = target.size_or_unknown().scale(TEXT);
            Estimate::of(text.times(part.size_or_unknown().scale(TEXT)))
        }
        (
            "less_string"
            | "less_bytes"
            | "less_equals_string"
            | "less_equals_bytes"
            | "greater_string"
            | "greater_bytes"
            | "greater_equals_string"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [left, right],
        ) => {
            let max = left.size_or_unknown().max.min(right.size_or_unknown().max);
            Estimate::of(Range { min: u64::from(max > 0), max }.scale(TEXT))
        }
        _ => return None,
    })
}

//! Kubernetes' own types: quantities, versions, addresses, URLs, named formats; and `includes` of DRA.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::amount::Amount;
use super::super::error::Fault;
use super::super::format;
use super::super::net::{Cidr, Ip};
use super::super::url::Url;
use super::super::value::{Key, Map, Value, Work, equal};
use super::super::version::Version;
use super::{Declaration, deep, guarded, one_text};

pub(super) const FUNCTIONS: &[Declaration] = &[
    guarded(
        "quantity",
        |args| Amount::parse(one_text(args)?).map(Value::Quantity).map_err(Fault::Fixed),
        &[("string_to_quantity", "string -> Quantity")],
    ),
    guarded(
        "isQuantity",
        |args| Ok(Value::Bool(Amount::parse(one_text(args)?).is_ok())),
        &[("is_quantity_string", "string -> bool")],
    ),
    guarded(
        "sign",
        // -1, 0 or 1.
        |args| Ok(Value::Int(quantity(args)?.quantity.nanos().signum() as i64)),
        &[("quantity_sign", "Quantity -> int")],
    ),
    guarded(
        "asInteger",
        |args| {
            let integer = quantity(args)?.integer().map(Value::Int);
            integer.ok_or(Fault::Fixed("cannot convert value to integer"))
        },
        &[("quantity_get_int", "Quantity.() -> int")],
    ),
    guarded(
        "isInteger",
        |args| Ok(Value::Bool(quantity(args)?.integer().is_some())),
        &[("quantity_is_integer", "Quantity.() -> bool")],
    ),
    guarded(
        "asApproximateFloat",
        |args| Ok(Value::Double(quantity(args)?.float())),
        &[("quantity_get_float", "Quantity.() -> double")],
    ),
    guarded(
        "add",
        |args| arithmetic(args, Amount::add),
        &[
            ("quantity_add", "Quantity.(Quantity) -> Quantity"),
            ("quantity_add_int", "Quantity.(int) -> Quantity"),
        ],
    ),
    guarded(
        "sub",
        |args| arithmetic(args, Amount::sub),
        &[
            ("quantity_sub", "Quantity.(Quantity) -> Quantity"),
            ("quantity_sub_int", "Quantity.(int) -> Quantity"),
        ],
    ),
    guarded(
        "compareTo",
        |args| compare_to(args, |order| Value::Int(order as i64)),
        &[
            ("quantity_compare_to", "Quantity.(Quantity) -> int"),
            ("semver_compare_to", "Semver.(Semver) -> int"),
        ],
    ),
    guarded(
        "isGreaterThan",
        |args| compare_to(args, |order| Value::Bool(order.is_gt())),
        &[
            ("quantity_is_greater_than", "Quantity.(Quantity) -> bool"),
            ("semver_is_greater_than", "Semver.(Semver) -> bool"),
        ],
    ),
    guarded(
        "isLessThan",
        |args| compare_to(args, |order| Value::Bool(order.is_lt())),
        &[
            ("quantity_is_less_than", "Quantity.(Quantity) -> bool"),
            ("semver_is_less_than", "Semver.(Semver) -> bool"),
        ],
    ),
    guarded(
        "semver",
        |args| Ok(Value::Version(Cow::Owned(parse_version(args)??))),
        &[
            ("string_to_semver", "string -> Semver"),
            ("string_bool_to_semver", "string, bool -> Semver"),
        ],
    ),
    guarded(
        "isSemver",
        |args| Ok(Value::Bool(parse_version(args)?.is_ok())),
        &[
            ("is_semver_string", "string -> bool"),
            ("is_semver_string_bool", "string, bool -> bool"),
        ],
    ),
    guarded("major", |args| number(args, 0), &[("semver_major", "Semver.() -> int")]),
    guarded("minor", |args| number(args, 1), &[("semver_minor", "Semver.() -> int")]),
    guarded("patch", |args| number(args, 2), &[("semver_patch", "Semver.() -> int")]),
    guarded("ip", ip, &[("string_to_ip", "string -> IP"), ("cidr_ip", "CIDR.() -> IP")]),
    guarded(
        "isIP",
        |args| Ok(Value::Bool(Ip::parse(one_text(args)?).is_ok())),
        &[("is_ip", "string -> bool")],
    ),
    guarded("ip.isCanonical", is_canonical, &[("ip_is_canonical", "string -> bool")]),
    guarded(
        "family",
        |args| Ok(Value::Int(if address(args)?.0.is_ipv4() { 4 } else { 6 })),
        &[("ip_family", "IP.() -> int")],
    ),
    guarded(
        "isUnspecified",
        |args| Ok(Value::Bool(address(args)?.0.is_unspecified())),
        &[("ip_is_unspecified", "IP.() -> bool")],
    ),
    guarded(
        "isLoopback",
        |args| Ok(Value::Bool(address(args)?.0.is_loopback())),
        &[("ip_is_loopback", "IP.() -> bool")],
    ),
    guarded(
        "isLinkLocalMulticast",
        |args| Ok(Value::Bool(address(args)?.is_link_local_multicast())),
        &[("ip_is_link_local_multicast", "IP.() -> bool")],
    ),
    guarded(
        "isLinkLocalUnicast",
        |args| Ok(Value::Bool(address(args)?.is_link_local_unicast())),
        &[("ip_is_link_local_unicast", "IP.() -> bool")],
    ),
    guarded(
        "isGlobalUnicast",
        |args| Ok(Value::Bool(address(args)?.is_global_unicast())),
        &[("ip_is_global_unicast", "IP.() -> bool")],
    ),
    guarded(
        "cidr",
        |args| Cidr::parse(one_text(args)?).map(Value::Cidr).map_err(Fault::text),
        &[("string_to_cidr", "string -> CIDR")],
    ),
    guarded(
        "isCIDR",
        |args| Ok(Value::Bool(Cidr::parse(one_text(args)?).is_ok())),
        &[("is_cidr", "string -> bool")],
    ),
    guarded(
        "containsIP",
        contains_ip,
        &[
            ("cidr_contains_ip_string", "CIDR.(string) -> bool"),
            ("cidr_contains_ip_ip", "CIDR.(IP) -> bool"),
        ],
    ),
    guarded(
        "containsCIDR",
        contains_cidr,
        &[
            ("cidr_contains_cidr_string", "CIDR.(string) -> bool"),
            ("cidr_contains_cidr", "CIDR.(CIDR) -> bool"),
        ],
    ),
    guarded(
        "prefixLength",
        |args| Ok(Value::Int(network(args)?.prefix.into())),
        &[("cidr_prefix_length", "CIDR.() -> int")],
    ),
    guarded(
        "masked",
        |args| Ok(Value::Cidr(network(args)?.masked())),
        &[("cidr_masked", "CIDR.() -> CIDR")],
    ),
    guarded("url", url, &[("string_to_url", "string -> URL")]),
    guarded(
        "isURL",
        |args| Ok(Value::Bool(Url::parse(one_text(args)?).is_ok())),
        &[("is_url_string", "string -> bool")],
    ),
    guarded(
        "getScheme",
        |args| Ok(Value::str(parsed_url(args)?.scheme.clone())),
        &[("url_get_scheme", "URL.() -> string")],
    ),
    guarded(
        "getHost",
        |args| Ok(Value::str(parsed_url(args)?.host.clone())),
        &[("url_get_host", "URL.() -> string")],
    ),
    guarded(
        "getHostname",
        |args| Ok(Value::str(parsed_url(args)?.hostname().to_owned())),
        &[("url_get_hostname", "URL.() -> string")],
    ),
    guarded(
        "getPort",
        |args| Ok(Value::str(parsed_url(args)?.port().to_owned())),
        &[("url_get_port", "URL.() -> string")],
    ),
    guarded(
        "getEscapedPath",
        |args| Ok(Value::str(parsed_url(args)?.escaped_path().into_owned())),
        &[("url_get_escaped_path", "URL.() -> string")],
    ),
    guarded("getQuery", query, &[("url_get_query", "URL.() -> map(string, list(string))")]),
    guarded("format.named", named_format, &[("format-named", "string -> optional(Format)")]),
    guarded(
        "validate",
        validate,
        &[("format-validate", "Format.(string) -> optional(list(string))")],
    ),
    deep("includes", includes, &[("dra_includes_dyn_dyn", "dyn.(dyn) -> bool")]),
];

/// Declares a function that returns the only argument if it is a value of this kind.
macro_rules! receiver {
    ($name:ident, $kind:ident, $ty:ty) => {
        fn $name<'v>(args: &'v [Value<'_>]) -> Result<&'v $ty, Fault> {
            match args {
                [Value::$kind(value)] => Ok(value),
                _ => Err(Fault::Overload),
            }
        }
    };
}

receiver!(quantity, Quantity, Amount);
receiver!(version, Version, Version);
receiver!(address, Ip, Ip);
receiver!(network, Cidr, Cidr);
receiver!(parsed_url, Url, Url);

fn arithmetic<'a>(
    args: &[Value<'a>],
    combine: fn(Amount, Amount) -> Amount,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(Value::Quantity(combine(*a, *b))),
        [Value::Quantity(a), Value::Int(b)] => Ok(Value::Quantity(combine(*a, Amount::whole(*b)))),
        _ => Err(Fault::Overload),
    }
}

fn compare_to<'a>(
    args: &[Value<'a>],
    result: fn(Ordering) -> Value<'a>,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(result(a.quantity.cmp(&b.quantity))),
        [Value::Version(a), Value::Version(b)] => Ok(result(a.cmp(b))),
        _ => Err(Fault::Overload),
    }
}

fn parse_version<'a>(args: &[Value<'a>]) -> Result<Result<Version, Fault>, Fault> {
    let parsed = match args {
        [Value::Str(text)] | [Value::Str(text), Value::Bool(false)] => text.parse(),
        [Value::Str(text), Value::Bool(true)] => Version::normalize(text),
        _ => return Err(Fault::Overload),
    };
    Ok(parsed.map_err(|error| Fault::text(error.to_string())))
}

fn number<'a>(args: &[Value<'a>], index: usize) -> Result<Value<'a>, Fault> {
    // Go converts numbers beyond 63 bits in the same way.
    Ok(Value::Int(version(args)?.numbers[index] as i64))
}

fn ip<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Str(text)] => Ip::parse(text).map(Value::Ip).map_err(Fault::text),
        [Value::Cidr(network)] => Ok(Value::Ip(network.address)),
        _ => Err(Fault::Overload),
    }
}

fn is_canonical<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let text = one_text(args)?;
    Ok(Value::Bool(Ip::parse(text).map_err(Fault::text)?.0.to_string() == text))
}

fn contains_ip<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (network, ip) = match args {
        [Value::Cidr(network), Value::Ip(ip)] => (network, *ip),
        // Kubernetes loses the error of a malformed address.
        [Value::Cidr(network), Value::Str(text)] => match Ip::parse(text) {
            Ok(ip) => (network, ip),
            Err(_) => return Err(super::super::error::NO_OVERLOAD),
        },
        _ => return Err(Fault::Overload),
    };
    Ok(Value::Bool(network.contains(ip)))
}

fn contains_cidr<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (network, other) = match args {
        [Value::Cidr(network), Value::Cidr(other)] => (network, *other),
        [Value::Cidr(network), Value::Str(text)] => {
            (network, Cidr::parse(text).map_err(Fault::text)?)
        }
        _ => return Err(Fault::Overload),
    };
    Ok(Value::Bool(network.contains_network(other)))
}

fn url<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let failed = |error| format!("URL parse error during conversion from string: {error}");
    let url = Url::parse(one_text(args)?).map_err(|error| Fault::text(failed(error)))?;
    Ok(Value::Url(Arc::new(url)))
}

fn query<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for (key, value) in parsed_url(args)?.query() {
        values.entry(key).or_default().push(Value::str(value));
    }
    let entry = |(key, values): (String, Vec<Value<'a>>)| {
        (Key::Str(key.clone().into()), (Value::str(key), Value::list(values)))
    };
    Ok(Value::Map(Arc::new(values.into_iter().map(entry).collect::<Map<'a>>())))
}

fn named_format<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let format = format::named(one_text(args)?);
    Ok(format.map_or(Value::Optional(None), |format| Value::some(Value::Format(format))))
}

fn validate<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [Value::Format(format), Value::Str(text)] = args else { return Err(Fault::Overload) };
    let errors: Vec<Value<'a>> = (format.check)(text).into_iter().map(Value::str).collect();
    let valid = errors.is_empty();
    Ok(if valid { Value::Optional(None) } else { Value::some(Value::list(errors)) })
}

/// Returns whether a list contains a value, or whether a value that is not a list equals it.
fn includes<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    const MOST: usize = 48;
    let [target, value] = args else { return Err(Fault::Overload) };
    let items = match target {
        Value::List(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    for (index, item) in items.iter().enumerate() {
        if index >= MOST {
            return Err(Fault::text(format!(
                "'includes' function cannot be applied to lists longer than {MOST} values"
            )));
        }
        match equal(item, value, work) {
            Err(Fault::Cost) => return Err(Fault::Cost),
            Ok(true) => return Ok(Value::Bool(true)),
            _ => {}
        }
    }
    Ok(Value::Bool(false))
}

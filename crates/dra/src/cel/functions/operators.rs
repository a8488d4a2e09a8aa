//! Operators, sizes, and functions of durations, timestamps and optional values.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::civil;

use super::super::error::{Fault, NO_OVERLOAD};
use super::super::value::{
    Key, MAX_ITEMS, MAX_TEXT, Map, Value, Work, compare, contains, is_number,
};
use super::{Declaration, Overloads, Style, deep, guarded, one, one_list, operator, special};

const INT_OVERFLOW: Fault = Fault::Fixed("integer overflow");
const UINT_OVERFLOW: Fault = Fault::Fixed("unsigned integer overflow");
const DURATION_OVERFLOW: Fault = Fault::Fixed("duration overflow");
const DIVISION: Fault = Fault::Fixed("division by zero");
const MODULUS: Fault = Fault::Fixed("modulus by zero");

macro_rules! comparison {
    ($name:literal, $id:literal, $run:expr) => {
        operator(
            $name,
            $run,
            &[
                (concat!($id, "_{}"), "{}, {} -> bool"),
                (concat!($id, "_int64_double"), "int, double -> bool"),
                (concat!($id, "_int64_uint64"), "int, uint -> bool"),
                (concat!($id, "_uint64_double"), "uint, double -> bool"),
                (concat!($id, "_uint64_int64"), "uint, int -> bool"),
                (concat!($id, "_double_int64"), "double, int -> bool"),
                (concat!($id, "_double_uint64"), "double, uint -> bool"),
            ],
        )
    };
}

const OF_TIME: Overloads = &[
    ("timestamp_to_int", "timestamp.() -> int"),
    ("timestamp_to_int_with_tz", "timestamp.(string) -> int"),
];
const OF_TIME_OR_DURATION: Overloads =
    &[OF_TIME[0], OF_TIME[1], ("duration_to_int", "duration.() -> int")];

pub(super) const FUNCTIONS: &[Declaration] = &[
    operator("_?_:_", special, &[("conditional", "bool, A, A -> A")]),
    operator("_&&_", special, &[("logical_and", "bool, bool -> bool")]),
    operator("_||_", special, &[("logical_or", "bool, bool -> bool")]),
    operator(
        "!_",
        |args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => Err(NO_OVERLOAD),
        },
        &[("logical_not", "bool -> bool")],
    ),
    guarded("@not_strictly_false", special, &[("not_strictly_false", "bool -> bool")]),
    operator("_==_", special, &[("equals", "A, A -> bool")]),
    operator("_!=_", special, &[("not_equals", "A, A -> bool")]),
    operator(
        "_+_",
        add,
        &[
            ("add_bytes", "bytes, bytes -> bytes"),
            ("add_double", "double, double -> double"),
            ("add_duration_duration", "duration, duration -> duration"),
            ("add_duration_timestamp", "duration, timestamp -> timestamp"),
            ("add_timestamp_duration", "timestamp, duration -> timestamp"),
            ("add_int64", "int, int -> int"),
            ("add_list", "list(A), list(A) -> list(A)"),
            ("add_string", "string, string -> string"),
            ("add_uint64", "uint, uint -> uint"),
        ],
    ),
    operator(
        "_-_",
        subtract,
        &[
            ("subtract_double", "double, double -> double"),
            ("subtract_duration_duration", "duration, duration -> duration"),
            ("subtract_int64", "int, int -> int"),
            ("subtract_timestamp_duration", "timestamp, duration -> timestamp"),
            ("subtract_timestamp_timestamp", "timestamp, timestamp -> duration"),
            ("subtract_uint64", "uint, uint -> uint"),
        ],
    ),
    operator(
        "_*_",
        multiply,
        &[
            ("multiply_double", "double, double -> double"),
            ("multiply_int64", "int, int -> int"),
            ("multiply_uint64", "uint, uint -> uint"),
        ],
    ),
    operator(
        "_/_",
        divide,
        &[
            ("divide_double", "double, double -> double"),
            ("divide_int64", "int, int -> int"),
            ("divide_uint64", "uint, uint -> uint"),
        ],
    ),
    operator(
        "_%_",
        modulo,
        &[("modulo_int64", "int, int -> int"), ("modulo_uint64", "uint, uint -> uint")],
    ),
    operator(
        "-_",
        negate,
        &[("negate_double", "double -> double"), ("negate_int64", "int -> int")],
    ),
    comparison!("_<_", "less", |args| ordered(args, Ordering::is_lt)),
    comparison!("_<=_", "less_equals", |args| ordered(args, Ordering::is_le)),
    comparison!("_>_", "greater", |args| ordered(args, Ordering::is_gt)),
    comparison!("_>=_", "greater_equals", |args| ordered(args, Ordering::is_ge)),
    operator(
        "_[_]",
        special,
        &[
            ("index_list", "list(A), int -> A"),
            ("index_map", "map(A, B), A -> B"),
            ("optional_list_index_int", "optional(list(V)), int -> optional(V)"),
            ("optional_map_index_value", "optional(map(K, V)), K -> optional(V)"),
        ],
    ),
    operator(
        "_[?_]",
        special,
        &[
            ("list_optindex_optional_int", "list(V), int -> optional(V)"),
            ("optional_list_optindex_optional_int", "optional(list(V)), int -> optional(V)"),
            ("map_optindex_optional_value", "map(K, V), K -> optional(V)"),
            ("optional_map_optindex_optional_value", "optional(map(K, V)), K -> optional(V)"),
        ],
    ),
    operator("_?._", special, &[("select_optional_field", "dyn, string -> optional(V)")]),
    Declaration {
        style: Style::Operator,
        ..deep(
            "@in",
            is_in,
            &[("in_list", "A, list(A) -> bool"), ("in_map", "A, map(A, B) -> bool")],
        )
    },
    operator(
        "size",
        size,
        &[
            ("size_bytes", "bytes -> int"),
            ("bytes_size", "bytes.() -> int"),
            ("size_list", "list(A) -> int"),
            ("list_size", "list(A).() -> int"),
            ("size_map", "map(A, B) -> int"),
            ("map_size", "map(A, B).() -> int"),
            ("size_string", "string -> int"),
            ("string_size", "string.() -> int"),
        ],
    ),
    guarded(
        "cel.@mapInsert",
        map_insert,
        &[
            ("@mapInsert_map_key_value", "map(K, V), K, V -> map(K, V)"),
            ("@mapInsert_map_map", "map(K, V), map(K, V) -> map(K, V)"),
        ],
    ),
    guarded("getFullYear", |args| civil(args, |t| t.year().into()), OF_TIME),
    guarded("getMonth", |args| civil(args, |t| i64::from(t.month()) - 1), OF_TIME),
    guarded("getDayOfYear", |args| civil(args, |t| i64::from(t.date().day_of_year()) - 1), OF_TIME),
    guarded("getDayOfMonth", |args| civil(args, |t| i64::from(t.day()) - 1), OF_TIME),
    guarded("getDate", |args| civil(args, |t| t.day().into()), OF_TIME),
    guarded(
        "getDayOfWeek",
        |args| civil(args, |t| t.weekday().to_sunday_zero_offset().into()),
        OF_TIME,
    ),
    guarded(
        "getHours",
        |args| part(args, 3_600_000_000_000, |t| t.hour().into()),
        OF_TIME_OR_DURATION,
    ),
    guarded(
        "getMinutes",
        |args| part(args, 60_000_000_000, |t| t.minute().into()),
        OF_TIME_OR_DURATION,
    ),
    guarded(
        "getSeconds",
        |args| part(args, 1_000_000_000, |t| t.second().into()),
        OF_TIME_OR_DURATION,
    ),
    guarded(
        "getMilliseconds",
        |args| part(args, 1_000_000, |t| i64::from(t.subsec_nanosecond()) / 1_000_000),
        OF_TIME_OR_DURATION,
    ),
    guarded(
        "optional.of",
        |args| Ok(Value::some(one(args)?.clone())),
        &[("optional_of", "V -> optional(V)")],
    ),
    guarded(
        "optional.ofNonZeroValue",
        optional_of_non_zero,
        &[("optional_ofNonZeroValue", "V -> optional(V)")],
    ),
    guarded("optional.none", |_| Ok(Value::Optional(None)), &[("optional_none", "-> optional(V)")]),
    guarded("value", optional_value, &[("optional_value", "optional(V).() -> V")]),
    guarded("hasValue", has_value, &[("optional_hasValue", "optional(V).() -> bool")]),
    guarded("or", special, &[("optional_or_optional", "optional(V).(optional(V)) -> optional(V)")]),
    guarded("orValue", special, &[("optional_orValue_value", "optional(V).(V) -> V")]),
    guarded("optional.unwrap", unwrap, &[("optional_unwrap", "list(optional(V)) -> list(V)")]),
    guarded("unwrapOpt", unwrap, &[("optional_unwrapOpt", "list(optional(V)).() -> list(V)")]),
];

/// Returns the error for a second operand of a wrong type, or for a first one that the operator does not know.
fn refuse<'a>(known: bool, first: Option<&Value<'_>>) -> Result<Value<'a>, Fault> {
    // Strings, durations and timestamps refuse unknown operators themselves.
    let own = matches!(first, Some(Value::Str(_) | Value::Duration(_) | Value::Timestamp(_)));
    Err(if known || own { NO_OVERLOAD } else { Fault::Overload })
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_add(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_add(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a + b),
        [Value::Str(a), Value::Str(b)] => {
            if a.len() + b.len() > MAX_TEXT {
                return Err(Fault::Cost);
            }
            Value::str(format!("{a}{b}"))
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            if a.len() + b.len() > MAX_TEXT {
                return Err(Fault::Cost);
            }
            Value::Bytes([&**a, &**b].concat().into())
        }
        [Value::List(a), Value::List(b)] => {
            if a.len() + b.len() > MAX_ITEMS {
                return Err(Fault::Cost);
            }
            Value::list(a.iter().chain(b.iter()).cloned().collect())
        }
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_add(*b).ok_or(DURATION_OVERFLOW)?)
        }
        [Value::Duration(nanos), Value::Timestamp(time)]
        | [Value::Timestamp(time), Value::Duration(nanos)] => Value::Timestamp(time.add(*nanos)?),
        [first, ..] => {
            let known = is_number(first) || matches!(first, Value::Bytes(_) | Value::List(_));
            return refuse(known, Some(first));
        }
        [] => return refuse(false, None),
    })
}

fn subtract<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_sub(*b).ok_or(DURATION_OVERFLOW)?)
        }
        [Value::Timestamp(time), Value::Duration(nanos)] => {
            Value::Timestamp(time.add(nanos.checked_neg().ok_or(DURATION_OVERFLOW)?)?)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => Value::Duration(a.since(*b)?),
        _ => return refuse(args.first().is_some_and(is_number), args.first()),
    })
}

fn multiply<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or(UINT_OVERFLOW)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return refuse(args.first().is_some_and(is_number), args.first()),
    })
}

fn divide<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(DIVISION),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return refuse(args.first().is_some_and(is_number), args.first()),
    })
}

fn modulo<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(MODULUS),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or(INT_OVERFLOW)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => {
            let known = matches!(args.first(), Some(Value::Int(_) | Value::Uint(_)));
            return refuse(known, args.first());
        }
    })
}

fn negate<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or(INT_OVERFLOW)?),
        [Value::Double(a)] => Value::Double(-a),
        [Value::Duration(a)] => Value::Duration(a.checked_neg().ok_or(DURATION_OVERFLOW)?),
        _ => return refuse(matches!(args, [Value::Bool(_)]), args.first()),
    })
}

fn ordered<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Result<Value<'a>, Fault> {
    let [a, b] = args else { return Err(Fault::Overload) };
    let known = matches!(
        a,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Str(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    );
    if known { Ok(Value::Bool(holds(compare(a, b)?))) } else { Err(Fault::Overload) }
}

fn is_in<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    match args {
        [value, Value::List(items)] => Ok(Value::Bool(contains(items, value, work)?)),
        [key, map] => map.has_key(key).map(Value::Bool).ok_or(NO_OVERLOAD),
        _ => Err(NO_OVERLOAD),
    }
}

fn size<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let value = one(args)?;
    match value.size() {
        Some(size) => Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX))),
        None => refuse(false, Some(value)),
    }
}

fn map_insert<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (Value::Map(map), added) = (match args {
        [map, Value::Map(other)] => (map, other.values().cloned().collect()),
        [map, key, value] => (map, vec![(key.clone(), value.clone())]),
        _ => return Err(Fault::Overload),
    }) else {
        return Err(Fault::Overload);
    };
    let mut map = Map::clone(map);
    insert(&mut map, added)?;
    Ok(Value::Map(Arc::new(map)))
}

/// Inserts entries, of which none may exist.
pub(in super::super) fn insert<'a>(
    map: &mut Map<'a>,
    entries: Vec<(Value<'a>, Value<'a>)>,
) -> Result<(), Fault> {
    for (key, value) in entries {
        let index = Key::owned(&key).ok_or(Fault::Fixed("unsupported key type"))?;
        if map.contains_key(&index) {
            let key = super::convert::display(&key);
            return Err(Fault::text(format!("insert failed: key {key} already exists")));
        }
        if map.len() >= MAX_ITEMS {
            return Err(Fault::Cost);
        }
        map.insert(index, (key, value));
    }
    Ok(())
}

fn civil<'a>(args: &[Value<'a>], field: fn(civil::DateTime) -> i64) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(field(time.civil("UTC")?))),
        [Value::Timestamp(time), Value::Str(zone)] => Ok(Value::Int(field(time.civil(zone)?))),
        _ => Err(Fault::Overload),
    }
}

fn part<'a>(
    args: &[Value<'a>],
    unit: i64,
    field: fn(civil::DateTime) -> i64,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => civil(args, field),
    }
}

fn optional_of_non_zero<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let value = one(args)?;
    let zero = match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => {
            true
        }
        Value::Double(number) => *number == 0.0,
        other => other.size() == Some(0),
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn optional_value<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Fault::Fixed("optional.none() dereference")),
        _ => Err(Fault::Overload),
    }
}

fn has_value<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [Value::Optional(value)] = args else { return Err(Fault::Overload) };
    Ok(Value::Bool(value.is_some()))
}

fn unwrap<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let mut values = Vec::new();
    for item in one_list(args)? {
        match item {
            Value::Optional(Some(value)) => values.push((**value).clone()),
            Value::Optional(None) => {}
            other => {
                let text = super::convert::display(other);
                return Err(Fault::text(format!("value {text} is not optional")));
            }
        }
    }
    Ok(Value::list(values))
}

//! Conversions between types.

use std::borrow::Cow;

use super::super::error::Fault;
use super::super::net::Ip;
use super::super::time::{Timestamp, format_duration, parse_duration};
use super::super::value::Value;
use super::{Declaration, guarded, one, operator};

pub(super) const FUNCTIONS: &[Declaration] = &[
    operator("dyn", |args| one(args).cloned(), &[("to_dyn", "A -> dyn")]),
    operator("type", |args| Ok(Value::Type(one(args)?.type_name())), &[("type", "A -> type(A)")]),
    guarded(
        "bool",
        to_bool,
        &[("bool_to_bool", "bool -> bool"), ("string_to_bool", "string -> bool")],
    ),
    guarded(
        "bytes",
        to_bytes,
        &[("bytes_to_bytes", "bytes -> bytes"), ("string_to_bytes", "string -> bytes")],
    ),
    guarded(
        "double",
        to_double,
        &[
            ("double_to_double", "double -> double"),
            ("int64_to_double", "int -> double"),
            ("string_to_double", "string -> double"),
            ("uint64_to_double", "uint -> double"),
        ],
    ),
    guarded(
        "duration",
        to_duration,
        &[
            ("duration_to_duration", "duration -> duration"),
            ("int64_to_duration", "int -> duration"),
            ("string_to_duration", "string -> duration"),
        ],
    ),
    guarded(
        "int",
        to_int,
        &[
            ("int64_to_int64", "int -> int"),
            ("double_to_int64", "double -> int"),
            ("duration_to_int64", "duration -> int"),
            ("string_to_int64", "string -> int"),
            ("timestamp_to_int64", "timestamp -> int"),
            ("uint64_to_int64", "uint -> int"),
        ],
    ),
    guarded(
        "string",
        to_string,
        &[
            ("string_to_string", "string -> string"),
            ("bool_to_string", "bool -> string"),
            ("bytes_to_string", "bytes -> string"),
            ("double_to_string", "double -> string"),
            ("duration_to_string", "duration -> string"),
            ("int64_to_string", "int -> string"),
            ("timestamp_to_string", "timestamp -> string"),
            ("uint64_to_string", "uint -> string"),
            ("ip_to_string", "IP -> string"),
            ("cidr_to_string", "CIDR -> string"),
        ],
    ),
    guarded(
        "timestamp",
        to_timestamp,
        &[
            ("timestamp_to_timestamp", "timestamp -> timestamp"),
            ("int64_to_timestamp", "int -> timestamp"),
            ("string_to_timestamp", "string -> timestamp"),
        ],
    ),
    guarded(
        "uint",
        to_uint,
        &[
            ("uint64_to_uint64", "uint -> uint"),
            ("double_to_uint64", "double -> uint"),
            ("int64_to_uint64", "int -> uint"),
            ("string_to_uint64", "string -> uint"),
        ],
    ),
];

fn failed(from: &str, to: &str) -> Fault {
    Fault::text(format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::Str(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed("string", "bool")),
        },
        _ => Err(Fault::Overload),
    }
}

fn to_bytes<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::Str(Cow::Borrowed(text))] => Ok(Value::Bytes(Cow::Borrowed(text.as_bytes()))),
        [Value::Str(text)] => Ok(Value::Bytes(text.as_bytes().to_vec().into())),
        _ => Err(Fault::Overload),
    }
}

/// Parses a number as Go does, which refuses numbers beyond 64 bits.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let named = text.to_ascii_lowercase().contains("inf");
    (number.is_finite() || number.is_nan() || named).then_some(number)
}

fn to_double<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(Value::Double(match args {
        [Value::Double(number)] => *number,
        [Value::Int(number)] => *number as f64,
        [Value::Uint(number)] => *number as f64,
        [Value::Str(text)] => parse_double(text).ok_or_else(|| failed("string", "double"))?,
        _ => return Err(Fault::Overload),
    }))
}

fn to_duration<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    const NAME: &str = "google.protobuf.Duration";
    match args {
        [Value::Duration(nanos)] => Ok(Value::Duration(*nanos)),
        [Value::Int(_)] => Err(failed("int", NAME)),
        [Value::Str(text)] => {
            parse_duration(text).map(Value::Duration).ok_or_else(|| failed("string", NAME))
        }
        _ => Err(Fault::Overload),
    }
}

fn to_int<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    const OVERFLOW: Fault = Fault::Fixed("integer overflow");
    Ok(Value::Int(match args {
        [Value::Int(number)] => *number,
        [Value::Uint(number)] => i64::try_from(*number).map_err(|_| OVERFLOW)?,
        // The bounds, 2^63 and -2^63, are exact.
        [Value::Double(number)] if number.abs() < i64::MAX as f64 => *number as i64,
        [Value::Double(_)] => return Err(OVERFLOW),
        [Value::Duration(nanos)] => *nanos,
        [Value::Timestamp(time)] => time.seconds,
        [Value::Str(text)] => text.parse().map_err(|_| failed("string", "int"))?,
        _ => return Err(Fault::Overload),
    }))
}

fn to_uint<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    const OVERFLOW: Fault = Fault::Fixed("unsigned integer overflow");
    Ok(Value::Uint(match args {
        [Value::Uint(number)] => *number,
        [Value::Int(number)] => u64::try_from(*number).map_err(|_| OVERFLOW)?,
        // The bound, 2^64, is exact.
        [Value::Double(number)] if (0.0..u64::MAX as f64).contains(number) => *number as u64,
        [Value::Double(_)] => return Err(OVERFLOW),
        [Value::Str(text)] if !text.starts_with('+') => {
            text.parse().map_err(|_| failed("string", "uint"))?
        }
        [Value::Str(_)] => return Err(failed("string", "uint")),
        _ => return Err(Fault::Overload),
    }))
}

fn to_timestamp<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => Timestamp::from_seconds(*seconds).map(Value::Timestamp),
        [Value::Str(text)] => match Timestamp::parse(text) {
            Some(time) => time.map(Value::Timestamp),
            None => Err(failed("string", "google.protobuf.Timestamp")),
        },
        _ => Err(Fault::Overload),
    }
}

fn to_string<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let value = one(args)?;
    Ok(Value::Str(match value {
        Value::Str(text) => text.clone(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned().into(),
            Err(_) => {
                return Err(Fault::Fixed("invalid UTF-8 in bytes, cannot convert to string"));
            }
        },
        Value::Bool(_)
        | Value::Double(_)
        | Value::Duration(_)
        | Value::Int(_)
        | Value::Timestamp(_)
        | Value::Uint(_)
        | Value::Ip(_)
        | Value::Cidr(_) => display(value).into(),
        _ => return Err(Fault::Overload),
    }))
}

/// Writes a scalar value.
pub(in super::super) fn display(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => display_double(*number),
        Value::Str(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => format_duration(*nanos),
        Value::Timestamp(time) => time.to_string(),
        Value::Ip(Ip(address)) => address.to_string(),
        Value::Cidr(network) => network.to_string(),
        Value::Type(name) => (*name).to_owned(),
        other => other.type_name().to_owned(),
    }
}

/// Writes a number as Go's `%g`: the shortest text that parses back, with an exponent if it is below -4 or above 5.
pub(super) fn display_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

//! The declarations of all functions and operators, with their implementations.
//!
//! A function is chosen by the types of its arguments at run time, because attributes have no static type. An overload is
//! declared as its name and its signature: `string.(int) -> string` is a method of strings.

mod convert;
mod kube;
mod lists;
mod operators;
mod printf;
mod strings;

use std::collections::HashMap;
use std::sync::OnceLock;

pub(super) use convert::display;
pub(super) use operators::insert;
pub(super) use printf::check as check_format;
pub(super) use strings::search;

use super::error::Fault;
use super::format;
use super::types::{Object, Type};
use super::value::{Value, Work};

type Plain = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, Fault>;
type Deep = for<'a> fn(&[Value<'a>], &mut Work) -> Result<Value<'a>, Fault>;

/// How a function is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Implementation {
    /// In time that is linear in what [`Value::read_work`] counts of the arguments and the result.
    Plain(Plain),
    /// In a time that it counts itself, in addition to that.
    Deep(Deep),
}

impl Implementation {
    pub(super) fn run<'a>(self, args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
        match self {
            Implementation::Plain(run) => run(args),
            Implementation::Deep(run) => run(args, work),
        }
    }
}

/// How a function without an overload for its arguments reports that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `no such overload: size`.
    Operator,
    /// `no such overload: upperAscii(int)`.
    Guarded,
}

struct Declaration {
    name: &'static str,
    style: Style,
    run: Implementation,
    overloads: Overloads,
}

/// The name and the signature of each overload. `{}` stands for each type whose values are ordered.
type Overloads = &'static [(&'static str, &'static str)];

const ORDERED: [&str; 8] =
    ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];

const fn operator(name: &'static str, run: Plain, overloads: Overloads) -> Declaration {
    Declaration { name, style: Style::Operator, run: Implementation::Plain(run), overloads }
}

const fn guarded(name: &'static str, run: Plain, overloads: Overloads) -> Declaration {
    Declaration { name, style: Style::Guarded, run: Implementation::Plain(run), overloads }
}

const fn deep(name: &'static str, run: Deep, overloads: Overloads) -> Declaration {
    Declaration { name, style: Style::Guarded, run: Implementation::Deep(run), overloads }
}

/// A function under one name.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) style: Style,
    pub(super) run: Implementation,
    pub(super) overloads: Vec<Overload>,
}

/// One signature of a function. Type parameters are numbered by their letters.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) id: &'static str,
    pub(super) is_method: bool,
    pub(super) params: Vec<Type>,
    pub(super) result: Type,
}

/// Returns the function of a name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<HashMap<&str, Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(functions).get(name)
}

fn functions() -> HashMap<&'static str, Function> {
    let groups = [
        operators::FUNCTIONS,
        convert::FUNCTIONS,
        strings::FUNCTIONS,
        lists::FUNCTIONS,
        kube::FUNCTIONS,
    ];
    let mut functions = HashMap::new();
    for Declaration { name, style, run, overloads } in groups.into_iter().flatten() {
        let overloads = overloads.iter().flat_map(|(id, text)| expanded(id, text)).collect();
        functions.insert(*name, Function { name, style: *style, run: *run, overloads });
    }
    for name in format::names() {
        let name = leak(format!("format.{name}"));
        let overloads = vec![overload(name, "-> Format")];
        let run = Implementation::Plain(special);
        functions.insert(name, Function { name, style: Style::Guarded, run, overloads });
    }
    functions
}

/// Makes a name of the static tables, which are read once.
fn leak(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

fn expanded(id: &'static str, text: &str) -> Vec<Overload> {
    if !text.contains("{}") {
        return vec![overload(id, text)];
    }
    let one = |ty| overload(leak(id.replace("{}", ty)), &text.replace("{}", ty));
    ORDERED.into_iter().map(one).collect()
}

fn overload(id: &'static str, text: &str) -> Overload {
    let text = text.replace(' ', "");
    let (params, result) = text.split_once("->").unwrap_or_default();
    let (receiver, params) = match params.split_once(".(") {
        Some((receiver, params)) => (Some(receiver), params.strip_suffix(')').unwrap_or(params)),
        None => (None, params),
    };
    let is_method = receiver.is_some();
    let mut types: Vec<Type> = receiver.into_iter().map(|mut receiver| ty(&mut receiver)).collect();
    let mut rest = params;
    while !rest.is_empty() {
        types.push(ty(&mut rest));
        rest = rest.strip_prefix(',').unwrap_or("");
    }
    Overload { id, is_method, params: types, result: ty(&mut { result }) }
}

/// Returns the only argument.
fn one<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v Value<'a>, Fault> {
    match args {
        [value] => Ok(value),
        _ => Err(Fault::Overload),
    }
}

/// Returns the only argument if it is text.
fn one_text<'v>(args: &'v [Value<'_>]) -> Result<&'v str, Fault> {
    match args {
        [Value::Str(text)] => Ok(text),
        _ => Err(Fault::Overload),
    }
}

/// Returns the items of the only argument if it is a list.
fn one_list<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v [Value<'a>], Fault> {
    match args {
        [Value::List(items)] => Ok(items),
        _ => Err(Fault::Overload),
    }
}

/// Reads a type from the front of the text.
fn ty(text: &mut &str) -> Type {
    let len = text.find(['(', ')', ',']).unwrap_or(text.len());
    let name = &text[..len];
    *text = &text[len..];
    let mut argument = || {
        *text = text.trim_start_matches(['(', ',']);
        ty(text)
    };
    let found = match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Str,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "Quantity" => Type::Object(Object::Quantity),
        "Semver" => Type::Object(Object::Semver),
        "URL" => Type::Object(Object::Url),
        "Format" => Type::Object(Object::Format),
        "IP" => Type::Object(Object::Ip),
        "CIDR" => Type::Object(Object::Cidr),
        "list" => Type::list(argument()),
        "optional" => Type::optional(argument()),
        "type" => Type::of(argument()),
        "map" => {
            let key = argument();
            Type::map(key, argument())
        }
        letter if letter.len() == 1 => Type::Param(u32::from(letter.as_bytes()[0])),
        _ => Type::Dyn,
    };
    if matches!(name, "list" | "optional" | "type" | "map") {
        *text = text.strip_prefix(')').unwrap_or(text);
    }
    found
}

/// The implementation of operators that the evaluator handles itself, and of `format.uuid()` and the like, which the
/// planner replaces by their values.
fn special<'a>(_: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Err(Fault::Overload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_parse() {
        let slice = find("slice").map(|f| &f.overloads[0]);
        let list = Type::list(Type::Param(u32::from(b'T')));
        let slice = slice.map(|o| (o.is_method, o.params.clone(), o.result.clone()));
        assert_eq!(slice, Some((true, vec![list.clone(), Type::Int, Type::Int], list)));
        let query = find("getQuery").map(|f| f.overloads[0].result.clone());
        assert_eq!(query, Some(Type::map(Type::Str, Type::list(Type::Str))));
    }
}

//! Finds the types of all nodes and the overloads of all calls.
//!
//! The rules are cel-go's: `1 == 1.0` does not compile although the two are equal at run time, `1 < 1.5` does, and the
//! elements of a list literal have one type, except in the arguments of `string.format`. Attributes have the type `any`,
//! with which everything unifies.

use std::collections::HashMap;

use super::ast::{Expr, Fold, Kind};
use super::error::Fail;
use super::functions::{self, Function, Overload};
use super::parser::Parsed;
use super::regex::Pattern;
use super::types::{Mapping, Object, Type, most_general};
use super::value::{Value, Work};

/// A tree with the types and overloads of its nodes, by their numbers.
pub(super) struct Checked {
    pub(super) root: Expr,
    pub(super) types: Vec<Type>,
    pub(super) calls: Vec<Option<Resolved>>,
}

/// The overloads that a call may have at run time, at least one.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) function: &'static Function,
    pub(super) overloads: Vec<&'static Overload>,
}

impl Resolved {
    /// Returns the name of the overload if there is only one.
    pub(super) fn id(&self) -> Option<&'static str> {
        match self.overloads.as_slice() {
            [overload] => Some(overload.id),
            _ => None,
        }
    }
}

pub(super) fn check(parsed: Parsed) -> Result<Checked, Fail> {
    let mut checker = Checker {
        types: vec![Type::Error; parsed.ids],
        calls: vec![None; parsed.ids],
        scopes: Vec::new(),
        mapping: Mapping::default(),
        // Numbers below are the letters of declarations.
        next_variable: 1_000,
    };
    let mut root = parsed.root;
    let at = root.at;
    let result = checker.check(&mut root);
    let mapping = checker.mapping;
    let types: Vec<Type> = checker.types.iter().map(|ty| mapping.substitute(ty, true)).collect();
    if mapping.is_exhausted() {
        return fail(at, "the types of the expression are too large".to_owned());
    }
    result?;
    let checked = Checked { root, types, calls: checker.calls };
    validate(&checked, &checked.root, false)?;
    match &checked.types[checked.root.id] {
        Type::Bool | Type::Any => Ok(checked),
        Type::Null => Err(Fail::Output("null_type".to_owned())),
        other => Err(Fail::Output(other.to_string())),
    }
}

struct Checker {
    types: Vec<Type>,
    calls: Vec<Option<Resolved>>,
    scopes: Vec<(String, Type)>,
    mapping: Mapping,
    next_variable: u32,
}

fn fail<T>(at: usize, message: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::at(at, message))
}

fn mismatch<T>(at: usize, expected: &Type, found: &Type) -> Result<T, Fail> {
    fail(at, format!("expected type '{expected}' but found '{found}'"))
}

fn undeclared<T>(at: usize, name: &str) -> Result<T, Fail> {
    fail(at, format!("undeclared reference to '{name}' (in container '')"))
}

impl Checker {
    fn check(&mut self, expr: &mut Expr) -> Result<(), Fail> {
        let at = expr.at;
        let ty = match &mut expr.kind {
            Kind::Const(value) => type_of_constant(value),
            Kind::Ident(name) => match self.lookup(name) {
                Some(ty) => ty,
                None => return undeclared(at, name),
            },
            Kind::Select { operand, field, test } => {
                let selected = self.select(at, operand, field, false);
                let is_test = *test;
                match selected {
                    Ok(ty) => {
                        if is_test {
                            Type::Bool
                        } else {
                            self.mapping.substitute(&ty, false)
                        }
                    }
                    Err(error) => match expr.qualified_name().and_then(|name| {
                        let ty = self.lookup(&name)?;
                        Some((name, ty))
                    }) {
                        // The name of a type in a package.
                        Some((name, ty)) => {
                            expr.kind = Kind::Ident(name);
                            ty
                        }
                        None => return Err(error),
                    },
                }
            }
            Kind::Call { .. } => return self.call(expr),
            Kind::List(items) => {
                let mut item_type = None;
                for item in items {
                    self.check(&mut item.value)?;
                    let ty = self.element(&item.value, item.optional)?;
                    item_type = Some(self.join(item_type, ty));
                }
                let item_type = item_type.unwrap_or_else(|| self.variable());
                Type::list(item_type)
            }
            Kind::Map(entries) => {
                let mut types = None;
                for entry in entries {
                    self.check(&mut entry.key)?;
                    self.check(&mut entry.value)?;
                    let key = self.types[entry.key.id].clone();
                    let value = self.element(&entry.value, entry.optional)?;
                    types = Some(match types {
                        None => (key, value),
                        Some((keys, values)) => {
                            (self.join(Some(keys), key), self.join(Some(values), value))
                        }
                    });
                }
                let (key, value) = types.unwrap_or_else(|| (self.variable(), self.variable()));
                Type::map(key, value)
            }
            Kind::Fold(fold) => self.fold(fold)?,
        };
        self.types[expr.id] = ty;
        Ok(())
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        let local = self.scopes.iter().rev().find(|(known, _)| known == name);
        local.map(|(_, ty)| ty.clone()).or_else(|| match name {
            "device" => Some(Type::Object(Object::Device)),
            _ => type_named(name).map(|(ty, _)| Type::of(ty)),
        })
    }

    fn variable(&mut self) -> Type {
        self.next_variable += 1;
        Type::Param(self.next_variable)
    }

    /// Returns the type of an element, which is the inner type of an optional one.
    fn element(&self, value: &Expr, optional: bool) -> Result<Type, Fail> {
        let ty = self.types[value.id].clone();
        if !optional {
            return Ok(ty);
        }
        let (inner, was_optional) = ty.unwrap_optional();
        if !was_optional && !inner.is_dyn() {
            return mismatch(value.at, &Type::optional(inner.clone()), &inner);
        }
        Ok(inner)
    }

    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.mapping.assign(&previous, &current) => {
                most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn select(
        &mut self,
        at: usize,
        operand: &mut Expr,
        field: &str,
        optional: bool,
    ) -> Result<Type, Fail> {
        self.check(operand)?;
        let (target, was_optional) =
            self.mapping.substitute(&self.types[operand.id], false).unwrap_optional();
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(Object::Device) => match device_field(field) {
                Some(ty) => ty,
                None => return fail(at, format!("undefined field '{field}'")),
            },
            Type::Object(Object::Ip | Object::Cidr) => {
                return fail(at, format!("type '{target}' does not support field selection"));
            }
            Type::Object(_) => return fail(at, format!("undefined field '{field}'")),
            Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn_or_error() => Type::Dyn,
            other => return fail(at, format!("type '{other}' does not support field selection")),
        };
        Ok(if was_optional || optional { Type::optional(result) } else { result })
    }

    fn call(&mut self, expr: &mut Expr) -> Result<(), Fail> {
        let at = expr.at;
        let Kind::Call { target, name, args } = &mut expr.kind else { return Ok(()) };
        if name == "_?._" {
            let ty = match args.as_mut_slice() {
                [operand, Expr { kind: Kind::Const(Value::Str(field)), id, .. }] => {
                    self.types[*id] = Type::Str;
                    self.select(at, operand, field, true)?
                }
                _ => return fail(at, "unsupported optional field selection".to_owned()),
            };
            self.types[expr.id] = self.mapping.substitute(&ty, false);
            let function = functions::find("_?._");
            self.calls[expr.id] = function.map(|function| Resolved {
                function,
                overloads: function.overloads.iter().collect(),
            });
            return Ok(());
        }
        for arg in args.iter_mut() {
            self.check(arg)?;
        }
        // `a.b.c(x)` is a function if there is one of that name.
        let qualified = target
            .as_ref()
            .and_then(|target| target.qualified_name())
            .map(|prefix| format!("{prefix}.{name}"))
            .filter(|qualified| functions::find(qualified).is_some());
        if let Some(qualified) = qualified {
            *name = qualified;
            *target = None;
        }
        if let Some(target) = target {
            self.check(target)?;
        }
        let Some(function) = functions::find(name) else { return undeclared(at, name) };
        let all = target.iter().map(|target| &**target).chain(args.iter());
        let found: Vec<Type> = all.map(|arg| self.types[arg.id].clone()).collect();
        if matches!(function.name, "_&&_" | "_||_") {
            for (arg, ty) in args.iter().zip(&found) {
                if !self.mapping.assign(ty, &Type::Bool) {
                    return mismatch(arg.at, &Type::Bool, ty);
                }
            }
        }
        let is_method = target.is_some();
        let (overloads, result) = self.resolve(at, function, is_method, found)?;
        self.types[expr.id] = result;
        self.calls[expr.id] = Some(Resolved { function, overloads });
        Ok(())
    }

    fn resolve(
        &mut self,
        at: usize,
        function: &'static Function,
        is_method: bool,
        args: Vec<Type>,
    ) -> Result<(Vec<&'static Overload>, Type), Fail> {
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for overload in function.overloads.iter().filter(|o| o.is_method == is_method) {
            let mut fresh = HashMap::new();
            let params: Vec<Type> =
                overload.params.iter().map(|ty| self.instantiate(ty, &mut fresh)).collect();
            if !self.mapping.assign_all(&args, &params) {
                continue;
            }
            let ty = self.instantiate(&overload.result, &mut fresh);
            let ty = self.mapping.substitute(&ty, false);
            overloads.push(overload);
            result = Some(match result {
                None => ty,
                Some(known) if known.is_dyn() || known == ty => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let names: Vec<String> =
                args.iter().map(|ty| self.mapping.substitute(ty, true).to_string()).collect();
            let signature = match (is_method, names.as_slice()) {
                (true, [target, rest @ ..]) => format!("{target}.({})", rest.join(", ")),
                (_, names) => format!("({})", names.join(", ")),
            };
            let name = function.name;
            return fail(
                at,
                format!("found no matching overload for '{name}' applied to '{signature}'"),
            );
        };
        Ok((overloads, result))
    }

    /// Replaces the parameters of a declaration by variables.
    fn instantiate(&mut self, ty: &Type, fresh: &mut HashMap<u32, Type>) -> Type {
        match ty {
            Type::Param(letter) => fresh.entry(*letter).or_insert_with(|| self.variable()).clone(),
            other => other.replace(&mut |ty| self.instantiate(ty, fresh)),
        }
    }

    fn fold(&mut self, fold: &mut Fold) -> Result<Type, Fail> {
        self.check(&mut fold.range)?;
        self.check(&mut fold.init)?;
        let range = self.mapping.substitute(&self.types[fold.range.id], false);
        let accu = self.types[fold.init.id].clone();
        let (first, second) = match &range {
            Type::List(item) if fold.iter2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            // The type of an attribute is `any`, which cannot be iterated over.
            Type::Param(_) | Type::Dyn | Type::Error => {
                self.mapping.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                return fail(
                    fold.range.at,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension \
                         (must be list, map, or dynamic)"
                    ),
                );
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        self.scopes.push((fold.iter.clone(), first));
        if let Some(name) = &fold.iter2 {
            self.scopes.push((name.clone(), second));
        }
        self.check(&mut fold.cond)?;
        self.assert(&fold.cond, &Type::Bool)?;
        self.check(&mut fold.step)?;
        self.assert(&fold.step, &accu)?;
        self.scopes.truncate(depth + 1);
        self.check(&mut fold.result)?;
        self.scopes.truncate(depth);
        Ok(self.mapping.substitute(&self.types[fold.result.id], false))
    }

    fn assert(&mut self, expr: &Expr, ty: &Type) -> Result<(), Fail> {
        let found = self.types[expr.id].clone();
        if self.mapping.assign(ty, &found) { Ok(()) } else { mismatch(expr.at, ty, &found) }
    }
}

fn type_of_constant(value: &Value<'_>) -> Type {
    match value {
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::Str(_) => Type::Str,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Null,
    }
}

/// Returns the type of a name such as `int`, and the name as values of the type `type` have it.
pub(super) fn type_named(name: &str) -> Option<(Type, &'static str)> {
    let dynamic = || Type::Dyn;
    Some(match name {
        "bool" => (Type::Bool, "bool"),
        "bytes" => (Type::Bytes, "bytes"),
        "double" => (Type::Double, "double"),
        "int" => (Type::Int, "int"),
        "uint" => (Type::Uint, "uint"),
        "string" => (Type::Str, "string"),
        "null_type" => (Type::Null, "null_type"),
        "type" => (Type::of(dynamic()), "type"),
        "list" => (Type::list(dynamic()), "list"),
        "map" => (Type::map(dynamic(), dynamic()), "map"),
        "optional_type" => (Type::optional(dynamic()), "optional_type"),
        "google.protobuf.Duration" => (Type::Duration, "google.protobuf.Duration"),
        "google.protobuf.Timestamp" => (Type::Timestamp, "google.protobuf.Timestamp"),
        _ => {
            let objects = [
                Object::Quantity,
                Object::Semver,
                Object::Url,
                Object::Format,
                Object::Ip,
                Object::Cidr,
            ];
            let object = objects.into_iter().find(|object| object.name() == name)?;
            (Type::Object(object), object.name())
        }
    })
}

fn device_field(name: &str) -> Option<Type> {
    let domains = |value| Type::map(Type::Str, Type::map(Type::Str, value));
    Some(match name {
        "driver" => Type::Str,
        "allowMultipleAllocations" => Type::Bool,
        "attributes" => domains(Type::Any),
        "capacity" => domains(Type::Object(Object::Quantity)),
        _ => return None,
    })
}

/// Refuses literals of mixed types outside of `format`, constant format strings that do not fit their arguments, and
/// constant durations, timestamps and patterns that are invalid.
fn validate(checked: &Checked, expr: &Expr, in_format: bool) -> Result<(), Fail> {
    let mut exempt = in_format;
    match &expr.kind {
        Kind::Call { name, args, .. } if is_invalid(name, args) => {
            return fail(args[0].at, format!("invalid {name} argument"));
        }
        Kind::Call { name, target, args } if name == "format" => {
            exempt = true;
            if let (
                Some(Kind::Const(Value::Str(pattern))),
                [Expr { kind: Kind::List(items), .. }],
            ) = (target.as_ref().map(|target| &target.kind), args.as_slice())
            {
                let items: Vec<&Expr> = items.iter().map(|item| &item.value).collect();
                functions::check_format(pattern, &items, &checked.types)
                    .or_else(|message| fail(expr.at, message))?;
            }
        }
        Kind::List(items) if !in_format => {
            homogeneous(checked, items.iter().map(|item| (&item.value, item.optional)))?;
        }
        Kind::Map(entries) if !in_format => {
            homogeneous(checked, entries.iter().map(|entry| (&entry.key, false)))?;
            homogeneous(checked, entries.iter().map(|entry| (&entry.value, entry.optional)))?;
        }
        _ => {}
    }
    let mut result = Ok(());
    expr.children(&mut |child| {
        if result.is_ok() {
            result = validate(checked, child, exempt);
        }
    });
    result
}

/// Returns whether the first argument is a constant that the function refuses. As in cel-go, that is the text in
/// `matches(text, pattern)`, although it is no pattern.
fn is_invalid(name: &str, args: &[Expr]) -> bool {
    let Some(Expr { kind: Kind::Const(value), .. }) = args.first() else { return false };
    match (name, value) {
        ("matches", Value::Str(pattern)) => Pattern::compile(pattern).is_err(),
        ("duration" | "timestamp", value) => functions::find(name).is_some_and(|function| {
            function.run.run(std::slice::from_ref(value), &mut Work::new()).is_err()
        }),
        _ => false,
    }
}

fn homogeneous<'e>(
    checked: &Checked,
    elements: impl Iterator<Item = (&'e Expr, bool)>,
) -> Result<(), Fail> {
    let mut first = None;
    for (element, optional) in elements {
        let ty = checked.types[element.id].clone();
        let ty = if optional { ty.unwrap_optional().0 } else { ty };
        match &first {
            None => first = Some(ty),
            Some(first) if !first.is_equivalent(&ty) => return mismatch(element.at, first, &ty),
            Some(_) => {}
        }
    }
    Ok(())
}

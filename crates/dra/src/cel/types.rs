//! Static types and their unification, which follows cel-go's checker/types.go.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A type that is known only at run time.
    Dyn,
    /// The type of attributes: dynamic, too, but under another name.
    Any,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// The type of a type.
    Meta(Arc<Type>),
    Object(Object),
    /// A parameter of an overload, or a variable of the checker.
    Param(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Device,
    Quantity,
    Semver,
    Url,
    Format,
    Ip,
    Cidr,
}

impl Type {
    pub(super) fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub(super) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(super) fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    pub(super) fn of(ty: Type) -> Type {
        Type::Meta(Arc::new(ty))
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Type::Error
    }

    /// Returns the type of the value, and whether the type is an optional one.
    pub(super) fn unwrap_optional(self) -> (Type, bool) {
        match self {
            Type::Optional(value) => ((*value).clone(), true),
            other => (other, false),
        }
    }

    fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(item) | Type::Optional(item) | Type::Meta(item) => vec![item],
            Type::Map(entry) => vec![&entry.0, &entry.1],
            _ => Vec::new(),
        }
    }

    /// Returns the type with its parameters replaced.
    pub(super) fn replace(&self, by: &mut dyn FnMut(&Type) -> Type) -> Type {
        match self {
            Type::List(item) => Type::list(by(item)),
            Type::Map(entry) => Type::map(by(&entry.0), by(&entry.1)),
            Type::Optional(item) => Type::optional(by(item)),
            Type::Meta(item) => Type::of(by(item)),
            other => other.clone(),
        }
    }

    /// Returns `true` if the types are the same but for the names of their parameters.
    pub(super) fn is_equivalent(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Param(_), Type::Param(_)) => true,
            _ => {
                let (a, b) = (self.parameters(), other.parameters());
                std::mem::discriminant(self) == std::mem::discriminant(other)
                    && (!a.is_empty() || self == other)
                    && a.iter().zip(b).all(|(a, b)| a.is_equivalent(b))
            }
        }
    }
}

/// The types that the variables of the checker stand for.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    known: HashMap<u32, Type>,
    /// What each change replaced, to take back an assignment that fails halfway.
    log: Vec<(u32, Option<Type>)>,
    /// How many types were visited. A type can be exponentially larger than the expression.
    visits: Cell<u32>,
}

/// The maximum number of visited types.
const MAX_VISITS: u32 = 1 << 20;

impl Mapping {
    /// Returns whether the types of the expression are too large, so that the results since then are wrong.
    pub(super) fn is_exhausted(&self) -> bool {
        self.visits.get() > MAX_VISITS
    }

    fn visit(&self) {
        self.visits.set(self.visits.get().saturating_add(1));
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(param) => self.known.get(param),
            _ => None,
        }
    }

    fn add(&mut self, param: &Type, ty: Type) {
        if let Type::Param(param) = param {
            self.log.push((*param, self.known.insert(*param, ty)));
        }
    }

    /// Returns the type with all known variables replaced, and the others by `dyn` if asked for.
    pub(super) fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        self.visit();
        if self.is_exhausted() {
            return Type::Error;
        }
        if let Some(found) = self.find(ty) {
            return self.substitute(&found.clone(), free_to_dyn);
        }
        if free_to_dyn && matches!(ty, Type::Param(_)) {
            return Type::Dyn;
        }
        ty.replace(&mut |param| self.substitute(param, free_to_dyn))
    }

    /// Returns `true` if `from` is assignable to `to`, and learns what the variables stand for.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.log.clear();
        let fits = from.len() == to.len()
            && from.iter().zip(to).all(|(from, to)| self.try_assign(from, to));
        while !fits && let Some((param, before)) = self.log.pop() {
            match before {
                Some(before) => self.known.insert(param, before),
                None => self.known.remove(&param),
            };
        }
        fits
    }

    fn try_assign(&mut self, from: &Type, to: &Type) -> bool {
        self.visit();
        if self.is_exhausted() {
            return false;
        }
        if matches!(to, Type::Param(_)) {
            let (valid, known) = self.try_substitute(from, to);
            if valid || known {
                return valid;
            }
        }
        if matches!(from, Type::Param(_)) {
            return self.try_substitute(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        if *from == Type::Null || *to == Type::Null {
            let other = if *from == Type::Null { to } else { from };
            return matches!(
                other,
                Type::Null | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
            );
        }
        match (from, to) {
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(_), Type::List(_))
            | (Type::Map(_), Type::Map(_))
            | (Type::Optional(_), Type::Optional(_)) => from
                .parameters()
                .into_iter()
                .zip(to.parameters())
                .all(|(from, to)| self.try_assign(from, to)),
            _ => from == to,
        }
    }

    /// Returns whether `param` can stand for `ty`, and whether it stood for a type before.
    fn try_substitute(&mut self, ty: &Type, param: &Type) -> (bool, bool) {
        if ty == param {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *ty == known {
                return (true, true);
            }
            if !self.try_assign(ty, &known) {
                return (false, true);
            }
            let general = most_general(ty, &known);
            if self.not_within(param, &general) {
                self.add(param, general);
            }
            return (true, true);
        }
        if self.not_within(param, ty) {
            self.add(param, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&self, param: &Type, ty: &Type) -> bool {
        if param == ty {
            return false;
        }
        match ty {
            Type::Param(_) => self.find(ty).is_none_or(|found| self.not_within(param, found)),
            _ => ty.parameters().into_iter().all(|part| self.not_within(param, part)),
        }
    }
}

/// Returns the more general of two types that unify.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if is_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn is_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::Meta(_), Type::Meta(_)) => true,
        (Type::List(_), Type::List(_))
        | (Type::Map(_), Type::Map(_))
        | (Type::Optional(_), Type::Optional(_)) => {
            a.parameters().into_iter().zip(b.parameters()).all(|(a, b)| is_less_specific(a, b))
        }
        _ => a == b,
    }
}

impl Object {
    pub(super) fn name(self) -> &'static str {
        match self {
            Object::Device => "kubernetes.DRADevice",
            Object::Quantity => "kubernetes.Quantity",
            Object::Semver => "kubernetes.Semver",
            Object::Url => "kubernetes.URL",
            Object::Format => "kubernetes.NamedFormat",
            Object::Ip => "net.IP",
            Object::Cidr => "net.CIDR",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Dyn => "dyn",
            Type::Any => "any",
            Type::Error => "!error!",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::Str => "string",
            Type::Bytes => "bytes",
            Type::Duration => "duration",
            Type::Timestamp => "timestamp",
            Type::List(item) => return write!(f, "list({item})"),
            Type::Map(entry) => return write!(f, "map({}, {})", entry.0, entry.1),
            Type::Optional(value) => return write!(f, "optional_type({value})"),
            Type::Meta(ty) => return write!(f, "type({ty})"),
            Type::Object(object) => object.name(),
            Type::Param(param) => return write!(f, "_var{param}"),
        })
    }
}

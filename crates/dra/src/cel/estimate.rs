//! The cost that an expression can have at most, which the API server limits.
//!
//! This is the estimator of cel-go (checker/cost.go) with the sizes that Kubernetes declares for devices. Sizes of values
//! and costs are ranges; a size that is unknown reaches up to `u64::MAX`.

use super::ast::{Expr, Fold, Kind};
use super::check::Checked;
use super::cost::{LIST, MAP, TEXT};
use super::estimate_calls::{Argument, Estimate, estimate};
use super::types::Type;
use super::value::Value;

/// A range of sizes or of costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub(super) const fn fixed(number: u64) -> Range {
        Range { min: number, max: number }
    }

    fn zip(self, other: Range, combine: fn(u64, u64) -> u64) -> Range {
        Range { min: combine(self.min, other.min), max: combine(self.max, other.max) }
    }

    pub(super) fn add(self, other: Range) -> Range {
        self.zip(other, u64::saturating_add)
    }

    pub(super) fn times(self, other: Range) -> Range {
        self.zip(other, u64::saturating_mul)
    }

    pub(super) fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(super) fn scale(self, factor: f64) -> Range {
        // Conversions of floating-point numbers saturate.
        let scale = |number: u64| (number as f64 * factor).ceil() as u64;
        Range { min: scale(self.min), max: scale(self.max) }
    }
}

/// Returns the worst case of an expression.
pub(super) fn worst_case(checked: &Checked) -> u64 {
    let count = checked.types.len();
    let mut estimator = Estimator {
        checked,
        paths: vec![Vec::new(); count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: Vec::new(),
    };
    estimator.cost(&checked.root).max
}

/// Where a value is found from a variable: fields, and `@items`, `@keys`, `@values` or `@indices`.
type Path<'c> = Vec<&'c str>;

/// The sizes of the keys and the values of a list or a map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

#[derive(Clone)]
struct Local<'c> {
    name: &'c str,
    path: Path<'c>,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'c> {
    checked: &'c Checked,
    paths: Vec<Path<'c>>,
    sizes: Vec<Option<Range>>,
    entries: Vec<Option<Entries>>,
    locals: Vec<Local<'c>>,
}

impl<'c> Estimator<'c> {
    fn cost(&mut self, expr: &'c Expr) -> Range {
        match &expr.kind {
            Kind::Const(_) => Range::fixed(0),
            Kind::Ident(name) => {
                let local = self.local(name).map(|local| local.path.clone());
                self.paths[expr.id] = local.unwrap_or_else(|| vec![name]);
                Range::fixed(1)
            }
            Kind::Select { operand, test: true, .. } => self.cost(operand),
            Kind::Select { operand, field, test: false } => {
                let cost = self.cost(operand);
                let mut path = self.path(operand);
                path.push(field);
                self.paths[expr.id] = path;
                match self.ty(operand) {
                    Type::Map(_) | Type::Object(_) | Type::Param(_) => cost.add(Range::fixed(1)),
                    _ => cost,
                }
            }
            Kind::Call { target, name, args } => self.call(expr, target.as_deref(), name, args),
            Kind::List(items) => {
                let mut cost = Range::fixed(LIST);
                let mut value = Range { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for item in items {
                    cost = cost.add(self.cost(&item.value));
                    value = value.union(self.size_or_unknown(&item.value));
                }
                self.entries[expr.id] =
                    Some(Entries { is_list: true, key: Range::fixed(1), value });
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::fixed(MAP);
                let none = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    cost = cost.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries[expr.id] = Some(Entries { is_list: false, key, value });
                cost
            }
            Kind::Fold(fold) if fold.is_bind() => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn call(
        &mut self,
        expr: &'c Expr,
        target: Option<&'c Expr>,
        name: &'c str,
        args: &'c [Expr],
    ) -> Range {
        if let ("dyn", [arg]) = (name, args) {
            let cost = self.cost(arg).add(Range::fixed(1));
            self.copy_sizes(expr, arg);
            return cost;
        }
        let mut arguments = Vec::with_capacity(args.len());
        let mut costs = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            arguments.push(self.argument(arg));
        }
        let mut sum = Range::fixed(0);
        let target = target.map(|target| {
            sum = self.cost(target);
            self.argument(target)
        });
        let Some(resolved) = &self.checked.calls[expr.id] else { return Range::fixed(0) };
        let mut function = Range { min: u64::MAX, max: 0 };
        let mut result = None;
        for overload in &resolved.overloads {
            let found = self.overload(expr, name, overload.id, target.as_ref(), &arguments, &costs);
            function = function.union(found.cost);
            result = match (result, found.size) {
                (Some(known), Some(size)) => Some(Range::union(known, size)),
                (known, size) => known.or(size),
            };
            if let (Some(arg), Some(step)) = (
                args.first(),
                match overload.id {
                    "index_list" => Some("@items"),
                    "index_map" => Some("@values"),
                    _ => None,
                },
            ) {
                result = self.entries_of(arg).map(|entries| entries.value);
                let mut path = self.path(arg);
                path.push(step);
                self.paths[expr.id] = path;
            }
            result = result.or_else(|| self.size(expr));
        }
        if result.is_some() {
            self.sizes[expr.id] = result;
        }
        sum.add(function)
    }

    /// Estimates a call with one of its overloads, the arguments included.
    fn overload(
        &mut self,
        expr: &'c Expr,
        name: &str,
        id: &str,
        target: Option<&Argument<'c>>,
        args: &[Argument<'c>],
        costs: &[Range],
    ) -> Estimate {
        let sum = costs.iter().fold(Range::fixed(0), |sum, cost| sum.add(*cost));
        if let Some(found) = estimate(name, id, target, args) {
            return Estimate { cost: found.cost.add(sum), ..found };
        }
        match (id, args, costs) {
            ("logical_or" | "logical_and", _, [left, right]) => {
                Estimate::of(Range { min: left.min, max: left.add(*right).max })
            }
            ("conditional", [_, then, otherwise], [condition, if_true, if_false]) => {
                let entries = union(self.entries_of(then.expr), self.entries_of(otherwise.expr));
                self.entries[expr.id] = entries.or(self.entries[expr.id]);
                Estimate {
                    cost: condition.add(if_true.union(*if_false)),
                    size: Some(then.size_or_unknown().union(otherwise.size_or_unknown())),
                }
            }
            ("add_string" | "add_bytes" | "add_list", [left, right], _) => {
                let entries = union(self.entries_of(left.expr), self.entries_of(right.expr));
                self.entries[expr.id] = entries.or(self.entries[expr.id]);
                let size = left.size_or_unknown().add(right.size_or_unknown());
                let cost = if id == "add_list" { Range::fixed(1) } else { size.scale(TEXT) };
                Estimate { cost: cost.add(sum), size: Some(size) }
            }
            _ => Estimate::of(Range::fixed(1).add(sum)),
        }
    }

    fn bind(&mut self, expr: &'c Expr, fold: &'c Fold) -> Range {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_accumulator(fold);
        cost = cost.add(self.cost(&fold.result));
        self.locals.pop();
        self.copy_sizes(expr, &fold.result);
        cost
    }

    fn fold(&mut self, expr: &'c Expr, fold: &'c Fold) -> Range {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_accumulator(fold);
        let depth = self.locals.len();
        let entries = self.entries_of(&fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.ty(&fold.range), Type::List(_)),
        };
        let path = self.path(&fold.range);
        let mut push = |name: &'c str, step: &'c str, size: Option<Range>| {
            let mut path = path.clone();
            path.push(step);
            self.locals.push(Local { name, path, size, entries: None });
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        match &fold.iter2 {
            Some(second) => {
                push(&fold.iter, if is_list { "@indices" } else { "@keys" }, key);
                push(second, if is_list { "@items" } else { "@values" }, value);
            }
            None if is_list => push(&fold.iter, "@items", value),
            None => push(&fold.iter, "@keys", key),
        }
        let each = self.cost(&fold.cond).add(self.cost(&fold.step));
        self.locals.truncate(depth);
        cost = cost.add(self.cost(&fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        match &fold.init.kind {
            Kind::Const(_) => self.sizes[expr.id] = self.size(&fold.init),
            Kind::List(_) | Kind::Map(_) => {
                self.sizes[expr.id] = Some(count);
                self.entries[expr.id] = self.entries_of(&fold.step).or(self.entries[expr.id]);
            }
            _ => {}
        }
        cost.add(count.times(each))
    }

    fn push_accumulator(&mut self, fold: &'c Fold) {
        let local = Local {
            name: &fold.accu,
            path: self.path(&fold.init),
            size: self.size(&fold.init),
            entries: self.entries_of(&fold.init),
        };
        self.locals.push(local);
    }

    fn local(&self, name: &str) -> Option<&Local<'c>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn ty(&self, expr: &Expr) -> &'c Type {
        &self.checked.types[expr.id]
    }

    fn path(&self, expr: &Expr) -> Path<'c> {
        let local = match &expr.kind {
            Kind::Ident(name) => self.local(name),
            _ => None,
        };
        local.map_or_else(|| self.paths[expr.id].clone(), |local| local.path.clone())
    }

    fn argument(&mut self, expr: &'c Expr) -> Argument<'c> {
        Argument { expr, ty: self.ty(expr), path: self.path(expr), size: self.size(expr) }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &'c Expr) {
        if let Some(size) = self.size(from) {
            self.sizes[to.id] = Some(size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries[to.id] = Some(entries);
        }
    }

    fn size_or_unknown(&mut self, expr: &'c Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &'c Expr) -> Option<Range> {
        if let Some(size) = self.sizes[expr.id] {
            return Some(size);
        }
        match &expr.kind {
            Kind::Const(value) => return size_of_constant(value),
            Kind::List(items) => return Some(Range::fixed(items.len() as u64)),
            Kind::Map(entries) => return Some(Range::fixed(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = declared_size(&self.path(expr)) {
            self.sizes[expr.id] = Some(size);
            return Some(size);
        }
        if self.ty(expr).is_scalar() {
            return Some(Range::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        self.entries[expr.id].or_else(|| match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        })
    }
}

fn union(a: Option<Entries>, b: Option<Entries>) -> Option<Entries> {
    let (a, b) = (a?, b?);
    Some(Entries { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
}

fn size_of_constant(value: &Value<'_>) -> Option<Range> {
    Some(Range::fixed(value.size().map_or(1, |size| size as u64)))
}

/// Returns the size that Kubernetes declares for a part of a device.
pub(super) fn declared_size(path: &[&str]) -> Option<Range> {
    /// The longest name of a driver, and of a domain.
    const DOMAIN: u64 = 63;
    /// The longest name within a domain.
    const ID: u64 = 32;
    /// The most attributes and capacities.
    const NAMES: u64 = 32;
    /// The longest string of an attribute.
    const TEXT: u64 = 64;
    let max = match path {
        ["device", "driver"] => DOMAIN,
        ["device", "allowMultipleAllocations"] => 1,
        ["device", "attributes" | "capacity"] => NAMES,
        ["device", "attributes" | "capacity", "@keys"] => DOMAIN,
        ["device", "attributes" | "capacity", "@values"] => NAMES,
        ["device", "attributes" | "capacity", "@values", "@keys"] => ID,
        ["device", "attributes", "@values", step] if !matches!(*step, "@items") => TEXT,
        ["device", "attributes", "@values", "@items"] => TEXT,
        // Kubernetes declares no size for a device and for quantities.
        ["device"] | ["device", "capacity", "@values", "@values"] => 0,
        _ => return None,
    };
    Some(Range { min: 0, max })
}

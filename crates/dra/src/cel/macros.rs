//! Macros, which become comprehensions and presence tests while parsing.
//!
//! Expansions are cel-go's, because costs and the treatment of errors follow from their shape. The accumulator has a
//! name that no expression can spell.

use super::ast::{Expr, Fold, Item, Kind};
use super::error::Fail;
use super::parser::Nodes;
use super::value::Value;

pub(super) const ACCUMULATOR: &str = "@result";
const UNUSED: &str = "#unused";

/// Makes a global call, or expands `has(a.b)`.
pub(super) fn function(
    nodes: &mut Nodes,
    at: usize,
    name: &str,
    mut args: Vec<Expr>,
) -> Result<Expr, Fail> {
    if name != "has" || args.len() != 1 {
        return nodes.call(at, name, args);
    }
    match args.pop().map(|arg| (arg.at, arg.kind)) {
        Some((_, Kind::Select { operand, field, test: false })) => {
            nodes.make(at, Kind::Select { operand, field, test: true })
        }
        Some((at, _)) => Err(Fail::at(at, "invalid argument to has() macro")),
        None => nodes.call(at, name, args),
    }
}

/// Makes a method call, or expands a macro.
pub(super) fn method(
    nodes: &mut Nodes,
    at: usize,
    target: Expr,
    name: &str,
    args: Vec<Expr>,
) -> Result<Expr, Fail> {
    let mut macros = Macros { nodes, at };
    match (name, args.len()) {
        ("all" | "exists" | "exists_one" | "existsOne", 2) => {
            let [item, test] = take(args);
            let item = macros.variable(&item)?;
            macros.quantifier(name, target, (item, None), test)
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3) => {
            let [key, value, test] = take(args);
            let variables = macros.variables(&key, &value)?;
            macros.quantifier(name, target, variables, test)
        }
        ("map", 2) => {
            let [item, transform] = take(args);
            let item = macros.variable(&item)?;
            macros.collect(target, (item, None), None, transform)
        }
        ("map", 3) => {
            let [item, filter, transform] = take(args);
            let item = macros.variable(&item)?;
            macros.collect(target, (item, None), Some(filter), transform)
        }
        ("filter", 2) => {
            let [item, filter] = take(args);
            let variable = macros.variable(&item)?;
            macros.collect(target, (variable, None), Some(filter), item)
        }
        ("transformList", 3 | 4) => {
            let (variables, filter, transform) = macros.transform(args)?;
            macros.collect(target, variables, filter, transform)
        }
        ("transformMap", 3 | 4) => {
            let (variables, filter, transform) = macros.transform(args)?;
            let key = macros.nodes.ident(at, &variables.0)?;
            macros.insert(target, variables, filter, vec![key, transform])
        }
        ("transformMapEntry", 3 | 4) => {
            let (variables, filter, transform) = macros.transform(args)?;
            macros.insert(target, variables, filter, vec![transform])
        }
        ("bind", 3) if matches!(&target.kind, Kind::Ident(name) if name == "cel") => {
            let [variable, init, result] = take(args);
            let name = macros.variable(&variable)?;
            macros.bind(name, init, result)
        }
        ("optMap" | "optFlatMap", 2) => macros.opt_map(target, name == "optMap", args),
        ("sortBy", 2) => macros.sort_by(target, args),
        _ => macros.nodes.method(at, target, name, args),
    }
}

/// Returns the arguments of a macro, whose number is known.
fn take<const N: usize>(args: Vec<Expr>) -> [Expr; N] {
    let mut args = args.into_iter();
    std::array::from_fn(|_| {
        args.next().unwrap_or(Expr { id: 0, at: 0, depth: 1, kind: Kind::Const(Value::Null) })
    })
}

type Variables = (String, Option<String>);

struct Macros<'n> {
    nodes: &'n mut Nodes,
    at: usize,
}

impl Macros<'_> {
    fn variable(&self, arg: &Expr) -> Result<String, Fail> {
        match &arg.kind {
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(Fail::at(arg.at, "argument must be a simple name")),
        }
    }

    fn variables(&self, key: &Expr, value: &Expr) -> Result<Variables, Fail> {
        let (first, second) = (self.variable(key)?, self.variable(value)?);
        if first == second {
            return Err(Fail::at(value.at, format!("duplicate variable name: {first}")));
        }
        Ok((first, Some(second)))
    }

    fn transform(&self, args: Vec<Expr>) -> Result<(Variables, Option<Expr>, Expr), Fail> {
        let filtered = args.len() == 4;
        let [key, value, third, fourth] = take(args);
        let variables = self.variables(&key, &value)?;
        Ok(if filtered { (variables, Some(third), fourth) } else { (variables, None, third) })
    }

    fn accumulator(&mut self) -> Result<Expr, Fail> {
        self.nodes.ident(self.at, ACCUMULATOR)
    }

    fn constant(&mut self, value: Value<'static>) -> Result<Expr, Fail> {
        self.nodes.constant(self.at, value)
    }

    fn call(&mut self, name: &str, args: Vec<Expr>) -> Result<Expr, Fail> {
        self.nodes.call(self.at, name, args)
    }

    fn list(&mut self, items: Vec<Expr>) -> Result<Expr, Fail> {
        let items = items.into_iter().map(|value| Item { value, optional: false }).collect();
        self.nodes.make(self.at, Kind::List(items))
    }

    fn fold(
        &mut self,
        range: Expr,
        (iter, iter2): Variables,
        [init, cond, step, result]: [Expr; 4],
    ) -> Result<Expr, Fail> {
        let accu = ACCUMULATOR.to_owned();
        let fold = Fold { range, iter, iter2, accu, init, cond, step, result };
        self.nodes.make(self.at, Kind::Fold(Box::new(fold)))
    }

    fn quantifier(
        &mut self,
        name: &str,
        range: Expr,
        variables: Variables,
        test: Expr,
    ) -> Result<Expr, Fail> {
        let accu = self.accumulator()?;
        let again = self.accumulator()?;
        let parts = match name {
            "all" => [
                self.constant(Value::Bool(true))?,
                self.call("@not_strictly_false", vec![accu])?,
                self.call("_&&_", vec![again, test])?,
                self.accumulator()?,
            ],
            "exists" => {
                let not = self.call("!_", vec![accu])?;
                [
                    self.constant(Value::Bool(false))?,
                    self.call("@not_strictly_false", vec![not])?,
                    self.call("_||_", vec![again, test])?,
                    self.accumulator()?,
                ]
            }
            _ => {
                let one = self.constant(Value::Int(1))?;
                let more = self.call("_+_", vec![accu, one])?;
                let one = self.constant(Value::Int(1))?;
                let result = self.accumulator()?;
                [
                    self.constant(Value::Int(0))?,
                    self.constant(Value::Bool(true))?,
                    self.call("_?_:_", vec![test, more, again])?,
                    self.call("_==_", vec![result, one])?,
                ]
            }
        };
        self.fold(range, variables, parts)
    }

    /// Adds `more` to the accumulator for items that pass the filter.
    fn gather(
        &mut self,
        range: Expr,
        variables: Variables,
        filter: Option<Expr>,
        init: Expr,
        more: Expr,
    ) -> Result<Expr, Fail> {
        let step = match filter {
            Some(filter) => {
                let same = self.accumulator()?;
                self.call("_?_:_", vec![filter, more, same])?
            }
            None => more,
        };
        let cond = self.constant(Value::Bool(true))?;
        let result = self.accumulator()?;
        self.fold(range, variables, [init, cond, step, result])
    }

    fn collect(
        &mut self,
        range: Expr,
        variables: Variables,
        filter: Option<Expr>,
        transform: Expr,
    ) -> Result<Expr, Fail> {
        let init = self.list(Vec::new())?;
        let accu = self.accumulator()?;
        let item = self.list(vec![transform])?;
        let more = self.call("_+_", vec![accu, item])?;
        self.gather(range, variables, filter, init, more)
    }

    fn insert(
        &mut self,
        range: Expr,
        variables: Variables,
        filter: Option<Expr>,
        entry: Vec<Expr>,
    ) -> Result<Expr, Fail> {
        let init = self.nodes.make(self.at, Kind::Map(Vec::new()))?;
        let mut args = vec![self.accumulator()?];
        args.extend(entry);
        let more = self.call("cel.@mapInsert", args)?;
        self.gather(range, variables, filter, init, more)
    }

    fn bind(&mut self, name: String, init: Expr, result: Expr) -> Result<Expr, Fail> {
        let fold = Fold {
            range: self.list(Vec::new())?,
            iter: UNUSED.to_owned(),
            iter2: None,
            init,
            cond: self.constant(Value::Bool(false))?,
            step: self.nodes.ident(self.at, &name)?,
            accu: name,
            result,
        };
        self.nodes.make(self.at, Kind::Fold(Box::new(fold)))
    }

    fn opt_map(&mut self, target: Expr, wrap: bool, args: Vec<Expr>) -> Result<Expr, Fail> {
        let [variable, result] = take(args);
        let name = self.variable(&variable)?;
        let copy = self.nodes.copy(&target)?;
        let has_value = self.nodes.method(self.at, target, "hasValue", Vec::new())?;
        let value = self.nodes.method(self.at, copy, "value", Vec::new())?;
        let bound = self.bind(name, value, result)?;
        let bound = if wrap { self.namespaced("optional", "of", vec![bound])? } else { bound };
        let none = self.namespaced("optional", "none", Vec::new())?;
        self.call("_?_:_", vec![has_value, bound, none])
    }

    fn namespaced(&mut self, space: &str, name: &str, args: Vec<Expr>) -> Result<Expr, Fail> {
        self.call(&format!("{space}.{name}"), args)
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, Fail> {
        const INPUT: &str = "@__sortBy_input__";
        let [item, key] = take(args);
        let item = self.variable(&item)?;
        let input = self.nodes.ident(self.at, INPUT)?;
        let keys = self.collect(input, (item, None), None, key)?;
        let input = self.nodes.ident(self.at, INPUT)?;
        let sorted = self.nodes.method(self.at, input, "@sortByAssociatedKeys", vec![keys])?;
        self.bind(INPUT.to_owned(), target, sorted)
    }
}

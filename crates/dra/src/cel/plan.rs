//! Turns a checked tree into nodes to evaluate.
//!
//! What is known before an evaluation is done here, as in cel-go with its optimizations: constant lists, maps and
//! conversions are computed, tests for membership in a constant list become look-ups, and constant patterns are compiled.
//! Each changes the cost of an evaluation, so none is left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ast::{Expr, Fold, Kind};
use super::check::{Checked, Resolved, type_named};
use super::cost::Rule;
use super::error::{EvalError, Fail};
use super::format;
use super::functions::{Implementation, Style};
use super::macros::ACCUMULATOR;
use super::regex::Pattern;
use super::value::{Key, Map, Value, Work};

#[derive(Debug)]
pub(super) enum Node {
    Const(Value<'static>),
    Attr(Box<Attr>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    /// `==`, or `!=` if `negated`.
    Equal {
        sides: Box<[Node; 2]>,
        negated: bool,
    },
    /// Whether a value is in a constant list, which costs nothing.
    Member(Box<Node>, BTreeSet<Key<'static>>),
    NotStrictlyFalse(Box<Node>),
    /// `optional.or(other)`, or `optional.orValue(other)` if `unwrap`.
    OrElse {
        sides: Box<[Node; 2]>,
        unwrap: bool,
    },
    /// A function without arguments that returns a constant.
    Constant(Value<'static>),
    Call(Box<Call>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Fold(Box<FoldNode>),
    /// `accumulator + [item]`, which adds in place.
    Append(usize, Box<Node>),
    /// `cel.@mapInsert(accumulator, key, value)`, which inserts in place.
    Insert(usize, Box<[Node; 2]>),
}

/// A value with selections from it, which cel-go evaluates and charges as one.
#[derive(Debug)]
pub(super) struct Attr {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
    /// Tests for presence: `has(a.b)`.
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) enum Base {
    Device,
    Variable(usize),
    Node(Node),
    /// `condition ? a : b`.
    Condition(Box<[Node; 3]>),
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    pub(super) optional: bool,
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKey {
    Const(Value<'static>),
    Node(Node),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) style: Style,
    pub(super) run: Implementation,
    pub(super) args: Vec<Node>,
    pub(super) rule: Rule,
    /// Whether the second of two arguments is evaluated although the first has failed.
    pub(super) eager: bool,
    pub(super) regex: Option<Pattern>,
}

#[derive(Debug)]
pub(super) struct FoldNode {
    pub(super) range: Node,
    pub(super) accu: usize,
    pub(super) iter: usize,
    pub(super) iter2: Option<usize>,
    pub(super) init: Node,
    pub(super) cond: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// Returns the root and the number of variables.
pub(super) fn plan(checked: &Checked) -> Result<(Node, usize), Fail> {
    let mut planner = Planner { checked, scopes: Vec::new(), slots: 0 };
    let root = planner.plan(&checked.root)?;
    Ok((root, planner.slots))
}

struct Planner<'c> {
    checked: &'c Checked,
    scopes: Vec<(&'c str, usize)>,
    slots: usize,
}

impl<'c> Planner<'c> {
    fn plan(&mut self, expr: &'c Expr) -> Result<Node, Fail> {
        Ok(match &expr.kind {
            Kind::Const(value) => Node::Const(value.clone()),
            Kind::Ident(name) => match self.slot(name) {
                Some(slot) => attr(Base::Variable(slot)),
                None if name == "device" => attr(Base::Device),
                None => {
                    Node::Const(type_named(name).map_or(Value::Null, |(_, name)| Value::Type(name)))
                }
            },
            Kind::Select { operand, field, test } => {
                let operand = self.plan(operand)?;
                let key = QualifierKey::Const(Value::Str(field.clone().into()));
                let qualifier = Qualifier { key, optional: false, test: *test };
                qualified(operand, qualifier)
            }
            Kind::Call { target, args, .. } => {
                let mut nodes = Vec::with_capacity(args.len() + 1);
                for arg in target.iter().map(|target| &**target).chain(args) {
                    nodes.push(self.plan(arg)?);
                }
                match &self.checked.calls[expr.id] {
                    Some(resolved) => self.call(resolved, nodes)?,
                    None => Node::Const(Value::Null),
                }
            }
            Kind::List(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    nodes.push((self.plan(&item.value)?, item.optional));
                }
                list(nodes)
            }
            Kind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    let key = self.plan(&entry.key)?;
                    nodes.push((key, self.plan(&entry.value)?, entry.optional));
                }
                map(nodes)
            }
            Kind::Fold(fold) => self.fold(fold)?,
        })
    }

    fn slot(&self, name: &str) -> Option<usize> {
        self.scopes.iter().rev().find(|(known, _)| *known == name).map(|(_, slot)| *slot)
    }

    fn bind(&mut self, name: &'c str) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scopes.push((name, slot));
        slot
    }

    fn fold(&mut self, fold: &'c Fold) -> Result<Node, Fail> {
        let range = self.plan(&fold.range)?;
        let init = self.plan(&fold.init)?;
        let depth = self.scopes.len();
        let accu = self.bind(&fold.accu);
        let iter = self.bind(&fold.iter);
        let iter2 = fold.iter2.as_ref().map(|name| self.bind(name));
        let cond = self.plan(&fold.cond)?;
        let step = self.plan(&fold.step)?;
        self.scopes.truncate(depth + 1);
        let result = self.plan(&fold.result)?;
        self.scopes.truncate(depth);
        let fold = FoldNode { range, accu, iter, iter2, init, cond, step, result };
        Ok(Node::Fold(Box::new(fold)))
    }

    fn call(&mut self, resolved: &Resolved, mut nodes: Vec<Node>) -> Result<Node, Fail> {
        let name = resolved.function.name;
        if let Some(constant) = self.constant(name, &nodes, resolved)? {
            return Ok(constant);
        }
        if let (Some("in_list"), [_, Node::Const(Value::List(items))]) =
            (resolved.id(), nodes.as_slice())
            && let Some(set) = set(items)
        {
            let [value, _] = take(nodes);
            return Ok(if set.is_empty() {
                Node::Const(Value::Bool(false))
            } else {
                Node::Member(Box::new(value), set)
            });
        }
        let is_accumulator = |node: Option<&Node>, slot: Option<usize>| match node {
            Some(Node::Attr(attr)) => {
                attr.qualifiers.is_empty()
                    && matches!(attr.base, Base::Variable(found) if Some(found) == slot)
            }
            _ => false,
        };
        let slot = self.slot(ACCUMULATOR);
        let accumulates = is_accumulator(nodes.first(), slot);
        Ok(match (name, nodes.len()) {
            ("_&&_", 2) => Node::And(Box::new(take(nodes))),
            ("_||_", 2) => Node::Or(Box::new(take(nodes))),
            ("_?_:_", 3) => attr(Base::Condition(Box::new(take(nodes)))),
            ("_==_" | "_!=_", 2) => {
                Node::Equal { sides: Box::new(take(nodes)), negated: name == "_!=_" }
            }
            ("or" | "orValue", 2) => {
                Node::OrElse { sides: Box::new(take(nodes)), unwrap: name == "orValue" }
            }
            ("@not_strictly_false", 1) => {
                let [node] = take(nodes);
                Node::NotStrictlyFalse(Box::new(node))
            }
            ("_[_]" | "_[?_]" | "_?._", 2) => {
                let [operand, index] = take(nodes);
                let key = match index {
                    Node::Const(value) => QualifierKey::Const(value),
                    other => QualifierKey::Node(other),
                };
                qualified(operand, Qualifier { key, optional: name != "_[_]", test: false })
            }
            ("_+_", 2)
                if accumulates
                    && matches!(nodes[1], Node::List(_) | Node::Const(Value::List(_))) =>
            {
                let [_, items] = take(nodes);
                Node::Append(slot.unwrap_or_default(), Box::new(items))
            }
            ("cel.@mapInsert", 3) if accumulates => {
                let [_, key, value] = take(nodes);
                Node::Insert(slot.unwrap_or_default(), Box::new([key, value]))
            }
            _ => {
                let regex = match (name, nodes.get(1)) {
                    ("matches" | "find" | "findAll", Some(Node::Const(Value::Str(pattern)))) => {
                        Some(Pattern::compile(pattern).map_err(Fail::Constant)?)
                    }
                    _ => None,
                };
                let one = resolved.function.style == Style::Operator || resolved.id().is_some();
                let eager = nodes.len() == 2 && one && regex.is_none() && name != "format";
                nodes.shrink_to_fit();
                Node::Call(Box::new(Call {
                    name,
                    style: resolved.function.style,
                    run: resolved.function.run,
                    args: nodes,
                    rule: Rule::of(name, resolved.id()),
                    eager,
                    regex,
                }))
            }
        })
    }

    /// Returns the node of a call that is known now.
    fn constant(
        &self,
        name: &str,
        nodes: &[Node],
        resolved: &Resolved,
    ) -> Result<Option<Node>, Fail> {
        const CONVERSIONS: [&str; 10] = [
            "bool",
            "bytes",
            "double",
            "duration",
            "dyn",
            "int",
            "string",
            "timestamp",
            "type",
            "uint",
        ];
        if let (Some(name), []) = (name.strip_prefix("format."), nodes) {
            return Ok(format::named(name).map(|format| Node::Constant(Value::Format(format))));
        }
        match nodes {
            [Node::Const(value)] if CONVERSIONS.contains(&name) => {
                let result =
                    resolved.function.run.run(std::slice::from_ref(value), &mut Work::new());
                match result {
                    Ok(value) => Ok(Some(Node::Const(value))),
                    Err(fault) => Err(Fail::Constant(EvalError::from(fault).to_string())),
                }
            }
            _ => Ok(None),
        }
    }
}

/// Returns the items of a list as keys, if all of them can be.
fn set(items: &[Value<'static>]) -> Option<BTreeSet<Key<'static>>> {
    items.iter().map(Key::owned).collect()
}

/// Returns the nodes, whose number the caller has checked.
fn take<const N: usize>(nodes: Vec<Node>) -> [Node; N] {
    let mut nodes = nodes.into_iter();
    std::array::from_fn(|_| nodes.next().unwrap_or(Node::Const(Value::Null)))
}

fn attr(base: Base) -> Node {
    Node::Attr(Box::new(Attr { base, qualifiers: Vec::new(), test: false }))
}

fn qualified(operand: Node, qualifier: Qualifier) -> Node {
    let mut attr = match operand {
        Node::Attr(attr) if !attr.test => attr,
        other => Box::new(Attr { base: Base::Node(other), qualifiers: Vec::new(), test: false }),
    };
    attr.test = qualifier.test;
    attr.qualifiers.push(qualifier);
    Node::Attr(attr)
}

fn list(nodes: Vec<(Node, bool)>) -> Node {
    let constants: Option<Vec<Value<'static>>> = nodes
        .iter()
        .map(|node| match node {
            (Node::Const(value), false) => Some(value.clone()),
            _ => None,
        })
        .collect();
    constants.map_or(Node::List(nodes), |items| Node::Const(Value::list(items)))
}

fn map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let constants: Option<Map<'static>> = nodes
        .iter()
        .map(|node| match node {
            (Node::Const(key), Node::Const(value), false) => {
                Some((Key::owned(key)?, (key.clone(), value.clone())))
            }
            _ => None,
        })
        .collect();
    constants.map_or(Node::Map(nodes), |map| Node::Const(Value::Map(Arc::new(map))))
}

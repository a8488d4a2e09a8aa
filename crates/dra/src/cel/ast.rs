//! The syntax tree, after the expansion of macros.

use super::value::Value;

/// The deepest tree that is compiled: the checker and the evaluator recurse over it.
pub(super) const MAX_DEPTH: u16 = 250;

/// The maximum number of nodes of an expression once its macros are expanded.
pub(super) const MAX_NODES: usize = 100_000;

/// One node, with the number by which the checker finds its type.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) id: usize,
    /// The byte at which errors of this node are reported.
    pub(super) at: usize,
    pub(super) depth: u16,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Const(Value<'static>),
    Ident(String),
    /// `operand.field`, or `has(operand.field)` if `test`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    /// A function, a method or an operator; operators have cel-go's names, such as `_+_`.
    Call {
        target: Option<Box<Expr>>,
        name: String,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Fold(Box<Fold>),
}

/// An element of a list literal: `[a, ?b]`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) value: Expr,
    pub(super) optional: bool,
}

/// An entry of a map literal: `{a: b, ?c: d}`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Expr,
    pub(super) value: Expr,
    pub(super) optional: bool,
}

/// A comprehension, into which the macros expand.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) range: Expr,
    pub(super) iter: String,
    pub(super) iter2: Option<String>,
    pub(super) accu: String,
    pub(super) init: Expr,
    pub(super) cond: Expr,
    pub(super) step: Expr,
    pub(super) result: Expr,
}

impl Expr {
    /// Returns `a.b.c` if the node is an identifier or a chain of selections of one.
    pub(super) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }

    /// Calls `visit` for the children, in the order of evaluation.
    pub(super) fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match &self.kind {
            Kind::Const(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            Kind::List(items) => items.iter().for_each(|item| visit(&item.value)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            Kind::Fold(fold) => {
                for part in [&fold.range, &fold.init, &fold.cond, &fold.step, &fold.result] {
                    visit(part);
                }
            }
        }
    }
}

//! Errors, public and internal.

use std::sync::Arc;

/// Why an expression does not compile. The texts are those of Kubernetes; one about a place in the text shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

/// Why an expression has no verdict for a device. The texts are those of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The evaluation failed, for example with `no such key: model`, or its result is not a boolean.
    #[error("{0}")]
    Failed(String),
    /// The evaluation cost more than [`COST_LIMIT`](super::COST_LIMIT).
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
}

/// A compile error before its position is rendered.
#[derive(Debug)]
pub(super) enum Fail {
    /// The text is not an expression, the types do not fit, or a name is not declared.
    At { at: usize, message: String },
    /// The expression cannot yield a boolean.
    Output(String),
    /// A constant is invalid, such as the pattern of a regular expression.
    Constant(String),
}

impl Fail {
    pub(super) fn at(at: usize, message: impl Into<String>) -> Fail {
        Fail::At { at, message: message.into() }
    }

    pub(super) fn render(self, source: &str) -> CompileError {
        CompileError(match self {
            Fail::At { at, message } => {
                format!("compilation failed: {}", locate(source, at, &message))
            }
            Fail::Output(found) => {
                format!("must evaluate to bool or the unknown type, not {found}")
            }
            Fail::Constant(message) => format!("program instantiation failed: {message}"),
        })
    }
}

/// Formats an error as cel-go does: line and column, the line, and a caret below the column.
fn locate(source: &str, at: usize, message: &str) -> String {
    let before = source.get(..at).unwrap_or(source);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[start..].lines().next().unwrap_or_default();
    let column = before[start..].chars().count();
    let number = before.matches('\n').count() + 1;
    format!(
        "ERROR: <input>:{number}:{}: {message}\n | {line}\n | {}^",
        column + 1,
        ".".repeat(column)
    )
}

/// An error while evaluating. `||` and `&&` absorb all except [`Fault::Cost`].
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Fixed(&'static str),
    Text(Arc<str>),
    /// The function has no overload for the types of the arguments; the caller knows the text.
    Overload,
    Cost,
}

pub(super) const NO_OVERLOAD: Fault = Fault::Fixed("no such overload");

impl Fault {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Fault {
        Fault::Text(text.into())
    }
}

impl From<Fault> for EvalError {
    fn from(fault: Fault) -> EvalError {
        match fault {
            Fault::Fixed(text) => EvalError::Failed(text.to_owned()),
            Fault::Text(text) => EvalError::Failed(text.to_string()),
            Fault::Overload => EvalError::Failed("no such overload".to_owned()),
            Fault::Cost => EvalError::CostLimit,
        }
    }
}

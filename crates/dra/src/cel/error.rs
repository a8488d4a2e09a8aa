//! Errors, public and internal.

use std::sync::Arc;

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The text is not an expression. The message shows where.
    #[error("compilation failed: {0}")]
    Syntax(String),
    /// The types do not fit, or a name is not declared. The message shows where.
    #[error("compilation failed: {0}")]
    Type(String),
    /// The expression cannot yield a boolean.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    Output(String),
    /// A constant is invalid, such as the pattern of a regular expression.
    #[error("program instantiation failed: {0}")]
    Constant(String),
}

/// Why an expression has no verdict for a device. The texts are those of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The evaluation failed, for example with `no such key: model`.
    #[error("{0}")]
    Failed(String),
    /// The result is not a boolean.
    #[error("CEL result of type {found} could not be converted to bool: {reason}")]
    NotBool {
        /// The type of the result.
        found: String,
        /// Why it is not converted.
        reason: String,
    },
    /// The evaluation cost more than [`COST_LIMIT`](super::COST_LIMIT).
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
}

/// A compile error before its position is rendered.
#[derive(Debug)]
pub(super) enum Fail {
    Syntax { at: usize, message: String },
    Type { at: usize, message: String },
    Output(String),
    Constant(String),
}

impl Fail {
    pub(super) fn syntax(at: usize, message: String) -> Fail {
        Fail::Syntax { at, message }
    }

    pub(super) fn render(self, source: &str) -> CompileError {
        match self {
            Fail::Syntax { at, message } => CompileError::Syntax(locate(source, at, &message)),
            Fail::Type { at, message } => CompileError::Type(locate(source, at, &message)),
            Fail::Output(found) => CompileError::Output(found),
            Fail::Constant(message) => CompileError::Constant(message),
        }
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

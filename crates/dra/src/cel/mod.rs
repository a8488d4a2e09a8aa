//! Kubernetes' dialect of CEL, by which device classes and claims select devices.
//!
//! Trade-offs: the parser, the checker and the evaluator are our own, because verdicts, error texts and costs have to be
//! those of kube-scheduler. The crates with a CEL evaluator compute no costs, and either lack a type checker or accept
//! `1 == 1.0`, which Kubernetes refuses. Regular expressions, time zones and quantities are not our own.
//!
//! # How it works
//!
//! An expression is parsed, and macros become comprehensions on the way; the checker finds the type of every
//! node, and the planner makes the nodes that are evaluated. An evaluation borrows from the program and the device, and
//! allocates only for new values: reading an attribute and comparing it with a constant takes well under a microsecond.
//!
//! # Differences from Kubernetes
//!
//! - Expressions nest up to 100 brackets and 250 levels of the tree; cel-go counts the rules of its grammar.
//! - Message literals (`Type{field: 1}`) are refused.
//! - The entries of a map are visited in an order of their own: Kubernetes visits them at random.
//! - Lists of more than 131,072 items and strings of more than 10 MB exceed the cost limit, and so does an evaluation
//!   that does more than twice as much work as the limit, of which CEL does not charge all ([`Evaluation::work`]). The
//!   time and the memory of an evaluation are bounded by that.
//! - Quantities keep billionths up to about 1.7 × 10^29, as [`Quantity`](portolan::model::Quantity) does.
//! - Attributes that are lists (a feature that is off by default) do not exist.
//!
//! # Example
//!
//! ```
//! use portolan_dra::cel::{Attribute, Device, Program};
//!
//! let program = Program::compile(r#"device.attributes["gpu.example.com"].model == "a100""#)?;
//! let device = Device::new("gpu.example.com").attribute("model", Attribute::String("a100"));
//! assert_eq!(program.matches(&device), Ok(true));
//!
//! let bare = Device::new("gpu.example.com");
//! assert_eq!(program.matches(&bare).unwrap_err().to_string(), "no such key: model");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amount;
mod ast;
mod check;
mod cost;
mod device;
mod error;
mod eval;
mod format;
mod functions;
mod lexer;
mod macros;
mod net;
mod parser;
mod plan;
mod regex;
mod time;
mod types;
mod url;
mod value;
mod version;

pub use device::{Attribute, Device};
pub use error::{CompileError, EvalError};
pub use version::{Version, VersionError};

use plan::Node;
use value::Value;

/// What one evaluation may cost (`resourceapi.CELSelectorExpressionMaxCost`). The API server also refuses an expression
/// whose estimate exceeds it. A scheduler gets only expressions that were accepted, so nothing is estimated here.
pub const COST_LIMIT: u64 = 1_000_000;

/// A compiled expression, which is evaluated for any number of devices.
#[derive(Debug)]
pub struct Program {
    root: Node,
    slots: usize,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the device matches, or why that is unknown.
    pub result: Result<bool, EvalError>,
    /// What the evaluation cost, in CEL's units.
    pub cost: u64,
    /// What the evaluation did: nodes evaluated, values read or copied, and text in units of 8 bytes. At most about twice
    /// [`COST_LIMIT`].
    pub work: u64,
}

impl Program {
    /// Compiles an expression that yields a boolean or an attribute. O(length) but for the types of nested calls.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is malformed, its types do not fit, or a constant in it is invalid.
    pub fn compile(expression: &str) -> Result<Program, CompileError> {
        let compile = || {
            let checked = check::check(parser::parse(expression)?)?;
            let (root, slots) = plan::plan(&checked)?;
            Ok(Program { root, slots })
        };
        compile().map_err(|fail: error::Fail| fail.render(expression))
    }

    /// Returns whether the device matches.
    ///
    /// # Errors
    ///
    /// Returns an error if the evaluation fails, its result is not a boolean, or it costs more than [`COST_LIMIT`].
    pub fn matches(&self, device: &Device<'_>) -> Result<bool, EvalError> {
        self.evaluate(device).result
    }

    /// Returns whether the device matches, and what the evaluation cost.
    #[must_use]
    pub fn evaluate(&self, device: &Device<'_>) -> Evaluation {
        let (result, cost, work) = eval::run(&self.root, self.slots, device, COST_LIMIT);
        Evaluation { result: result.map_err(EvalError::from).and_then(boolean), cost, work }
    }
}

/// Converts the result of an expression, with the texts of cel-go for what is not a boolean.
fn boolean(value: Value<'_>) -> Result<bool, EvalError> {
    let reason = match &value {
        Value::Bool(value) => return Ok(*value),
        Value::Optional(Some(inner)) => return boolean((**inner).clone()),
        Value::Int(_) | Value::Uint(_) => {
            format!("unsupported type conversion from '{}' to bool", value.type_name())
        }
        Value::Str(_) => "unsupported native conversion from string to 'bool'".to_owned(),
        Value::Double(_) => "type conversion error from Double to 'bool'".to_owned(),
        Value::Bytes(_) => "type conversion error from Bytes to 'bool'".to_owned(),
        Value::Null => "type conversion error from 'null_type' to 'bool'".to_owned(),
        Value::Optional(None) => "optional.none() dereference".to_owned(),
        Value::List(_) => "type conversion error from list to 'bool'".to_owned(),
        Value::Type(_) => "type conversion not supported for 'type'".to_owned(),
        Value::Duration(_) => "type conversion error from 'Duration' to 'bool'".to_owned(),
        Value::Timestamp(_) => "type conversion error from 'Timestamp' to 'bool'".to_owned(),
        Value::Quantity(_) => "type conversion error from 'Quantity' to 'bool'".to_owned(),
        Value::Version(_) => "type conversion error from 'Semver' to 'bool'".to_owned(),
        Value::Ip(_) => "type conversion error from 'IP' to 'bool'".to_owned(),
        Value::Cidr(_) => "type conversion error from 'CIDR' to 'bool'".to_owned(),
        Value::Url(_) => "type conversion error from 'URL' to 'bool'".to_owned(),
        Value::Format(_) => "type conversion error from 'Format' to 'bool'".to_owned(),
        Value::Map(_) | Value::Device(_) | Value::Domains(..) | Value::Domain(..) => {
            "type conversion error from map to 'bool'".to_owned()
        }
    };
    Err(EvalError::NotBool { found: value.type_name().to_owned(), reason })
}

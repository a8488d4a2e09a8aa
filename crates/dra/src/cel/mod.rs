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
//! use portolan_dra::cel::Program;
//! use portolan_dra::model::{Attribute, Device};
//!
//! let program = Program::compile(r#"device.attributes["gpu.example.com"].model == "a100""#)?;
//! let mut device = Device::default();
//! let missing = program.matches("gpu.example.com", &device).unwrap_err();
//! assert_eq!(missing.to_string(), "no such key: model");
//!
//! device.attributes.insert("model".into(), Attribute::String("a100".into()));
//! assert_eq!(program.matches("gpu.example.com", &device), Ok(true));
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

pub use error::{CompileError, EvalError};

use crate::model::Device;

use device::Given;
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

    /// Returns whether the device of a driver matches.
    ///
    /// # Errors
    ///
    /// Returns an error if the evaluation fails, its result is not a boolean, or it costs more than [`COST_LIMIT`].
    pub fn matches(&self, driver: &str, device: &Device) -> Result<bool, EvalError> {
        self.evaluate(driver, device).result
    }

    /// Returns whether the device of a driver matches, and what the evaluation cost.
    #[must_use]
    pub fn evaluate(&self, driver: &str, device: &Device) -> Evaluation {
        let given = Given { driver, device };
        if let Err(fault) = given.check() {
            return Evaluation { result: Err(fault.into()), cost: 0, work: 0 };
        }
        let (result, cost, work) = eval::run(&self.root, self.slots, &given, COST_LIMIT);
        Evaluation { result: result.map_err(EvalError::from).and_then(boolean), cost, work }
    }
}

/// Converts the result of an expression, with the texts of cel-go for what is not a boolean.
fn boolean(value: Value<'_>) -> Result<bool, EvalError> {
    let found = value.type_name();
    let reason = match &value {
        Value::Bool(value) => return Ok(*value),
        Value::Optional(Some(inner)) => return boolean((**inner).clone()),
        Value::Optional(None) => "optional.none() dereference".to_owned(),
        Value::Int(_) | Value::Uint(_) => {
            format!("unsupported type conversion from '{found}' to bool")
        }
        Value::Str(_) => "unsupported native conversion from string to 'bool'".to_owned(),
        Value::Type(_) => "type conversion not supported for 'type'".to_owned(),
        other => {
            let name = match other {
                Value::Double(_) => "Double",
                Value::Bytes(_) => "Bytes",
                Value::Null => "'null_type'",
                Value::List(_) => "list",
                Value::Duration(_) => "'Duration'",
                Value::Timestamp(_) => "'Timestamp'",
                Value::Quantity(_) => "'Quantity'",
                Value::Version(_) => "'Semver'",
                Value::Ip(_) => "'IP'",
                Value::Cidr(_) => "'CIDR'",
                Value::Url(_) => "'URL'",
                Value::Format(_) => "'Format'",
                _ => "map",
            };
            format!("type conversion error from {name} to 'bool'")
        }
    };
    let reason = format!("CEL result of type {found} could not be converted to bool: {reason}");
    Err(EvalError::Failed(reason))
}

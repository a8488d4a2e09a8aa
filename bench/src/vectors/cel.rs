//! Vectors of selectors: the verdicts, errors and costs of CEL expressions on devices.

use portolan_dra::cel::Program;
use portolan_dra::model::Device;
use serde::Deserialize;
use serde_json::Value;

use super::Tally;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expression {
    driver: String,
    expression: String,
    compile_error: Option<String>,
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    device: usize,
    result: Option<bool>,
    error: Option<String>,
    cost: Option<u64>,
}

/// Reads the devices of a line, on which the expressions after it are evaluated.
pub(super) fn devices(line: &Value) -> Result<Vec<Device>, String> {
    Vec::deserialize(&line["devices"]).map_err(|error| format!("devices: {error}"))
}

/// Evaluates the expression of a line on the devices of the tally.
pub(super) fn run(line: &Value, tally: &mut Tally) -> Result<(), String> {
    let line = Expression::deserialize(line).map_err(|error| error.to_string())?;
    let expression = &line.expression;
    let program = match (Program::compile(expression), line.compile_error) {
        (Ok(program), None) => program,
        (compiled, expected) => {
            let differences = match (compiled, expected) {
                (Err(_), Some(_)) => Vec::new(),
                (Err(error), _) => vec![format!("expected a program, found: {error}")],
                (Ok(_), error) => vec![format!("expected {error:?}, found a program")],
            };
            tally.case(expression, &differences);
            return Ok(());
        }
    };
    for case in &line.cases {
        let number = case.device;
        let device = tally.devices.get(number).ok_or_else(|| format!("no device {number}"))?;
        let found = program.evaluate(&line.driver, device);
        let result = found.result.map_err(|error| error.to_string());
        let expected = match (case.result, &case.error) {
            (Some(result), None) => Ok(result),
            (_, error) => Err(error.clone().unwrap_or_default()),
        };
        let mut differences = Vec::new();
        if result != expected {
            differences.push(format!("expected {expected:?}, found {result:?}"));
        }
        if let Some(cost) = case.cost.filter(|cost| *cost != found.cost) {
            differences.push(format!("cost: expected {cost}, found {}", found.cost));
        }
        tally.case(&format!("{expression} on device {number}"), &differences);
    }
    Ok(())
}

//! Vectors of selectors: the verdicts, errors and costs of CEL expressions on devices.

use std::collections::BTreeMap;

use portolan::model::Quantity;
use portolan_dra::cel::{Attribute, Device, Program, Version};
use serde::Deserialize;
use serde_json::Value;

use super::Tally;

/// The devices that the expressions after them are evaluated on.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    #[serde(default)]
    attributes: BTreeMap<String, AttributeValue>,
    #[serde(default)]
    capacity: BTreeMap<String, Capacity>,
    #[serde(default)]
    allow_multiple_allocations: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum AttributeValue {
    Bool(bool),
    Int(i64),
    String(String),
    Version(String),
}

#[derive(Deserialize)]
struct Capacity {
    value: String,
}

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

/// Reads the devices of a line.
pub(super) fn devices(line: &Value) -> Result<Vec<Input>, String> {
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
        let input = tally.devices.get(number).ok_or_else(|| format!("no device {number}"))?;
        let versions = versions(input)?;
        let found = program.evaluate(&device(&line.driver, input, &versions)?);
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

fn versions(input: &Input) -> Result<BTreeMap<&str, Version>, String> {
    let mut versions = BTreeMap::new();
    for (name, value) in &input.attributes {
        if let AttributeValue::Version(text) = value {
            let version = text.parse().map_err(|error| format!("version {text:?}: {error}"))?;
            versions.insert(&**name, version);
        }
    }
    Ok(versions)
}

fn device<'a>(
    driver: &'a str,
    input: &'a Input,
    versions: &'a BTreeMap<&str, Version>,
) -> Result<Device<'a>, String> {
    let mut device =
        Device::new(driver).allow_multiple_allocations(input.allow_multiple_allocations);
    for (name, value) in &input.attributes {
        let value = match value {
            AttributeValue::Bool(value) => Attribute::Bool(*value),
            AttributeValue::Int(value) => Attribute::Int(*value),
            AttributeValue::String(value) => Attribute::String(value),
            AttributeValue::Version(_) => Attribute::Version(&versions[&**name]),
        };
        device = device.attribute(name, value);
    }
    for (name, Capacity { value }) in &input.capacity {
        let quantity = value.parse::<Quantity>();
        let quantity = quantity.map_err(|error| format!("capacity {value:?}: {error}"))?;
        device = device.capacity(name, quantity);
    }
    Ok(device)
}

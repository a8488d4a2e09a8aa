//! `--feature-gates`: each gate must have the value that portolan implements.

use portolan_kube::feature_gates::FEATURE_GATES;

use crate::error::CommandError;

/// The gate that changes only how kube-scheduler sends its writes. Both values are accepted.
const WITHOUT_EFFECT: &str = "SchedulerAsyncAPICalls";

/// Checks gates as `--feature-gates` gives them, such as `SchedulerQueueingHints=true`.
pub(super) fn check(gates: &[String]) -> Result<(), CommandError> {
    for gate in gates.iter().map(|gate| gate.trim()).filter(|gate| !gate.is_empty()) {
        let wrong =
            |what: String| Err(CommandError::Usage(format!("--feature-gates {gate}: {what}")));
        let Some((name, value)) = gate.split_once('=') else {
            return wrong("write NAME=true or NAME=false".to_owned());
        };
        let value = match value.trim() {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
            "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
            other => return wrong(format!("{other:?} is neither true nor false")),
        };
        if let Some(why) = unimplemented(name.trim(), value) {
            return wrong(why);
        }
    }
    Ok(())
}

/// Returns why portolan does not implement this value of a gate, or `None` if it does.
fn unimplemented(name: &str, value: bool) -> Option<String> {
    match FEATURE_GATES.iter().find(|gate| gate.name == name) {
        None => {
            let known: Vec<&str> = FEATURE_GATES.iter().map(|gate| gate.name).collect();
            Some(format!("unknown feature gate {name}; known are {}", known.join(", ")))
        }
        Some(gate) if gate.is_enabled != value && name != WITHOUT_EFFECT => {
            Some(format!("portolan supports only {name}={}", gate.is_enabled))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_must_be_known_and_have_the_value_that_is_implemented() {
        let check = |gates: &[&str]| {
            let gates: Vec<String> = gates.iter().map(|gate| (*gate).to_owned()).collect();
            check(&gates).map_err(|failure| failure.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["SchedulerQueueingHints=true", " GenericWorkload=false", ""]), Ok(()));
        assert_eq!(
            check(&["SchedulerAsyncAPICalls=true"]),
            check(&["SchedulerAsyncAPICalls=false"])
        );
        for (gate, what) in [
            ("GenericWorkload=true", "supports only GenericWorkload=false"),
            ("SchedulerQueueingHints=false", "supports only SchedulerQueueingHints=true"),
            ("Nonesuch=true", "unknown feature gate"),
            ("SchedulerQueueingHints", "NAME=true"),
            ("SchedulerQueueingHints=yes", "neither true nor false"),
        ] {
            let error = check(&["PodLevelResources=true", gate]).expect_err(gate);
            assert!(error.contains(gate) && error.contains(what), "{error}");
        }
    }
}

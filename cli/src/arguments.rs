//! The parts that all commands share: kubectl's short flags, and help about the exit status.
//!
//! Options are declared by their commands. This module adds the rest to the tree of commands, so that an option has the
//! same short flag everywhere.

use std::str::FromStr;

use clap::{Arg, Command};

/// kubectl's short flags, by the long option.
const SHORT: [(&str, char); 4] =
    [("output", 'o'), ("cluster", 'f'), ("namespace", 'n'), ("selector", 'l')];

/// Other names of options, such as kubectl's, in the commands that have no option of that name.
const ALIASES: [(&str, &str); 2] = [("cluster", "filename"), ("nodes", "cluster")];

/// When each command ends with status 0 and 1. Status 2 means the same everywhere.
const STATUS: &[(&str, &str, Option<&str>)] = &[
    ("replay", "the workload was replayed, whether or not all pods were placed", None),
    ("explain", "the report was printed, whether or not the pod or pending pods fit", None),
    (
        "compare",
        "all configurations stay within the limits",
        Some("a configuration exceeds --max-unschedulable"),
    ),
    (
        "what-if",
        "the change leaves every pod on a node",
        Some("a pod is left without a node, is lost, or blocks a drain"),
    ),
    ("dump", "the result was printed", None),
    (
        "audit",
        "no finding has the severity of --fail-on or a higher one",
        Some("a finding has such a severity"),
    ),
    (
        "run",
        "the scheduler was stopped by a signal",
        Some("the lease was lost, or a part of the scheduler failed"),
    ),
    (
        "shadow",
        "each decision agrees or is explained",
        Some("a decision is unexplained, or pods were bound and none could be compared"),
    ),
    ("extender", "the server was stopped by a signal", None),
    (
        "demo",
        "each pod was bound once, and nothing grew",
        Some("a pod was bound twice or lost, or memory or a queue grew"),
    ),
    ("serve", "the server was stopped by a signal", None),
    ("completions", "the script was printed", None),
    ("man", "the pages were written", None),
];

const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nfeatures: ",
    env!("PORTOLAN_FEATURES"),
    "\ntarget: ",
    env!("PORTOLAN_TARGET"),
);

/// Adds short flags, exit statuses and the long version to the commands.
pub fn complete(command: Command) -> Command {
    under(command.long_version(VERSION), "")
}

fn under(command: Command, parent: &str) -> Command {
    let taken: Vec<char> = command.get_arguments().filter_map(Arg::get_short).collect();
    let longs = command.get_arguments().filter_map(Arg::get_long).map(str::to_owned);
    let longs: Vec<String> = longs.collect();
    let command = command.mut_args(|arg| with_negative(with_short(arg, &taken, &longs)));
    command.mut_subcommands(|command| {
        let path = format!("{parent} {}", command.get_name()).trim_start().to_owned();
        let command = under(command, &path);
        match STATUS.iter().find(|(name, ..)| *name == path) {
            Some((_, yes, no)) => command.after_help(status(yes, *no)),
            None => command,
        }
    })
}

fn with_short(arg: Arg, taken: &[char], longs: &[String]) -> Arg {
    let Some(long) = arg.get_long().map(str::to_owned) else { return arg };
    let arg = match ALIASES.iter().find(|(name, _)| *name == long) {
        Some((_, alias)) if !longs.iter().any(|it| it == alias) => arg.visible_alias(*alias),
        _ => arg,
    };
    match SHORT.iter().find(|(name, _)| *name == long) {
        Some((_, short)) if !taken.contains(short) => arg.short(*short),
        _ => arg,
    }
}

/// Lets the parser of a value refuse a negative number, instead of an unknown flag -1.
fn with_negative(arg: Arg) -> Arg {
    let takes_values = arg.get_action().takes_values();
    arg.allow_negative_numbers(takes_values)
}

fn status(yes: &str, no: Option<&str>) -> String {
    let mut text = format!("Exit status:\n  0  {yes}\n");
    if let Some(no) = no {
        text += &format!("  1  {no}\n");
    }
    text + "  2  an argument or an input is invalid, or the command failed"
}

/// Parses a number of at least 1, such as a `NonZeroUsize`.
pub fn at_least_one<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "pass a whole number of at least 1".to_owned())
}

/// Parses a time limit.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "pass a number of seconds from 0 to 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn leaves<'a>(command: &'a Command, path: &str, found: &mut Vec<(String, &'a Command)>) {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
            match below.has_subcommands() {
                true => leaves(below, &path, found),
                false => found.push((path, below)),
            }
        }
    }

    #[test]
    fn every_command_documents_its_exit_status() {
        let command = complete(crate::Arguments::command());
        let mut found = Vec::new();
        leaves(&command, "", &mut found);
        assert!(found.len() >= 12, "{}", found.len());
        for (path, command) in &found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Exit status:\n  0  "), "{path}: {help}");
        }
        for (path, ..) in STATUS {
            assert!(found.iter().any(|(name, _)| name == path), "{path} does not exist");
        }
    }

    #[test]
    fn options_have_the_same_short_flag_everywhere() {
        let command = complete(crate::Arguments::command());
        let mut found = Vec::new();
        leaves(&command, "", &mut found);
        for (path, command) in found {
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                if let Some((_, short)) = SHORT.iter().find(|(name, _)| *name == long) {
                    assert_eq!(arg.get_short(), Some(*short), "{path} --{long}");
                }
            }
        }
        // clap's own checks: no flag is declared twice.
        complete(crate::Arguments::command()).debug_assert();
    }
}

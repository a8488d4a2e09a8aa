//! `portolan audit`: finds conflicts, violated rules and dangling references in a cluster, and checks the engine's sums
//! and indexes.

mod devices;
mod finding;
mod godel;
mod nodes;
mod placement;
mod references;
mod storage;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::ValueEnum;
use portolan::model::{Pod, Timestamp};
use portolan::plugin::Handle;
use portolan_dra::plugin::DryRunBackend;
use serde_json::{Value, json};

use crate::cluster::{self, Input, Loaded};
use crate::error::CommandError;
use crate::html::{self, HtmlFile, Page, View};
#[cfg(feature = "cluster")]
use crate::policy;
use crate::policy::{ConfigFile, Policies};
use crate::table::{plain, row};
use crate::text::{count, line};
use crate::{Output, print, terminal};

use finding::{Finding, Findings, Severity};
use nodes::Placed;
use placement::Rules;

/// Find conflicts, violated rules and dangling references in a cluster, and check the engine's sums and indexes.
///
/// Each finding has a severity, an object, a problem and a remedy. docs/cli.md lists their kinds.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    #[command(flatten)]
    config: ConfigFile,
    /// End with status 1 if a finding has this severity or a higher one.
    #[arg(long, value_enum, default_value_t = Threshold::Error, value_name = "SEVERITY")]
    fail_on: Threshold,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    html: HtmlFile,
    #[command(flatten)]
    godel: cluster::Godel,
}

const VIEW: View = View { id: "audit", module: "findings.js", name: "Audit" };

/// The lowest severity that is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Threshold {
    Error,
    Warning,
    Info,
    /// No severity.
    Never,
}

impl Threshold {
    fn is_reached_by(self, severity: Severity) -> bool {
        match self {
            Threshold::Error => severity >= Severity::Error,
            Threshold::Warning => severity >= Severity::Warning,
            Threshold::Info => severity >= Severity::Info,
            Threshold::Never => false,
        }
    }
}

/// The result, before it is printed.
struct Audit {
    findings: Findings,
    loaded: Loaded,
    pods: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let policies =
        arguments.config.source().policies(&Handle::default(), Arc::new(DryRunBackend))?;
    arguments.html.check()?;
    let input = cluster::read_alone(&arguments.from, &arguments.godel)?;
    let now = arguments.from.is_live().then(|| Timestamp::from(SystemTime::now()));
    let bar = terminal::progress("auditing", 0, terminal::Of::Items("nodes"));
    let audit = examine(input, policies, &arguments.godel, now)?;
    drop(bar);
    arguments.html.write(arguments.html.is_wanted().then(|| Page {
        headline: summary(&audit),
        view: VIEW,
        question: Value::Null,
        answers: vec![(html::asked("audit"), json(&audit).to_string())],
    }))?;
    print(&match arguments.output {
        Output::Table => table(&audit),
        Output::Json => json(&audit).to_string(),
    })?;
    if arguments.output == Output::Table {
        audit.loaded.contents.intake.print();
    }
    let mut severities = Severity::ALL.into_iter().filter(|it| audit.findings.count(*it) > 0);
    let fails = severities.any(|severity| arguments.fail_on.is_reached_by(severity));
    Ok(ExitCode::from(u8::from(fails)))
}

/// Examines a cluster at an unknown time, for programs.
#[cfg(feature = "cluster")]
pub(crate) fn examined(
    input: Input,
    config: &policy::Text,
    godel: &cluster::Godel,
) -> Result<String, CommandError> {
    let policies = config.policies(&Handle::default(), Arc::new(DryRunBackend))?;
    Ok(json(&examine(input, policies, godel, None)?).to_string())
}

/// Examines a cluster. `now` is the time of its objects, if it is known.
fn examine(
    mut input: Input,
    policies: Policies,
    godel: &cluster::Godel,
    now: Option<Timestamp>,
) -> Result<Audit, CommandError> {
    let mut findings = Findings::default();
    input.contents.notes.extend(policies.notes.iter().cloned());
    let rules = Rules::new(policies, godel);
    references::take_duplicates(&mut input, &mut findings);
    references::check(&input, &mut findings);
    references::check_terminating(input.objects(), now, &mut findings);
    let pods: Vec<Pod> = input.objects().pods.clone();
    storage::check_budgets(input.contents.budget_limits(), &pods, &mut findings);
    let loaded = input.load(godel, Vec::new())?;
    let cluster = &*loaded.cluster;
    let placed = pods.iter().filter_map(|pod| Some((pod, cluster.pod(&pod.uid)?)));
    let placed: Vec<Placed<'_>> = placed.collect();
    nodes::check(cluster, &placed, godel.is_enabled(), &mut findings);
    devices::check(cluster, loaded.contents.devices(), &pods, &mut findings);
    storage::check_claims(cluster, &pods, &mut findings);
    storage::check_volumes(cluster, &placed, &mut findings)?;
    rules.check(cluster, &placed, &mut findings);
    if !godel.is_enabled() {
        rules.check_profiles(&loaded.pending, &mut findings);
    }
    godel::check(cluster, &loaded.pending, &mut findings);
    for difference in cluster.audit() {
        let problem = format!("found {}, expected {}", difference.found, difference.expected);
        findings.add(finding::Kind::Engine, difference.place, problem);
    }
    drop(placed);
    Ok(Audit { findings, pods: pods.len(), loaded })
}

/// The numbers of findings by severity, nodes and pods.
fn summary(audit: &Audit) -> String {
    let nodes = count(audit.loaded.cluster.len(), "node");
    let found = Severity::ALL.map(|severity| (audit.findings.count(severity), severity.as_str()));
    let found = found.into_iter().filter(|(number, _)| *number > 0);
    let found: Vec<String> = found.map(|(number, noun)| count(number, noun)).collect();
    let found = if found.is_empty() { "no problems found".to_owned() } else { found.join(", ") };
    format!("{found} ({nodes}, {})", count(audit.pods, "pod"))
}

fn table(audit: &Audit) -> String {
    let mut text = summary(audit);
    let findings = audit.findings.sorted();
    if !findings.is_empty() {
        let mut table = plain(["severity", "object", "problem", "remedy"]);
        for finding in findings {
            let Finding { kind, problem, .. } = finding;
            table.add_row(row([
                kind.severity().as_str(),
                &finding.object(),
                problem,
                kind.remedy(),
            ]));
        }
        text = format!("{text}\n\n{}", table.trim_fmt());
    }
    for note in &audit.loaded.contents.notes {
        text.push_str("\nnote: ");
        text.push_str(&line(note));
    }
    text
}

/// The version of the JSON output: it increases when a field changes its meaning or is removed.
const VERSION: u32 = 1;

fn json(audit: &Audit) -> Value {
    let findings = audit.findings.sorted();
    let found = findings.iter().map(|finding| {
        json!({
            "severity": finding.kind.severity().as_str(),
            "kind": finding.kind.as_str(),
            "object": finding.object(),
            "problem": finding.problem,
            "remedy": finding.kind.remedy(),
            "pods": finding.pods,
            "nodes": finding.nodes,
        })
    });
    json!({
        "version": VERSION,
        "summary": summary(audit),
        "errors": audit.findings.count(Severity::Error),
        "warnings": audit.findings.count(Severity::Warning),
        "infos": audit.findings.count(Severity::Info),
        "nodes": audit.loaded.cluster.len(),
        "pods": audit.pods,
        "findings": found.collect::<Vec<_>>(),
        "notes": audit.loaded.contents.notes,
        "input": audit.loaded.contents.intake.json(),
    })
}

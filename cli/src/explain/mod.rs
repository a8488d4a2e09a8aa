//! `portolan explain`: why a pod is pending, or how its nodes score; or why all pending pods are.

mod changes;
mod claims;
mod devices;
mod edit;
mod evictions;
mod export;
mod labels;
mod pending;
mod propose;
mod report;
mod requests;
mod schedulers;
mod subject;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use portolan::cache::{Config, Engine, Fork};
use portolan::model::{Name, Pod};
use portolan::plugin::preemption::DryRun;
use portolan::plugin::{Cycle, CycleState, Evaluation, Nomination};
use serde_json::{Value, json};

use crate::cluster::{Contents, Loaded};
use crate::error::CommandError;
use crate::html::{self, HtmlFile, Page, View};
use crate::intake::Intake;
use crate::names::did_you_mean;
use crate::policy::{ConfigFile, Rules};
use crate::simulation::closed;
use crate::text::line;
use crate::{arguments, cluster, creation, input, print};

use changes::Changes;
pub(crate) use export::verdict;
pub(crate) use schedulers::Unchanging;
use schedulers::{Schedulers, Why};
use subject::Subject;
use trial::{RejectedNodes, Trial};

/// Show why each node rejects a pod, by how much, and which changes would help.
///
/// If the pod fits, show the best nodes with their scores. With --pending, show all pending pods by controller and
/// cause.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Pod of the cluster; a controller, such as deploy/web, whose pending pod or next replica is evaluated; or a file
    /// with a pod (- for standard input). A placed pod is evaluated as if it were pending.
    #[arg(long, value_name = "NAMESPACE/NAME|KIND/NAME|FILE", required_unless_present = "pending")]
    pod: Option<String>,
    /// Show all pending pods instead, by controller and cause. Each is evaluated without the others.
    #[arg(long, conflicts_with_all = ["pod", "node", "time_limit"])]
    pending: bool,
    /// Namespace of the pod or of its controller, if --pod is only a name (default: the namespace default for a pod,
    /// all namespaces for a controller), or of the pending pods.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Report on this node only.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Time limit for trying evictions, alternative nodes and pairs of changes, in seconds.
    ///
    /// Pairs are tried if no single change helps.
    #[arg(
        long,
        alias = "budget",
        value_name = "SECONDS",
        default_value_t = 0.2,
        value_parser = arguments::seconds,
    )]
    time_limit: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[command(flatten)]
    html: HtmlFile,
    #[command(flatten)]
    godel: cluster::Godel,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Tables for people: nodes by reason.
    Table,
    /// One JSON object with every node and plugin.
    Json,
    /// A CSV row for each node and plugin, or for each group of pending pods.
    Csv,
}

/// The result, before it is printed.
struct Explained<'a> {
    trial: Trial<'a>,
    /// The node of a pod that is placed.
    placed: Option<Placed>,
    /// Why the pod is not created, or never runs on the node that it names.
    never_runs: Option<String>,
    /// Why the pod is not scheduled now.
    why: Option<Why>,
    preemption: Option<Preemption>,
    evaluation: Evaluation,
    /// By their statuses.
    rejected: Vec<RejectedNodes<'a>>,
    changes: Changes,
    /// Further facts that explain the reasons.
    facts: Vec<String>,
    notes: Vec<String>,
    intake: &'a Intake,
}

/// The node of a pod.
struct Placed {
    node: Name,
    has_started: bool,
    is_deleting: bool,
}

/// The preemption that the scheduler would start for the pod.
struct Preemption {
    node: Name,
    victims: Vec<Pod>,
    /// The number of victims whose eviction violates a disruption budget.
    violations: usize,
}

/// The prefix of reasons for an insufficient resource.
const INSUFFICIENT: &str = "Insufficient ";

/// What is asked about a cluster, besides the pod.
#[derive(Clone, Copy)]
pub(crate) struct Inquiry<'a> {
    pub(crate) rules: &'a Rules,
    /// The namespace of the pod or of its controller, or of the pending pods.
    pub(crate) namespace: Option<&'a str>,
    /// The only node to report on.
    pub(crate) node: Option<&'a str>,
    /// The time for trying evictions, alternative nodes and pairs of changes.
    pub(crate) time: Duration,
    pub(crate) form: Form,
    /// Whether the answer is recorded for a page, too.
    pub(crate) records: bool,
}

/// The result of an inquiry.
pub(crate) struct Report {
    /// The report in the form that was asked for.
    pub(crate) text: String,
    record: Option<Record>,
}

/// An answer for a page.
struct Record {
    headline: String,
    /// The answer in JSON.
    json: String,
    /// The pods that are worth an explanation.
    pods: Vec<String>,
}

/// The most pending pods that a page explains: each takes the time of an explanation.
const MOST_EXPLAINED: usize = 10;

const EXPLANATION: View = View { id: "explain", module: "pod.js", name: "Explanation" };

const PENDING: View = View { id: "pending", module: "pending.js", name: "Pending pods" };

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    arguments.html.check()?;
    let asked = arguments.pod.as_deref().unwrap_or_default();
    let file = Some(PathBuf::from(asked))
        .filter(|file| !arguments.pending && (file.is_file() || input::is_standard_input(file)));
    let files: Vec<PathBuf> = file.iter().cloned().collect();
    let (mut input, mut added) = cluster::read_with(&arguments.from, &arguments.godel, &files)?;
    let config = Arc::new(arguments.config.source().read()?);
    let rules = Rules { config, godel: Arc::new(arguments.godel.clone()), seed: 1 };
    let inquiry = Inquiry {
        rules: &rules,
        namespace: arguments.namespace.as_deref(),
        node: arguments.node.as_deref(),
        time: Duration::from_secs_f64(arguments.time_limit),
        form: arguments.output,
        records: arguments.html.is_wanted(),
    };
    let warned = input.contents.intake.clone();
    // They may be the cause of an error.
    let warn = |_: &CommandError| warned.print_warnings();
    let of_file = file.map(|file| subject::of_file(&file, &mut input, &mut added));
    let of_file = of_file.transpose().inspect_err(warn)?;
    let mut loaded = input.load(&arguments.godel, added.objects)?;
    loaded.create_claims()?;
    let Report { text, record } = match of_file {
        _ if arguments.pending => inquiry.pending(&loaded)?,
        Some(subject) => inquiry.of(subject, true, &loaded)?,
        None => inquiry.named(asked, &loaded).inspect_err(warn)?,
    };
    arguments.html.write(record.map(|record| match arguments.pending {
        true => inquiry.page_of_pending(record, &loaded),
        false => page_of_pod(record),
    }))?;
    print(&text)?;
    if arguments.output != Form::Json {
        loaded.contents.intake.print();
    }
    Ok(ExitCode::SUCCESS)
}

fn page_of_pod(Record { headline, json, mut pods }: Record) -> Page {
    let question = json!({ "pod": pods.pop() });
    let answers = vec![(html::posted("explain", &question), json)];
    Page { headline, view: EXPLANATION, question, answers }
}

fn refusal(why: &str) -> String {
    format!("the API server refuses to create the pod: {why}")
}

impl Inquiry<'_> {
    /// Reports on the pod of the cluster, or of the controller, with this name.
    pub(crate) fn named(self, asked: &str, loaded: &Loaded) -> Result<Report, CommandError> {
        let (mut contents, mut added) = (loaded.contents.clone(), cluster::Added::default());
        let to = (&mut contents, &mut added);
        let subject = subject::named(asked, self.namespace, loaded, to)?;
        self.of(subject, false, &loaded.beside(contents, added.objects)?)
    }

    /// Reports on all pending pods.
    pub(crate) fn pending(self, loaded: &Loaded) -> Result<Report, CommandError> {
        pending::report(self, loaded)
    }

    /// The page of all pending pods, with explanations of the largest groups.
    fn page_of_pending(self, record: Record, loaded: &Loaded) -> Page {
        let Record { headline, json, pods } = record;
        let inquiry = Inquiry { form: Form::Json, records: false, namespace: None, ..self };
        let mut answers = vec![(html::asked("pending"), json)];
        // A pod without an explanation has no link.
        answers.extend(pods.into_iter().take(MOST_EXPLAINED).filter_map(|pod| {
            let explained = inquiry.named(&pod, loaded).ok()?;
            Some((html::posted("explain", &json!({ "pod": pod })), explained.text))
        }));
        Page { headline, view: PENDING, question: Value::Null, answers }
    }

    /// The report: its text in each form, and its first line.
    fn report(
        self,
        pods: impl FnOnce() -> Vec<String>,
        text: impl Fn(Form) -> Result<String, CommandError>,
        headline: impl FnOnce() -> String,
    ) -> Result<Report, CommandError> {
        let record = self.records.then(|| {
            Ok::<_, CommandError>(Record {
                headline: headline(),
                json: text(Form::Json)?,
                pods: pods(),
            })
        });
        Ok(Report { text: text(self.form)?, record: record.transpose()? })
    }

    /// Reports on a pod, which is yet to be created if it is of a file.
    fn of(
        self,
        subject: Subject,
        is_of_file: bool,
        loaded: &Loaded,
    ) -> Result<Report, CommandError> {
        let (pod, requests) = match subject {
            Subject::Finished(pod, phase) => return self.finished(&pod, &phase, loaded),
            Subject::Pod(pod, requests) => (*pod, requests),
        };
        let contents = &loaded.contents;
        // Pods that a controller lacks are yet to be created, unless a session has placed them.
        let is_lacking = !loaded.has(&pod.uid) || contents.created().contains(&pod.uid);
        let is_placed = loaded.cluster.pod(&pod.uid).is_some();
        let is_new = is_of_file || (is_lacking && !is_placed);
        let refused = is_new.then(|| contents.admission().clone().admit(&pod).err()).flatten();
        self.explain(pod, requests.as_ref(), refused, loaded)
    }

    /// Reports on a pod that has finished.
    fn finished(self, pod: &str, phase: &Name, loaded: &Loaded) -> Result<Report, CommandError> {
        let why = format!("has finished ({phase}): it is not scheduled again");
        let first = || format!("pod {}: {}", line(pod), line(&why));
        let text = |form| match form {
            Form::Json => Ok(json!({ "version": export::VERSION, "pod": pod, "state": "finished",
                "node": null, "why": why, "fits_on": 0, "nodes": {}, "verdicts": [],
                "groups": [], "changes": [], "changes_complete": true, "preemption": null,
                "message": null, "notes": [], "input": loaded.contents.intake.json() })
            .to_string()),
            // Only nodes have rows.
            Form::Csv => export::rows([export::csv_header()]),
            Form::Table => Ok(first()),
        };
        self.report(|| vec![pod.to_owned()], text, first)
    }

    /// Evaluates the pod and reports the result.
    fn explain(
        self,
        pod: Pod,
        requests: Option<&portolan::model::Requests>,
        refused: Option<String>,
        loaded: &Loaded,
    ) -> Result<Report, CommandError> {
        let contents = &loaded.contents;
        let (pod, mut fork) = match loaded.claims.clone() {
            Some(mut claims) => {
                let engine = Engine::at(&loaded.cluster, Config::default());
                let pod = claims.create_in(&engine, &pod)?;
                (pod, engine.reader().map_err(closed)?.snapshot().fork())
            }
            None => (pod, loaded.cluster.fork()),
        };
        let names_node = pod.node_name.is_some();
        let placed = take_out(&mut fork, &pod, |uid| contents.facts().has_started(uid))?;
        // Evaluate the spec, not the current node.
        let deletion_time = pod.deletion_time.filter(|_| placed.is_none());
        let pod = Pod { node_name: None, deletion_time, ..pod };
        let only = self.node;
        if let Some(name) = only.filter(|name| fork.node(name).is_none()) {
            let near = did_you_mean(name, fork.nodes().map(|node| &**node.name()));
            return Err(CommandError::Usage(format!("node {name} does not exist: {near}")));
        }
        let schedulers = Schedulers::new(self, fork.snapshot())?;
        schedulers.prepare(&fork, loaded.pending.iter().chain([&pod]));
        // A configuration has at least one profile.
        let framework = schedulers.framework_of(&pod);
        let framework = framework.ok_or_else(|| CommandError::Usage("no profile".to_owned()))?;
        let why = schedulers.why(&fork, &pod);
        let mut evaluation = framework.evaluate(&fork, &pod);
        if let Some(only) = only {
            evaluation.nodes.retain(|name, _| **name == *only);
        }
        let scales = contents.scales();
        let nominated = why.as_ref().and_then(|why| match &why.nomination {
            Nomination::Node(name) => Some(name.clone()),
            _ => None,
        });
        let nominated = nominated.as_ref();
        let (cluster, pod) = (&*fork, &pod);
        let trial = Trial { framework, cluster, pod, requests, scales, only, nominated };
        let rejected = RejectedNodes::of(trial, &evaluation);
        let facts = facts(trial, &evaluation, &rejected, contents);
        devices::hide_empty_scores(&mut evaluation);
        let fits = evaluation.nodes.values().any(|verdict| verdict.status.is_none());
        let changes = match fits || evaluation.failed.is_some() {
            true => Changes { is_complete: true, ..Changes::default() },
            false => changes::find(trial, &evaluation, &rejected, Instant::now() + self.time),
        };
        let preemption = nominated.and_then(|name| preemption(trial, name));
        let never_runs = refused
            .map(|why| refusal(&why))
            .or_else(|| names_node.then(|| creation::unbound_claim(pod, &fork)).flatten());
        let notes = [&*contents.notes, &*schedulers.notes].concat();
        let intake = &contents.intake;
        let explained = Explained {
            trial,
            placed,
            never_runs,
            why,
            preemption,
            evaluation,
            rejected,
            changes,
            facts,
            notes,
            intake,
        };
        let text = |form| match form {
            Form::Table => Ok(report::table(&explained, only.is_some())),
            Form::Json => export::json(&explained),
            Form::Csv => export::csv(&explained),
        };
        let pod = explained.trial.pod.key();
        self.report(|| vec![pod.to_string()], text, || report::first_line(&explained))
    }
}

/// Further facts that explain the reasons.
fn facts(
    trial: Trial<'_>,
    evaluation: &Evaluation,
    rejected: &[RejectedNodes<'_>],
    contents: &Contents,
) -> Vec<String> {
    let Trial { cluster, pod, .. } = trial;
    let is_rejected_by = |plugins: &[&str]| {
        let mut statuses = rejected.iter().flat_map(|it| &it.statuses);
        statuses.any(|status| plugins.contains(&status.plugin))
    };
    let mut facts = Vec::new();
    // Nodes that PreFilter excludes have a status without a plugin.
    if is_rejected_by(&["NodeAffinity", ""]) {
        facts.extend(labels::facts(cluster, pod));
    }
    if is_rejected_by(&claims::PLUGINS) {
        facts.extend(claims::facts(cluster, pod));
    }
    facts.extend(devices::facts(trial, evaluation, contents.devices()));
    if !pod.template.scheduling_gates.is_empty() {
        facts.push(format!("scheduling gates: {}", pod.template.scheduling_gates.join(", ")));
    }
    let lacks = rejected.iter().any(|of| of.insufficient().next().is_some());
    let rejecting: usize = rejected.iter().map(|of| of.nodes.len()).sum();
    // Only of pods without a node, the requests of the containers are known.
    if lacks && rejecting == evaluation.nodes.len() && trial.requests.is_none() {
        facts.push("lower requests are not tried for a placed pod".to_owned());
    }
    facts
}

/// Removes the pod from its node, if it is on one.
fn take_out(
    fork: &mut Fork,
    pod: &Pod,
    has_started: impl Fn(&portolan::model::Uid) -> bool,
) -> Result<Option<Placed>, CommandError> {
    let Some(found) = fork.pod(&pod.uid).map(|found| found.to_pod()) else { return Ok(None) };
    let gone = fork.remove_pod(&pod.uid);
    gone.map_err(|error| CommandError::Refused { object: pod.name.to_string(), error })?;
    Ok(found.node_name.map(|node| Placed {
        node,
        has_started: has_started(&pod.uid),
        is_deleting: found.deletion_time.is_some(),
    }))
}

/// The victims on the node that preemption has chosen.
fn preemption(trial: Trial<'_>, name: &Name) -> Option<Preemption> {
    let state = CycleState::default();
    let cycle = Cycle::new(trial.cluster, trial.pod, &state);
    let filters = trial.framework.pre_filter(cycle);
    let candidate = DryRun::new(cycle, &filters).on(trial.cluster.node(name)?).ok()?;
    let (victims, violations) = (candidate.victims, candidate.violations);
    Some(Preemption { node: name.clone(), victims, violations })
}

//! The operations of a workload: scheduler_perf's `workloadTemplate`, with the parameters of one workload filled in.
//!
//! Fields and defaults are those of scheduler_perf (test/integration/scheduler_perf/operations.go and update.go).

use std::collections::BTreeMap;
use std::time::Duration;

use super::parameters::Parameters;
use super::tree::{Fields, Invalid, Part, Why};

/// Labels, all of which a pod must have.
pub(super) type Labels = BTreeMap<String, String>;

/// One operation. Paths of templates are as written in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    CreateNodes {
        count: usize,
        template: Option<String>,
        preparation: Preparation,
    },
    CreateNamespaces {
        prefix: String,
        count: usize,
        template: Option<String>,
    },
    CreatePods(CreatePods),
    CreateAny(Any),
    UpdateAny {
        any: Any,
        per_second: usize,
        subresources: Vec<String>,
    },
    DeletePods {
        namespace: String,
        labels: Labels,
        per_second: usize,
        waits: bool,
    },
    Churn(Churn),
    Barrier {
        namespaces: Vec<String>,
        labels: Labels,
        stage: Stage,
    },
    Sleep(Duration),
    StartCollecting {
        name: String,
        namespaces: Vec<String>,
        labels: Labels,
    },
    StopCollecting,
    /// An operation of dynamic resource allocation, by its opcode.
    Unsupported(String),
}

/// Changes of each created node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Preparation {
    None,
    /// `nodeAllocatableStrategy`: amounts of resources, and a CSINode with limits of volumes for each driver.
    Allocatable {
        amounts: Labels,
        drivers: Vec<(String, Option<usize>)>,
        migrated: Vec<String>,
    },
    /// `labelNodePrepareStrategy`: a label whose values rotate over the nodes.
    Label {
        key: String,
        values: Vec<String>,
    },
    /// `uniqueNodeLabelStrategy`: a label with a value of its own for each node.
    UniqueLabel {
        key: String,
    },
}

/// `createPods`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CreatePods {
    pub(super) count: usize,
    /// `None`: a namespace of the operation's own.
    pub(super) namespace: Option<String>,
    pub(super) template: Option<String>,
    /// The templates of a volume and a claim for each pod.
    pub(super) volumes: Option<(String, String)>,
    pub(super) collects: bool,
    pub(super) waits: bool,
    /// Recreate pods for this time instead of creating them once.
    pub(super) steady: Option<Duration>,
}

/// `createAny` and `updateAny`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Any {
    /// `None` for objects without a namespace.
    pub(super) namespace: Option<String>,
    pub(super) template: String,
    pub(super) count: usize,
}

/// `churn`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Churn {
    pub(super) mode: ChurnMode,
    pub(super) interval: Duration,
    /// `None`: a namespace of the operation's own.
    pub(super) namespace: Option<String>,
    pub(super) templates: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChurnMode {
    /// Creates objects, at most this number of each template; `None` is unlimited.
    Create(Option<usize>),
    /// Creates this number of objects of each template, one per interval, then replaces one after the other.
    Recreate(usize),
}

/// The stage that a pod has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Pending,
    /// Tried or gated: the pod has a condition PodScheduled.
    Attempted,
    /// Bound to a node.
    Scheduled,
}

/// The operations of dynamic resource allocation.
const UNSUPPORTED: [&str; 3] =
    ["allocResourceClaims", "createResourceClaims", "createResourceDriver"];

/// Reads one operation. `createPodSets` becomes several.
pub(super) fn read<'t>(part: &Part<'t>, given: &Parameters<'t>) -> Result<Vec<Step>, Invalid> {
    let mut fields = part.fields()?;
    let opcode = fields.require("opcode")?;
    let name = opcode.text()?;
    let step = match name {
        "createPodSets" => return create_pod_sets(fields, given),
        "createNodes" => create_nodes(&mut fields, given)?,
        "createNamespaces" => Step::CreateNamespaces {
            prefix: fields.text("prefix")?.unwrap_or_default(),
            count: count(&mut fields, given)?.unwrap_or(0),
            template: fields.text("namespaceTemplatePath")?,
        },
        "createPods" => Step::CreatePods(create_pods(&mut fields, given)?),
        "createAny" => Step::CreateAny(any(&mut fields, given)?),
        "updateAny" => Step::UpdateAny {
            any: any(&mut fields, given)?,
            per_second: fields.count("updatePerSecond")?.unwrap_or(0),
            subresources: fields.texts("subresources")?,
        },
        "deletePods" => Step::DeletePods {
            namespace: fields.text("namespace")?.unwrap_or_default(),
            labels: labels(&mut fields, "labelSelector")?,
            per_second: fields.count("deletePodsPerSecond")?.unwrap_or(0),
            waits: !fields.flag("skipWaitToCompletion")?,
        },
        "churn" => churn(&mut fields)?,
        "barrier" => Step::Barrier {
            namespaces: fields.texts("namespaces")?,
            labels: labels(&mut fields, "labelSelector")?,
            stage: stage(&mut fields)?,
        },
        "sleep" => Step::Sleep(duration(&mut fields, given)?.unwrap_or_default()),
        "startCollectingMetrics" => {
            let namespaces = fields.require("namespaces")?;
            if namespaces.list()?.is_empty() {
                return Err(namespaces.invalid(Why::Missing("namespaces")));
            }
            Step::StartCollecting {
                name: fields.text("name")?.unwrap_or_default(),
                namespaces: namespaces.texts()?,
                labels: labels(&mut fields, "labelSelector")?,
            }
        }
        "stopCollectingMetrics" => Step::StopCollecting,
        name if UNSUPPORTED.contains(&name) => {
            given.use_all(&fields.rest());
            Step::Unsupported(name.to_owned())
        }
        name => return Err(opcode.invalid(Why::UnknownOpcode(name.to_owned()))),
    };
    fields.finish()?;
    Ok(vec![step])
}

/// `count` and `countParam`; the latter takes precedence.
fn count<'t>(fields: &mut Fields<'t>, given: &Parameters<'t>) -> Result<Option<usize>, Invalid> {
    let fixed = fields.count("count")?;
    let parameter = fields.take("countParam");
    Ok(match parameter {
        Some(parameter) => Some(given.count(&parameter)?),
        None => fixed,
    })
}

fn duration<'t>(
    fields: &mut Fields<'t>,
    given: &Parameters<'t>,
) -> Result<Option<Duration>, Invalid> {
    let fixed = fields.take("duration");
    let (text, part) = match (fields.take("durationParam"), fixed) {
        (Some(parameter), _) => given.text(&parameter)?,
        (None, Some(fixed)) => (fixed.text()?, fixed),
        (None, None) => return Ok(None),
    };
    let read = portolan_cli::duration(text);
    read.map(Some).map_err(|what| part.invalid(Why::Value(what)))
}

fn labels(fields: &mut Fields<'_>, name: &str) -> Result<Labels, Invalid> {
    let Some(part) = fields.take(name) else { return Ok(Labels::new()) };
    let entry = |(key, value): (&str, Part<'_>)| Ok((key.to_owned(), value.text()?.to_owned()));
    part.entries()?.into_iter().map(entry).collect()
}

fn create_nodes<'t>(fields: &mut Fields<'t>, given: &Parameters<'t>) -> Result<Step, Invalid> {
    let count = count(fields, given)?.unwrap_or(0);
    let template = fields.text("nodeTemplatePath")?;
    // If several are given, the first one of this order has an effect.
    let allocatable = fields.take("nodeAllocatableStrategy").map(|part| allocatable(&part));
    let label = fields.take("labelNodePrepareStrategy").map(|part| label(&part));
    let unique = fields.take("uniqueNodeLabelStrategy").map(|part| {
        let mut fields = part.fields()?;
        let key = fields.require("labelKey")?.text()?.to_owned();
        fields.finish()?;
        Ok(Preparation::UniqueLabel { key })
    });
    let preparation = allocatable.or(label).or(unique).unwrap_or(Ok(Preparation::None))?;
    Ok(Step::CreateNodes { count, template, preparation })
}

fn allocatable(part: &Part<'_>) -> Result<Preparation, Invalid> {
    let mut fields = part.fields()?;
    let amounts = labels(&mut fields, "nodeAllocatable")?;
    let mut drivers = Vec::new();
    let limits = fields.take("csiNodeAllocatable");
    for (driver, limit) in limits.map_or(Ok(Vec::new()), |part| part.entries())? {
        let mut limit = limit.fields()?;
        drivers.push((driver.to_owned(), limit.count("count")?));
        limit.finish()?;
    }
    let migrated = fields.texts("migratedPlugins")?;
    fields.finish()?;
    Ok(Preparation::Allocatable { amounts, drivers, migrated })
}

fn label(part: &Part<'_>) -> Result<Preparation, Invalid> {
    let mut fields = part.fields()?;
    let key = fields.require("labelKey")?.text()?.to_owned();
    let values = fields.require("labelValues")?;
    let given = values.texts()?;
    if given.is_empty() {
        return Err(values.invalid(Why::Missing("labelValues")));
    }
    fields.finish()?;
    Ok(Preparation::Label { key, values: given })
}

fn create_pods<'t>(fields: &mut Fields<'t>, given: &Parameters<'t>) -> Result<CreatePods, Invalid> {
    let owner = fields.owner().clone();
    let wrong = |what: &str| Err(owner.invalid(Why::Value(what.to_owned())));
    let steady_flag = fields.flag("steadyState")?;
    let is_steady = match fields.take("steadyStateParam") {
        Some(parameter) => given.flag(&parameter)?,
        None => steady_flag,
    };
    let duration = duration(fields, given)?.unwrap_or_default();
    let claim = fields.text("persistentVolumeClaimTemplatePath")?;
    let volume = fields.text("persistentVolumeTemplatePath")?;
    let volumes = match (volume, claim) {
        (Some(volume), Some(claim)) => Some((volume, claim)),
        // A volume without a claim has no effect.
        (_, None) => None,
        (None, Some(_)) => return wrong("a claim needs a persistentVolumeTemplatePath"),
    };
    let created = CreatePods {
        count: count(fields, given)?.unwrap_or(0),
        namespace: fields.text("namespace")?,
        template: fields.text("podTemplatePath")?,
        volumes,
        collects: fields.flag("collectMetrics")?,
        waits: !fields.flag("skipWaitToCompletion")?,
        steady: is_steady.then_some(duration),
    };
    match created {
        CreatePods { collects: true, waits: false, .. } => {
            wrong("collectMetrics and skipWaitToCompletion exclude each other")
        }
        CreatePods { steady: Some(_), waits: false, .. } => {
            wrong("steadyState and skipWaitToCompletion exclude each other")
        }
        CreatePods { steady: Some(Duration::ZERO), .. } => {
            wrong("steadyState needs a duration above 0")
        }
        CreatePods { steady: Some(_), count: 0, .. } => wrong("steadyState needs a count above 0"),
        created => Ok(created),
    }
}

/// Pods in several namespaces, which are numbered from 0.
fn create_pod_sets<'t>(
    mut fields: Fields<'t>,
    given: &Parameters<'t>,
) -> Result<Vec<Step>, Invalid> {
    let count = count(&mut fields, given)?.unwrap_or(0);
    let prefix = fields.text("namespacePrefix")?.unwrap_or_default();
    let mut inner = fields.require("createPodsOp")?.fields()?;
    if let Some(opcode) = inner.take("opcode")
        && opcode.text()? != "createPods"
    {
        return Err(opcode.invalid(Why::UnknownOpcode(opcode.text()?.to_owned())));
    }
    let pods = create_pods(&mut inner, given)?;
    inner.finish()?;
    fields.finish()?;
    let set = |number| {
        let namespace = Some(format!("{prefix}-{number}"));
        Step::CreatePods(CreatePods { namespace, ..pods.clone() })
    };
    Ok((0..count).map(set).collect())
}

fn any<'t>(fields: &mut Fields<'t>, given: &Parameters<'t>) -> Result<Any, Invalid> {
    Ok(Any {
        namespace: fields.text("namespace")?.filter(|namespace| !namespace.is_empty()),
        template: fields.require("templatePath")?.text()?.to_owned(),
        count: count(fields, given)?.unwrap_or(1),
    })
}

fn churn(fields: &mut Fields<'_>) -> Result<Step, Invalid> {
    const INTERVAL: usize = 500;
    let number = fields.take("number");
    let most = number.as_ref().map(Part::count).transpose()?.filter(|number| *number > 0);
    let mode = fields.require("mode")?;
    let mode = match mode.text()? {
        "create" => ChurnMode::Create(most),
        "recreate" => match most {
            Some(most) => ChurnMode::Recreate(most),
            None => {
                let at = number.as_ref().unwrap_or(fields.owner());
                let what = "the mode recreate needs a number above 0".to_owned();
                return Err(at.invalid(Why::Value(what)));
            }
        },
        _ => return Err(mode.invalid(Why::Type("create or recreate"))),
    };
    let interval = fields.count("intervalMilliseconds")?.filter(|interval| *interval > 0);
    let namespace = fields.text("namespace")?;
    let paths = fields.require("templatePaths")?;
    let templates = paths.texts()?;
    if templates.is_empty() {
        return Err(paths.invalid(Why::Missing("templatePaths")));
    }
    let interval = Duration::from_millis(interval.unwrap_or(INTERVAL) as u64);
    Ok(Step::Churn(Churn { mode, interval, namespace, templates }))
}

fn stage(fields: &mut Fields<'_>) -> Result<Stage, Invalid> {
    let Some(part) = fields.take("stageRequirement") else { return Ok(Stage::Scheduled) };
    match part.text()? {
        "" | "Scheduled" => Ok(Stage::Scheduled),
        "Attempted" => Ok(Stage::Attempted),
        _ => Err(part.invalid(Why::Type("Scheduled or Attempted"))),
    }
}

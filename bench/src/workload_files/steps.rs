//! The operations of a workload: scheduler_perf's `workloadTemplate`, with the parameters of one workload filled in.
//!
//! Fields and defaults are those of scheduler_perf (test/integration/scheduler_perf/operations.go and update.go).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::{Map, Value};

/// Labels, all of which a pod must have.
pub(super) type Labels = BTreeMap<String, String>;

/// One operation. Paths of templates are as written in the file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "opcode", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Step {
    CreateNodes(CreateNodes),
    CreateNamespaces {
        #[serde(default)]
        prefix: String,
        #[serde(default)]
        count: usize,
        #[serde(rename = "namespaceTemplatePath")]
        template: Option<String>,
    },
    CreatePods(CreatePods),
    /// Pods in several namespaces, which are numbered from 0. [`read`] replaces it.
    CreatePodSets {
        #[serde(default)]
        count: usize,
        #[serde(default, rename = "namespacePrefix")]
        prefix: String,
        #[serde(rename = "createPodsOp")]
        pods: Box<Step>,
    },
    CreateAny(Any),
    UpdateAny(Any),
    DeletePods {
        #[serde(default)]
        namespace: String,
        #[serde(default, rename = "labelSelector")]
        labels: Labels,
        #[serde(default, rename = "deletePodsPerSecond")]
        per_second: usize,
        #[serde(default, rename = "skipWaitToCompletion")]
        is_in_background: bool,
    },
    Churn(Churn),
    Barrier {
        #[serde(default)]
        namespaces: Vec<String>,
        #[serde(default, rename = "labelSelector")]
        labels: Labels,
        #[serde(default = "scheduled", rename = "stageRequirement")]
        stage: Stage,
    },
    Sleep {
        #[serde(default, deserialize_with = "duration")]
        duration: Duration,
    },
    StartCollectingMetrics {
        #[serde(default)]
        name: String,
        namespaces: Vec<String>,
        #[serde(default, rename = "labelSelector")]
        labels: Labels,
    },
    StopCollectingMetrics,
    // The operations of dynamic resource allocation, whose fields are not read.
    AllocResourceClaims,
    CreateResourceClaims,
    CreateResourceDriver,
}

/// `createNodes`. If several strategies are given, the first one of this order has an effect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateNodes {
    pub(super) count: usize,
    #[serde(rename = "nodeTemplatePath")]
    pub(super) template: Option<String>,
    #[serde(rename = "nodeAllocatableStrategy")]
    pub(super) allocatable: Option<Allocatable>,
    #[serde(rename = "labelNodePrepareStrategy")]
    pub(super) label: Option<Label>,
    #[serde(rename = "uniqueNodeLabelStrategy")]
    pub(super) unique_label: Option<UniqueLabel>,
}

/// Amounts of resources of each node, and a CSINode with limits of volumes for each driver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Allocatable {
    #[serde(rename = "nodeAllocatable")]
    pub(super) amounts: Labels,
    #[serde(rename = "csiNodeAllocatable")]
    pub(super) drivers: BTreeMap<String, VolumeLimit>,
    #[serde(rename = "migratedPlugins")]
    pub(super) migrated: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeLimit {
    pub(super) count: Option<usize>,
}

/// A label whose values rotate over the nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Label {
    #[serde(rename = "labelKey")]
    pub(super) key: String,
    #[serde(rename = "labelValues")]
    pub(super) values: Vec<String>,
}

/// A label with a value of its own for each node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UniqueLabel {
    #[serde(rename = "labelKey")]
    pub(super) key: String,
}

/// `createPods`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreatePods {
    pub(super) count: usize,
    /// `None`: a namespace of the operation's own.
    pub(super) namespace: Option<String>,
    #[serde(rename = "podTemplatePath")]
    pub(super) template: Option<String>,
    #[serde(rename = "persistentVolumeTemplatePath")]
    pub(super) volume: Option<String>,
    #[serde(rename = "persistentVolumeClaimTemplatePath")]
    pub(super) claim: Option<String>,
    #[serde(rename = "collectMetrics")]
    pub(super) collects: bool,
    #[serde(rename = "skipWaitToCompletion")]
    pub(super) is_in_background: bool,
    /// Whether pods are recreated for the duration instead of created once.
    #[serde(rename = "steadyState")]
    pub(super) is_steady: bool,
    #[serde(deserialize_with = "duration")]
    pub(super) duration: Duration,
}

impl CreatePods {
    /// The templates of a volume and a claim for each pod. A volume without a claim has no effect.
    pub(super) fn volumes(&self) -> Option<(&str, &str)> {
        self.volume.as_deref().zip(self.claim.as_deref())
    }

    fn check(&self) -> Result<(), &'static str> {
        let CreatePods { is_steady, is_in_background, .. } = *self;
        match self {
            CreatePods { volume: None, claim: Some(_), .. } => {
                Err("a claim needs a persistentVolumeTemplatePath")
            }
            CreatePods { collects: true, .. } if is_in_background => {
                Err("collectMetrics and skipWaitToCompletion exclude each other")
            }
            _ if is_steady && is_in_background => {
                Err("steadyState and skipWaitToCompletion exclude each other")
            }
            _ if is_steady && self.duration.is_zero() => {
                Err("steadyState needs a duration above 0")
            }
            _ if is_steady && self.count == 0 => Err("steadyState needs a count above 0"),
            _ => Ok(()),
        }
    }
}

/// `createAny` and `updateAny`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Any {
    /// `None` for objects without a namespace.
    pub(super) namespace: Option<String>,
    #[serde(rename = "templatePath")]
    pub(super) template: String,
    #[serde(default = "one")]
    pub(super) count: usize,
    #[serde(default, rename = "updatePerSecond")]
    pub(super) per_second: usize,
    #[serde(default)]
    pub(super) subresources: Vec<String>,
}

fn one() -> usize {
    1
}

/// `churn`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Churn {
    pub(super) mode: ChurnMode,
    /// The number of objects of each template; 0 is unlimited.
    #[serde(default)]
    pub(super) number: usize,
    #[serde(default)]
    interval_milliseconds: u64,
    /// `None`: a namespace of the operation's own.
    pub(super) namespace: Option<String>,
    #[serde(rename = "templatePaths")]
    pub(super) templates: Vec<String>,
}

impl Churn {
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(match self.interval_milliseconds {
            0 => 500,
            milliseconds => milliseconds,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ChurnMode {
    /// Creates objects until there are enough.
    Create,
    /// Creates the objects, one per interval, then replaces one after the other.
    Recreate,
}

/// The stage that a pod has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) enum Stage {
    #[serde(skip)]
    Pending,
    /// Tried or gated: the pod has a condition PodScheduled.
    Attempted,
    /// Bound to a node.
    #[serde(alias = "")]
    Scheduled,
}

fn scheduled() -> Stage {
    Stage::Scheduled
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    portolan_cli::duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// The parameters of one workload, and the names of those that were used.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) values: Map<String, Value>,
    used: BTreeSet<String>,
}

impl Parameters {
    pub(super) fn new(values: Map<String, Value>) -> Parameters {
        Parameters { values, used: BTreeSet::new() }
    }

    /// The first parameter that no operation used.
    pub(super) fn unused(&self) -> Option<String> {
        self.values.keys().find(|name| !self.used.contains(*name)).cloned()
    }

    /// Replaces fields such as `countParam: $nodes` by the fields that they set. As in Go, the case of the first letter
    /// of a name is ignored, and a null counts as absent.
    fn fill(&mut self, operation: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let (mut filled, mut given) = (Map::new(), Map::new());
        for (name, value) in operation.iter().filter(|(_, value)| !value.is_null()) {
            let mut name = name.clone();
            if let Some(first) = name.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            if let (Some(field), Some(text)) = (name.strip_suffix("Param"), value.as_str()) {
                let parameter = text
                    .strip_prefix('$')
                    .ok_or_else(|| format!("{name}: {text:?} is not a parameter: write $NAME"))?;
                let value = self
                    .values
                    .get(parameter)
                    .ok_or_else(|| format!("{name}: the parameter {parameter:?} is undefined"))?;
                given.insert(field.to_owned(), value.clone());
                self.used.insert(parameter.to_owned());
            } else if let ("createPodsOp", Value::Object(inner)) = (&*name, value) {
                filled.insert(name, self.fill(inner)?.into());
            } else {
                filled.insert(name, value.clone());
            }
        }
        filled.extend(given);
        Ok(filled)
    }
}

/// Reads one operation. `createPodSets` becomes several.
pub(super) fn read(
    operation: &Map<String, Value>,
    given: &mut Parameters,
) -> Result<Vec<Step>, String> {
    let filled = given.fill(operation)?;
    let step = Step::deserialize(Value::from(filled)).map_err(|error| error.to_string())?;
    let is_empty = |field: &str| Err(format!("the field {field} is required"));
    match &step {
        Step::CreatePods(pods) => pods.check()?,
        Step::CreatePodSets { count, prefix, pods } => {
            let Step::CreatePods(pods) = &**pods else {
                return Err("createPodsOp: the opcode must be createPods".to_owned());
            };
            pods.check()?;
            let set = |number| {
                let namespace = Some(format!("{prefix}-{number}"));
                Step::CreatePods(CreatePods { namespace, ..pods.clone() })
            };
            return Ok((0..*count).map(set).collect());
        }
        Step::CreateNodes(CreateNodes { label: Some(label), .. }) if label.values.is_empty() => {
            return is_empty("labelValues");
        }
        Step::Churn(churn) if churn.templates.is_empty() => return is_empty("templatePaths"),
        Step::Churn(Churn { mode: ChurnMode::Recreate, number: 0, .. }) => {
            return Err("the mode recreate needs a number above 0".to_owned());
        }
        Step::StartCollectingMetrics { namespaces, .. } if namespaces.is_empty() => {
            return is_empty("namespaces");
        }
        _ => {}
    }
    Ok(vec![step])
}

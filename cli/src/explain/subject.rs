//! The pod to explain: one of the cluster by its name, one of a controller, or one of a file.

use std::path::Path;

use portolan::model::{Name, Pod, Requests};
use portolan_k8s::{Objects, PodController};

use crate::cluster::{Added, Contents, Input, Loaded};
use crate::error::CommandError;
use crate::names::did_you_mean;
use crate::targets::{Candidate, Finder, Reference};
use crate::text::count;

/// What `--pod` names.
pub(super) enum Subject {
    /// A pod, and the requests of its containers if its manifest is known.
    Pod(Box<Pod>, Option<Requests>),
    /// A pod that has finished, with its phase. Nothing else is known of it.
    Finished(String, Name),
}

impl Subject {
    fn of(pod: Pod, contents: &Contents, added: &Added) -> Subject {
        let requests = requests(&pod, contents, added);
        Subject::Pod(Box::new(pod), requests)
    }
}

/// The first pod of the file. A controller of which the cluster has all pods is evaluated as if it had one more
/// replica.
pub(super) fn of_file(
    file: &Path,
    input: &mut Input,
    added: &mut Added,
) -> Result<Subject, CommandError> {
    if let Some(pod) = added.pods.first() {
        return Ok(Subject::of(pod.clone(), &input.contents, added));
    }
    if let Some(((namespace, name), phase)) = added.facts.finished().next() {
        return Ok(Subject::Finished(format!("{namespace}/{name}"), phase.clone()));
    }
    let existing = input.existing();
    input.contents.add_replica(&existing, added);
    match added.pods.first() {
        Some(pod) => Ok(Subject::of(pod.clone(), &input.contents, added)),
        None => {
            let what = input.contents.no_pod(&added.controllers, &existing);
            Err(CommandError::File { file: file.to_owned(), what })
        }
    }
}

/// The pod of this name, or a pending pod of the controller that `KIND/NAME` names. Without a pending pod, the
/// controller is evaluated as if it had one more replica. `own` is the namespace of a name without one.
pub(super) fn named(
    asked: &str,
    own: Option<&str>,
    loaded: &Loaded,
    (contents, added): (&mut Contents, &mut Added),
) -> Result<Subject, CommandError> {
    // kubectl's name of a pod: pod/web-0.
    let kinds = ["pod/", "pods/", "po/"];
    let bare = kinds.iter().find_map(|kind| asked.strip_prefix(kind)).unwrap_or(asked);
    let (namespace, name) = bare.split_once('/').unwrap_or((own.unwrap_or("default"), bare));
    if let Some(pod) = loaded.pod(namespace, name) {
        return Ok(Subject::of(pod, contents, added));
    }
    let mut finished = contents.facts().finished();
    let is_meant = |(of, it): &(Name, Name)| **of == *namespace && **it == *name;
    if let Some((_, phase)) = finished.find(|(key, _)| is_meant(key)) {
        return Ok(Subject::Finished(format!("{namespace}/{name}"), phase.clone()));
    }
    drop(finished);
    // KIND/NAMESPACE/NAME, or KIND/NAME.
    let (of, reference) = match asked.split('/').collect::<Vec<_>>()[..] {
        [kind, namespace, name] => (Some(namespace), Reference::parse(&format!("{kind}/{name}"))),
        _ => (own, Reference::parse(asked)),
    };
    match reference {
        Ok(reference) if reference.kind != "Pod" => {
            of_controller(&reference, of, loaded, (contents, added))
        }
        _ => Err(not_found(asked, (namespace, name), loaded)),
    }
}

fn of_controller(
    reference: &Reference,
    namespace: Option<&str>,
    loaded: &Loaded,
    (contents, added): (&mut Contents, &mut Added),
) -> Result<Subject, CommandError> {
    let scales = contents.scales().clone();
    let finder = Finder { controllers: contents.controllers(), scales: &scales, namespace };
    let placed = loaded.cluster.nodes().flat_map(|node| node.pods()).map(Candidate::Placed);
    let pods = placed.chain(loaded.pending.iter().map(Candidate::Waiting));
    let target = finder.find("--pod", reference, pods)?;
    let is_of_target = |pod: &&Pod| target.pods.iter().any(|it| it.uid == pod.uid);
    let mut waiting: Vec<&Pod> = loaded.pending.iter().filter(is_of_target).collect();
    // A pod that is being deleted is replaced already.
    waiting.sort_by_key(|pod| (pod.deletion_time.is_some(), pod.name.clone()));
    if let Some(pod) = waiting.first() {
        let (pod, number) = (Pod::clone(pod), waiting.len());
        let of = format!("{} {}/{}", reference.kind, target.namespace, reference.name);
        if number > 1 {
            let what = count(number, "pending pod");
            contents.notes.push(format!("{} is the first of {what} of {of}", pod.key()));
        }
        return Ok(Subject::of(pod, contents, added));
    }
    let controller = target.controller.cloned();
    let placed = target.pods.first().cloned();
    if let Some(controller) = controller {
        let existing = loaded.existing();
        added.controllers = vec![controller];
        contents.add_replica(&existing, added);
        return match added.pods.first() {
            Some(pod) => Ok(Subject::of(pod.clone(), contents, added)),
            None => Err(CommandError::Usage(contents.no_pod(&added.controllers, &existing))),
        };
    }
    // The template of a controller that is not in the input is not known.
    match placed {
        Some(pod) => Ok(Subject::of(pod, contents, added)),
        None => Err(CommandError::Usage(contents.no_pod(&[], &Objects::default()))),
    }
}

/// The requests of the pod's containers: of its own manifest, or of its controller's template if its sums are the same.
fn requests(pod: &Pod, contents: &Contents, added: &Added) -> Option<Requests> {
    let of_pod =
        [contents.facts(), &added.facts].into_iter().filter_map(|it| it.requests(&pod.uid));
    let is_owner = |it: &&PodController| it.owns(&pod.template);
    let of_controllers = contents.controllers().iter().chain(&added.controllers).filter(is_owner);
    let mut all = of_pod.chain(of_controllers.map(PodController::requests));
    all.find(|it| it.compute().incoming == pod.template.resources.incoming).cloned()
}

fn not_found(asked: &str, (namespace, name): (&str, &str), loaded: &Loaded) -> CommandError {
    let placed = loaded.cluster.nodes().flat_map(|node| node.pods());
    let placed = placed.map(|pod| Name::from(format!("{}/{}", pod.namespace(), pod.name())));
    let mut known: Vec<Name> = placed.chain(loaded.pending.iter().map(Pod::key)).collect();
    known.sort();
    let has_name = |it: &&Name| it.split_once('/').is_some_and(|(_, it)| it == name);
    let near = did_you_mean(&format!("{namespace}/{name}"), known.iter().map(|name| &**name));
    let near = match known.iter().find(has_name) {
        Some(elsewhere) => format!("did you mean {elsewhere}?"),
        None if near.starts_with("did") => near,
        None => "pass NAMESPACE/NAME or KIND/NAME".to_owned(),
    };
    // A file is named with its extension.
    let file = if asked.contains('.') { ", and neither does a file of this name" } else { "" };
    CommandError::Usage(format!("pod {asked} does not exist in the cluster{file}: {near}"))
}

//! A batch cluster whose jobs use software licences, for which the engine has no built-in type.
//!
//! Jobs are pods. A job may need seats of a licence, on whichever node it runs, and two schedulers place jobs
//! concurrently. The licences are in a `Store`, which is part of every version: its events set the number of seats, and
//! placed jobs determine the seats in use. The schedulers therefore never use more seats than exist, a waiting job is
//! retried when seats are added or a job ends, and a what-if question counts seats on its own fork.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use portolan::cache::{Cluster, Config, Engine, Event, PlacedPod, Store};
use portolan::model::{Generation, Pod, Template, Timestamp, node, pod};
use portolan::plugin::{
    Actions, ClusterEvent, Code, Cycle, EventResource, Hint, Interest, Plugin, PluginInfo, Point,
    PreFilter, Status, default_plugins,
};
use portolan::{AlgorithmConfig, Attempt, Framework, Schedulers, SchedulingLoop, WhatIf};

/// All licences by name. There are at most a few dozen, so cloning the map is cheap enough.
#[derive(Clone, Default)]
struct Licences(BTreeMap<String, Licence>);

#[derive(Clone, Default)]
struct Licence {
    seats: u32,
    /// Wider than `seats`, because pods that are bound without a scheduler may use more seats than exist.
    used: u64,
}

/// An event that sets the number of seats of a licence.
struct SetSeats {
    licence: String,
    seats: u32,
}

/// Returns the licence that a job needs and the number of its seats, or `None` if it needs no licence.
fn needs(job: &Template) -> Option<(&str, u32)> {
    let licence = job.labels.get("licence")?;
    Some((licence, job.labels.get("seats").and_then(|seats| seats.parse().ok()).unwrap_or(1)))
}

impl Licences {
    fn free(&self, licence: &str) -> u64 {
        let free = |known: &Licence| u64::from(known.seats).saturating_sub(known.used);
        self.0.get(licence).map_or(0, free)
    }
}

impl Store for Licences {
    type Event = SetSeats;

    const NAME: &'static str = "Licences";

    fn check(&self, event: &SetSeats, _: &Cluster) -> Result<(), String> {
        let used = self.0.get(&event.licence).map_or(0, |licence| licence.used);
        match u64::from(event.seats) < used {
            true => Err(format!("seats of {} in use: {used}", event.licence)),
            false => Ok(()),
        }
    }

    fn apply(&mut self, event: &SetSeats, _: Generation) {
        self.0.entry(event.licence.clone()).or_default().seats = event.seats;
    }

    fn tracks(&self, job: &PlacedPod<'_>) -> bool {
        needs(job.template).is_some()
    }

    fn pod_placed(&mut self, job: &PlacedPod<'_>, _: Generation) {
        if let Some((licence, seats)) = needs(job.template) {
            self.0.entry(licence.to_owned()).or_default().used += u64::from(seats);
        }
    }

    fn pod_removed(&mut self, job: &PlacedPod<'_>, _: Generation) {
        if let Some((licence, seats)) = needs(job.template) {
            self.0.entry(licence.to_owned()).or_default().used -= u64::from(seats);
        }
    }

    // With this method and `dump`, an audit compares the seats in use with the placed jobs; a rebuild recounts them.
    fn without_pods(&self) -> Option<Licences> {
        let unused = |(name, licence): (&String, &Licence)| {
            (licence.seats > 0).then(|| (name.clone(), Licence { used: 0, ..*licence }))
        };
        Some(Licences(self.0.iter().filter_map(unused).collect()))
    }

    fn dump(&self) -> String {
        let line = |(name, l): (&String, &Licence)| format!("{name} {}/{}", l.used, l.seats);
        let known = self.0.iter().filter(|(_, licence)| licence.seats > 0 || licence.used > 0);
        known.map(line).collect::<Vec<_>>().join(", ")
    }
}

/// A plugin that rejects a job unless enough seats of its licence are free.
struct Seats;

impl Plugin for Seats {
    /// A rejected job waits for a change to the licences, or for the end of a job ...
    fn info(&self) -> PluginInfo {
        PluginInfo::new("Seats", &[Point::PreFilter]).events(&[
            Interest { resources: &[EventResource::Custom], actions: Actions::ALL },
            Interest { resources: &[EventResource::AssignedPod], actions: Actions::DELETE },
        ])
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let Some((licence, seats)) = needs(&cycle.pod.template) else {
            return Ok(PreFilter::Skip);
        };
        let licences = cycle.cluster.store::<Licences>();
        let licences = licences.map_err(|error| Status::error("Seats", error.to_string()))?;
        let free = licences.free(licence);
        if free < u64::from(seats) {
            let reason = format!("seats of {licence}: {seats} needed, {free} free");
            return Err(Status::new(Code::Unschedulable, "Seats", reason));
        }
        Ok(PreFilter::Skip)
    }

    /// ... with the same licence.
    fn queueing_hint(
        &self,
        job: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        let wanted = needs(&job.template).map(|(licence, _)| licence);
        let ended = event.pod().and_then(|diff| diff.old.as_ref());
        let freed = ended.and_then(|ended| needs(&ended.template)).map(|(licence, _)| licence);
        let changed = event.custom::<Licences>().map(|event| &*event.licence);
        Ok(Hint::queue_if(wanted.is_some() && (freed == wanted || changed == wanted)))
    }
}

fn plugins(handle: &portolan::plugin::Handle) -> Vec<(Box<dyn Plugin>, i64)> {
    let mut all = default_plugins(handle);
    all.push((Box::new(Seats), 0));
    all
}

fn job(name: &str, licence: &str, seats: u32) -> Pod {
    let job = pod(name).cpu(4_000).label("licence", licence).label("seats", &seats.to_string());
    job.build()
}

fn submit(engine: &Engine, event: Event) -> Result<(), Box<dyn Error>> {
    engine.submit(event)?.wait()??;
    Ok(())
}

/// Schedules and binds jobs until none is ready.
fn run(scheduling: &mut SchedulingLoop, now: Timestamp) {
    while let Ok(attempt) = scheduling.schedule_one(Some(Instant::now()), || now) {
        if let Attempt::Placed(placement) = attempt
            && let Err((error, _)) = scheduling.bind(&placement, || now)
        {
            println!("{}: {error}", placement.pod.name);
        }
    }
}

/// Runs two schedulers concurrently, each on its own thread.
fn run_both(loops: &mut [SchedulingLoop], now: i64) {
    std::thread::scope(|scope| {
        for scheduling in loops {
            scope.spawn(move || run(scheduling, Timestamp::from_secs(now)));
        }
    });
}

fn show(title: &str, engine: &Engine, jobs: &[Pod]) -> Result<(), Box<dyn Error>> {
    let snapshot = engine.reader()?.snapshot();
    println!("\n{title}\n  {:<8} {:<9} {:>5}  node", "job", "licence", "seats");
    for job in jobs {
        let placed = snapshot.pod(&job.uid);
        let node = placed.as_ref().map_or("waiting", |pod| pod.node().name());
        let (licence, seats) = needs(&job.template).unwrap_or(("-", 0));
        println!("  {:<8} {licence:<9} {seats:>5}  {node}", job.name);
    }
    for (name, Licence { seats, used }) in &snapshot.store::<Licences>()?.0 {
        println!("  {used} of {seats} seats of {name} in use");
        assert!(*used <= u64::from(*seats), "more seats of {name} are in use than exist");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "Licences in a custom store: events set the number of seats, placed jobs use seats, and two\n\
         schedulers on one engine never use more seats than exist."
    );
    let schedulers = Schedulers::builder()
        .config(Config::default().with_store(Licences::default()))
        .profile("default-scheduler", |handle| Framework::new(plugins(handle)))
        .build()?;
    let engine = schedulers.engine();
    let set_seats = |licence: &str, seats| {
        Event::custom::<Licences>(SetSeats { licence: licence.to_owned(), seats })
    };
    for name in ["c01", "c02", "c03"] {
        let node = node(name).cpu(16_000).memory(64 << 30).build();
        submit(engine, Event::add_node(node))?;
    }
    submit(engine, set_seats("solver", 4))?;
    submit(engine, set_seats("mesher", 1))?;

    let mut jobs: Vec<Pod> = (1..=4).map(|n| job(&format!("solve-{n}"), "solver", 2)).collect();
    jobs.extend([job("mesh-1", "mesher", 1), pod("copy-1").cpu(1_000).build()]);
    for job in &jobs {
        submit(engine, Event::put_pending(job.clone()))?;
    }
    let mut loops = [schedulers.scheduling_loop()?, schedulers.scheduling_loop()?];
    run_both(&mut loops, 1);
    show("Two schedulers have placed all jobs that the seats allow:", engine, &jobs)?;
    let used = |licence: &str| -> Result<u64, Box<dyn Error>> {
        let snapshot = engine.reader()?.snapshot();
        Ok(snapshot.store::<Licences>()?.0.get(licence).map_or(0, |licence| licence.used))
    };
    assert_eq!((used("solver")?, used("mesher")?), (4, 1));

    println!("\nHow many seats of solver would all waiting jobs need?");
    let snapshot = engine.reader()?.snapshot();
    let framework = Framework::new(plugins(&Default::default()))?.into();
    let mut what_if = WhatIf::new(&snapshot, framework, AlgorithmConfig::default());
    let is_waiting = |job: &&Pod| snapshot.pod(&job.uid).is_none();
    let mut waiting: Vec<&Pod> = jobs.iter().filter(is_waiting).collect();
    let mut seats = 4;
    while !waiting.is_empty() {
        seats += 1;
        what_if.fork().change::<Licences>(SetSeats { licence: "solver".to_owned(), seats })?;
        waiting.retain(|job| what_if.schedule(job).is_err());
        println!("  with {seats} seats, waiting jobs: {}", waiting.len());
    }
    assert_eq!(seats, 8);
    assert_eq!(used("solver")?, 4, "a what-if question does not change the cluster");

    submit(engine, set_seats("solver", 6))?;
    run_both(&mut loops, 100);
    show("Two seats of solver were added:", engine, &jobs)?;
    assert_eq!(used("solver")?, 6);

    let snapshot = engine.reader()?.snapshot();
    let placed = |job: &&Pod| snapshot.pod(&job.uid).is_some();
    let ended = jobs.iter().position(|job| placed(&job)).ok_or("no job is placed")?;
    let ended = jobs.remove(ended);
    submit(engine, Event::remove_pod(&ended))?;
    run_both(&mut loops, 200);
    show(&format!("{} has ended, and its seats have been reused:", ended.name), engine, &jobs)?;
    assert_eq!(used("solver")?, 6);
    assert_eq!(engine.reader()?.snapshot().pod_count(), jobs.len(), "every job is placed");

    let Err(error) = submit(engine, set_seats("solver", 5)) else {
        return Err("the store accepted fewer seats than are in use".into());
    };
    println!("\nThe store rejects fewer seats than are in use: {error}");
    let found = engine.with_writer(|writer| writer.cluster().audit())?;
    assert!(found.is_empty(), "the seats in use do not match the placed jobs: {found:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_never_use_more_seats_than_exist() -> Result<(), Box<dyn Error>> {
        main()
    }

    #[test]
    fn the_seats_of_bound_jobs_may_exceed_32_bits() -> Result<(), Box<dyn Error>> {
        let config = Config::default().with_store(Licences::default());
        let (mut writer, _) = Engine::inline(config);
        let jobs = ["a", "b"].map(|name| job(name, "solver", u32::MAX).on("n1"));
        for job in jobs.clone() {
            writer.add_pod(job)?;
        }
        let used = writer.cluster().store::<Licences>()?.0["solver"].used;
        assert_eq!(used, 2 * u64::from(u32::MAX));
        for job in &jobs {
            writer.remove_pod(job)?;
        }
        assert_eq!(writer.cluster().store::<Licences>()?.0["solver"].used, 0);
        Ok(())
    }
}

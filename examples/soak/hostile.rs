//! Readers that do what no careful caller does, against an engine of a few seconds, again and again.
//!
//! Weak handles are upgraded at random, versions and forks are held and dropped in any order, readers panic and come
//! and go, guards and handles are forgotten, and pods expire meanwhile. Whatever a thread holds must stay what it was
//! when it was taken: the same dump, and every pod found by its uid. What the last round held is compared once more
//! after its engine is gone.
//!
//! Rounds are short because a forgotten guard keeps its version, and all that goes after it, for as long as its engine
//! lives: forgetting without end would only measure memory, which the other mode does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use portolan::log::Event;
use portolan::model::{
    Generation, LabelSelector, Name, Node, Pod, PodAffinity, Timestamp, Uid, node, pod,
};
use portolan::snapshot::{Dump, Fork, Snapshot};
use portolan::{Cluster, CommitPolicy, Config, Engine, Reader};
use portolan_testkit::random::Random;

const NODES: u64 = 48;
const PODS_EACH: u64 = 240;
const TTL: Duration = Duration::from_secs(5);
/// How long an engine lives.
const ROUND: Duration = Duration::from_secs(4);
/// How often a round forgets a guard or a handle.
const FORGOTTEN: usize = 3;

type Job = fn(&Round<'_>, Reader, Random) -> Result<Vec<Held>, String>;

/// What the threads of a round do.
const JOBS: [(&str, Job); 10] = [
    ("writer", write),
    ("holder of weak handles", weaken),
    ("writer", write),
    ("holder of weak handles", weaken),
    ("sweeper", sweep),
    ("holder of versions", hold),
    ("holder of forks", fork),
    ("reader that panics", panic),
    ("reader that forgets", forget),
    ("readers that come and go", come_and_go),
];

/// What a round shares between its threads.
struct Round<'a> {
    engine: &'a Engine,
    stop: AtomicBool,
    /// The clock of bindings and sweeps, in seconds.
    clock: AtomicI64,
    found: Mutex<Option<String>>,
}

/// Runs rounds for `time`, and says how many there were, or what went wrong in which.
pub(crate) fn run(time: Duration, seed: u64) -> Result<u64, String> {
    let (started, mut rounds) = (Instant::now(), 0);
    while started.elapsed() < time {
        rounds += 1;
        let left = time.saturating_sub(started.elapsed()).min(ROUND);
        round(left, seed.wrapping_add(rounds))
            .map_err(|why| format!("round {rounds} (--seed {seed}): {why}"))?;
    }
    Ok(rounds)
}

fn round(time: Duration, seed: u64) -> Result<(), String> {
    let config = Config {
        assumed_ttl: Some(TTL),
        log_capacity: Some(64),
        live_index: true,
        // Every pod is new and must be let in, wherever there is room or not.
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    };
    let engine = if seed.is_multiple_of(2) {
        // The system's clock is far ahead of the round's: its sweeps expire all that can expire.
        let config = Config { sweep_period: Some(Duration::from_millis(5)), ..config };
        Engine::spawned(config).map_err(|why| format!("no thread to write: {why}"))?
    } else {
        Engine::shared(config)
    };
    let round = Round {
        engine: &engine,
        stop: AtomicBool::new(false),
        clock: AtomicI64::new(0),
        found: Mutex::new(None),
    };
    let kept: Vec<Held> = thread::scope(|scope| {
        // In some rounds few threads, which then meet more often, most of all where there are few processors.
        let jobs = if seed % 4 < 2 { &JOBS[..2] } else { &JOBS[..] };
        let mut threads = Vec::new();
        for (at, (name, job)) in jobs.iter().enumerate() {
            let Ok(reader) = engine.reader() else { break };
            let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(at as u64));
            let round = &round;
            threads.push(scope.spawn(move || round.watch(name, || job(round, reader, random))));
        }
        let ends = Instant::now() + time;
        while Instant::now() < ends && round.goes_on() {
            thread::sleep(Duration::from_millis(20));
        }
        round.stop.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    let found = round.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = found {
        return Err(why);
    }
    engine.close();
    let audit = engine.with_writer(|writer| writer.cluster().audit());
    match audit.as_deref() {
        Ok([]) => {}
        Ok([first, ..]) => return Err(format!("the audit of the writer: {first}")),
        Err(_) => return Err("a fold panicked".to_owned()),
    }
    drop(engine);
    kept.iter().try_for_each(|held| held.check("after the engine had gone"))
}

impl Round<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Runs a thread's work; the first thing that is wrong ends the round.
    fn watch(&self, name: &str, work: impl FnOnce() -> Result<Vec<Held>, String>) -> Vec<Held> {
        let why = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(held)) => return held,
            Ok(Err(why)) => format!("{name}: {why}"),
            Err(_) => format!("{name}: panicked, see above"),
        };
        self.stop.store(true, Ordering::Relaxed);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert(why);
        Vec::new()
    }

    /// Submits, and says at which generation it was applied, if it was not refused.
    fn submit(&self, event: Event) -> Result<Option<Generation>, String> {
        let closed = "the engine closed while it was in use";
        let ticket = self.engine.submit(event).map_err(|_| closed)?;
        let outcome = ticket.wait().map_err(|_| closed)?;
        Ok(outcome.ok().map(|applied| applied.generation))
    }
}

/// What a thread holds: a version or a fork of one.
enum Whole {
    Version(Arc<Snapshot>),
    Fork(Box<Fork>),
}

/// What is held, with what it was when it was taken.
struct Held {
    whole: Whole,
    dump: Dump,
    by: &'static str,
}

impl Held {
    fn version(version: Arc<Snapshot>, by: &'static str) -> Held {
        Held { dump: version.dump(), whole: Whole::Version(version), by }
    }

    fn fork(fork: Fork, by: &'static str) -> Held {
        Held { dump: fork.dump(), whole: Whole::Fork(Box::new(fork)), by }
    }

    fn cluster(&self) -> &Cluster {
        match &self.whole {
            Whole::Version(version) => version,
            Whole::Fork(fork) => fork,
        }
    }

    fn check(&self, when: &str) -> Result<(), String> {
        let (cluster, by) = (self.cluster(), self.by);
        let which = || format!("generation {}, {by}, {when}", cluster.generation().0);
        finds_its_pods(cluster).map_err(|why| format!("{}: {why}", which()))?;
        if cluster.dump() == self.dump {
            Ok(())
        } else {
            Err(format!("{}: it is not what it was when it was taken", which()))
        }
    }
}

/// Every pod of a version is found by its uid, on the node that has it.
fn finds_its_pods(cluster: &Cluster) -> Result<(), String> {
    let mut count = 0;
    for pod in cluster.pods(&LabelSelector::everything(), |_| true) {
        count += 1;
        let (uid, at) = (pod.uid(), pod.node().slot());
        match cluster.pod(&uid) {
            None => {
                return Err(format!("pod {uid} on {} is not found by its uid", pod.node().name()));
            }
            Some(found) if found.node().slot() != at => {
                return Err(format!("pod {uid} on {} is found elsewhere", pod.node().name()));
            }
            Some(_) => {}
        }
    }
    if count == cluster.pod_count() {
        Ok(())
    } else {
        Err(format!("it has {count} pods and counts {}", cluster.pod_count()))
    }
}

fn a_name(random: &mut Random) -> Name {
    // Some that no Node object names: their pods are on ghosts.
    format!("n{}", random.below(NODES + 2)).into()
}

fn a_node(random: &mut Random, n: u64) -> Node {
    node(format!("n{n}"))
        .hostname()
        .zone(format!("z{}", random.below(3)))
        .cpu(64_000)
        .memory(256 << 30)
        .label("turn", random.below(7).to_string())
        .image([format!("image-{}", random.below(9))], 1 << 20)
        .build()
}

fn a_pod(random: &mut Random, name: String) -> Pod {
    let mut builder = pod(name).label("app", &format!("app-{}", random.below(40))).cpu(10);
    if random.one_in(8) {
        builder = builder.claim(format!("claim-{}", random.below(1 << 20)));
    }
    if random.one_in(8) {
        builder = builder.host_port(1_000 + random.below(50) as u16);
    }
    if random.one_in(16) {
        builder = builder.pod_affinity(PodAffinity::default());
    }
    builder.on(a_name(random)).build()
}

/// Pods come, are bound or left to expire, and go; nodes come, change and go.
fn write(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let who = random.next_u64();
    for n in 0..NODES {
        let node = a_node(&mut random, n);
        round.submit(Event::AddNode(Arc::new(node)))?;
    }
    let mut pods: Vec<Option<(Uid, bool)>> = vec![None; PODS_EACH as usize];
    let mut turn = 0_u64;
    while round.goes_on() {
        turn += 1;
        let place = random.below(PODS_EACH) as usize;
        if let Some((uid, may_expire)) = pods[place].take() {
            let gone = round.submit(Event::RemovePod { uid: uid.clone(), node: None })?;
            if gone.is_none() && !may_expire {
                return Err(format!("pod {uid} was added and is not there"));
            }
        }
        let new = a_pod(&mut random, format!("{who}-{turn}"));
        let (uid, new) = (new.uid.clone(), Arc::new(new));
        let event = Event::AssumePod { pod: new.clone(), decided_on: None };
        let Some(at) = round.submit(event)? else {
            return Err(format!("pod {uid} is new and was refused"));
        };
        let read = reader.at_least(at, None).map_err(|why| why.to_string())?;
        if read.pod(&uid).is_none() {
            return Err(format!(
                "pod {uid} was assumed at {} and is not in {}",
                at.0,
                read.generation().0
            ));
        }
        let may_expire = random.one_in(4);
        if may_expire {
            let now = Timestamp::from_secs(round.clock.load(Ordering::Relaxed));
            round.submit(Event::FinishBinding { uid: uid.clone(), now })?;
        } else if round.submit(Event::AddPod(new))?.is_none() {
            return Err(format!("pod {uid} is assumed and was not confirmed"));
        }
        pods[place] = Some((uid, may_expire));
        let n = random.below(NODES);
        match random.below(24) {
            0 => drop(round.submit(Event::RemoveNode(format!("n{n}").into()))?),
            1 | 2 => {
                let node = a_node(&mut random, n);
                round.submit(Event::UpdateNode(Arc::new(node)))?;
            }
            _ => {}
        }
    }
    Ok(Vec::new())
}

/// Time passes, pods expire, memory is asked back, and now and then all is rebuilt and compared.
fn sweep(round: &Round<'_>, _: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.goes_on() {
        let now = round.clock.fetch_add(1, Ordering::Relaxed) + 1;
        round.submit(Event::Expire(Timestamp::from_secs(now)))?;
        if random.one_in(4) {
            let worked = round.engine.with_writer(|writer| {
                writer.reclaim();
                writer.figures()
            });
            let figures = worked.map_err(|_| "a fold panicked")?;
            if figures.published > figures.generation || figures.oldest_held > figures.published {
                return Err(format!("{figures:?}"));
            }
        }
        if random.one_in(64) {
            let audit = round.engine.with_writer(|writer| writer.cluster().audit());
            if let Some(first) = audit.map_err(|_| "a fold panicked")?.first() {
                return Err(format!("the audit of the writer: {first}"));
            }
        }
        thread::sleep(Duration::from_millis(3));
    }
    Ok(Vec::new())
}

/// Weak handles of versions are upgraded in a tight loop, which meets the moment in which the writer is about to free
/// them; what an upgrade gives back is a version like any other, however long it is held from then on.
fn weaken(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    const BY: &str = "from a weak handle";
    let mut kept: Vec<Held> = Vec::new();
    let mut turn = 0_u64;
    while round.goes_on() {
        turn += 1;
        let weak: Weak<Snapshot> = Arc::downgrade(&reader.snapshot());
        for _ in 0..4_000 {
            let Some(again) = weak.upgrade() else { break };
            // The writer may be giving up its own handle at this moment. If nobody else has the version afterwards, it
            // is the likeliest to lack something later, and kept; others at random.
            (0..8).for_each(|_| std::hint::spin_loop());
            if Arc::strong_count(&again) == 1 || random.one_in(1 << 20) {
                kept.push(Held::version(again, BY));
                break;
            }
        }
        if kept.len() > 6 {
            let at = random.index(kept.len());
            kept.swap_remove(at).check("while it was held")?;
        }
        if turn.is_multiple_of(256) {
            kept.iter().try_for_each(|held| held.check("while it was held"))?;
        }
    }
    kept.iter().try_for_each(|held| held.check("at the end of the round"))?;
    Ok(kept)
}

/// Owned versions are held and dropped in any order.
fn hold(round: &Round<'_>, mut reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut kept = Vec::new();
    let mut live = Generation::ZERO;
    while round.goes_on() {
        let version = match random.below(3) {
            0 => reader.snapshot(),
            1 => reader.refresh().clone(),
            _ => {
                let at = reader.generation();
                let soon = Some(Instant::now() + Duration::from_millis(1));
                reader.at_least(at, soon).map_err(|why| why.to_string())?
            }
        };
        kept.push(Held::version(version, "an owned version"));
        while kept.len() > 6 || (!kept.is_empty() && random.one_in(3)) {
            let at = random.index(kept.len());
            kept.swap_remove(at).check("while it was held")?;
        }
        let (at, _) = reader.get_pod(&a_pod(&mut random, "nobody".to_owned()).uid);
        if at < live {
            return Err(format!("the live index went back from {} to {}", live.0, at.0));
        }
        live = at;
        if random.one_in(8) {
            reader.release();
        }
        thread::sleep(Duration::from_micros(random.below(2_000)));
    }
    Ok(kept)
}

/// Forks and forks of forks are changed, held, and dropped in any order, without the versions that they start at.
fn fork(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut kept: Vec<Held> = Vec::new();
    let mut turn = 0;
    while round.goes_on() {
        turn += 1;
        let mut fork = match kept.last() {
            Some(held) if random.one_in(3) => held.cluster().fork(),
            _ => reader.snapshot().fork(),
        };
        for n in 0..random.below(30) {
            let new = a_pod(&mut random, format!("forked-{turn}-{n}"));
            // A node's ports or sums may be in the way of nothing here: forks check no fit.
            fork.add_pod(&new).map_err(|why| format!("a fork refused a new pod: {why}"))?;
        }
        for _ in 0..random.below(30) {
            let name = a_name(&mut random);
            let gone = fork.node(&name).and_then(|node| node.pods().next().map(|pod| pod.uid()));
            if let Some(uid) = gone {
                fork.remove_pod(&uid)
                    .map_err(|why| format!("a fork lacks a pod it lists: {why}"))?;
            }
        }
        if let Some(name) = Some(a_name(&mut random)).filter(|name| fork.node(name).is_some()) {
            fork.remove_node(&name)
                .map_err(|why| format!("a fork lacks a node it lists: {why}"))?;
        }
        if random.one_in(8)
            && let Some(first) = fork.audit().first()
        {
            return Err(format!("the audit of a fork: {first}"));
        }
        kept.push(Held::fork(fork, "a fork"));
        while kept.len() > 5 || (!kept.is_empty() && random.one_in(4)) {
            let at = random.index(kept.len());
            kept.swap_remove(at).check("while it was held")?;
        }
        thread::sleep(Duration::from_micros(random.below(2_000)));
    }
    Ok(kept)
}

/// Readers panic with guards, owned versions and forks in their hands.
fn panic(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.goes_on() {
        let (dies, with) = (reader.clone(), random.below(3));
        let died = catch_unwind(AssertUnwindSafe(move || {
            let outer = dies.pin();
            let _owned = (with > 0).then(|| dies.snapshot());
            let _fork = (with > 1).then(|| outer.fork());
            let _inner = dies.pin();
            // Without the hook, which would print.
            std::panic::resume_unwind(Box::new(()));
        }));
        if died.is_ok() {
            return Err("a panic was lost".to_owned());
        }
        thread::sleep(Duration::from_micros(random.below(4_000)));
    }
    Ok(Vec::new())
}

/// Guards, versions and forks are forgotten: their memory is lost, and nothing else is.
fn forget(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut forgotten = Vec::new();
    while round.goes_on() {
        if forgotten.len() < FORGOTTEN {
            let lost: &'static Reader = Box::leak(Box::new(reader.clone()));
            let cluster: &'static Cluster = match random.below(3) {
                0 => Box::leak(Box::new(lost.pin())),
                1 => Box::leak(Box::new(lost.snapshot())),
                _ => Box::leak(Box::new(lost.pin().fork())),
            };
            forgotten.push((cluster, cluster.dump()));
        }
        for (cluster, dump) in &forgotten {
            let which = || format!("what was forgotten at {}", cluster.generation().0);
            finds_its_pods(cluster).map_err(|why| format!("{}: {why}", which()))?;
            if cluster.dump() != *dump {
                return Err(format!("{} changed", which()));
            }
        }
        thread::sleep(Duration::from_millis(50 + random.below(400)));
    }
    Ok(Vec::new())
}

/// Readers are made, sent to threads, cloned there and dropped, guards of theirs in any order.
fn come_and_go(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.goes_on() {
        let how_many = 1 + random.below(12);
        let seen: Vec<Result<(), String>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..how_many)
                .map(|n| {
                    let reader = reader.clone();
                    scope.spawn(move || visit(reader, Random::new(n)))
                })
                .collect();
            let panicked = || Err("a visiting reader panicked".to_owned());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        seen.into_iter().collect::<Result<(), String>>()?;
        thread::sleep(Duration::from_micros(random.below(3_000)));
    }
    Ok(Vec::new())
}

fn visit(mut reader: Reader, mut random: Random) -> Result<(), String> {
    let mut last = Generation::ZERO;
    for _ in 0..1 + random.below(6) {
        let another = reader.clone();
        let (first, second) = (reader.pin(), another.pin());
        let third = reader.pin();
        if third.generation() < first.generation() || first.generation() < last {
            return Err("a reader went back to an older version".to_owned());
        }
        last = third.generation();
        finds_its_pods(&second)?;
        // The oldest guard first.
        drop(first);
        finds_its_pods(&third)?;
        drop((third, second));
        let kept = reader.refresh();
        if kept.generation() < last {
            return Err("a kept version is older than a pin".to_owned());
        }
        last = kept.generation();
    }
    Ok(())
}

//! Readers that do what no careful caller does, against a sequence of engines that live a few seconds each.
//!
//! Weak handles are upgraded at random, versions and forks are held and dropped in any order, readers panic, come and
//! go, guards and handles are leaked, and pods expire meanwhile. Whatever a thread holds must stay unchanged: it must
//! keep the same dump, and every pod must be found by its uid. The versions and forks that are held at the end of a
//! round are compared once more after the engine is dropped.
//!
//! Rounds are short because a leaked guard retains its version and everything removed later as long as its engine
//! lives. Leaking without limit would only measure memory, which the other mode does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use portolan::cache::{Cluster, CommitPolicy, Config, Dump, Engine, Event, Fork, Reader, Snapshot};
use portolan::model::{
    Generation, LabelSelector, Name, Node, Pod, PodAffinity, Timestamp, Uid, node, pod,
};
use portolan_testkit::random::Random;

const NODES: u64 = 48;
const PODS_EACH: u64 = 240;
const TTL: Duration = Duration::from_secs(5);
/// The lifetime of an engine.
const ROUND: Duration = Duration::from_secs(4);
/// The number of guards or handles leaked per round.
const FORGOTTEN: usize = 3;

type Job = fn(&Round<'_>, Reader, Random) -> Result<Vec<Held>, String>;

/// The threads of a round.
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

/// The state shared by the threads of a round.
struct Round<'a> {
    engine: &'a Engine,
    stop: AtomicBool,
    /// The clock of bindings and sweeps, in seconds.
    clock: AtomicI64,
    found: Mutex<Option<String>>,
}

/// Runs rounds for `time`, and returns their number, or the failure and its round.
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
        // Every pod is new and must be accepted, whether or not it fits.
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    };
    let engine = Engine::shared(config);
    let round = Round {
        engine: &engine,
        stop: AtomicBool::new(false),
        clock: AtomicI64::new(0),
        found: Mutex::new(None),
    };
    let kept: Vec<Held> = thread::scope(|scope| {
        // Some rounds run only a few threads, which then interleave more often, in particular on machines with few
        // processors.
        let jobs = if seed % 4 < 2 { &JOBS[..2] } else { &JOBS[..] };
        let mut threads = Vec::new();
        for (at, (name, job)) in jobs.iter().enumerate() {
            let Ok(reader) = engine.reader() else { break };
            let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(at as u64));
            let round = &round;
            threads.push(scope.spawn(move || round.watch(name, || job(round, reader, random))));
        }
        let ends = Instant::now() + time;
        while Instant::now() < ends && round.is_running() {
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
        Ok([first, ..]) => return Err(format!("the writer's audit failed: {first}")),
        Err(_) => return Err("a fold panicked".to_owned()),
    }
    drop(engine);
    kept.iter().try_for_each(|held| held.check("after the engine was dropped"))
}

impl Round<'_> {
    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Runs a thread's work. The first failure ends the round.
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

    /// Submits an event, and returns the generation at which it was applied, or `None` if it was refused.
    fn submit(&self, event: Event) -> Result<Option<Generation>, String> {
        let closed = "the engine closed while it was in use";
        let ticket = self.engine.submit(event).map_err(|_| closed)?;
        let outcome = ticket.wait().map_err(|_| closed)?;
        Ok(outcome.ok().map(|applied| applied.generation))
    }
}

/// What a thread holds: a version or a fork.
enum Whole {
    Version(Arc<Snapshot>),
    Fork(Box<Fork>),
}

/// A held version or fork, with its dump at the time when it was taken.
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
        check_pods(cluster).map_err(|why| format!("{}: {why}", which()))?;
        if cluster.dump() == self.dump {
            Ok(())
        } else {
            Err(format!("{}: it changed while it was held", which()))
        }
    }
}

/// Checks that every pod of a version is found by its uid, on its node.
fn check_pods(cluster: &Cluster) -> Result<(), String> {
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
        Err(format!("it has {count} pods but reports {}", cluster.pod_count()))
    }
}

fn random_name(random: &mut Random) -> Name {
    // Some names have no Node object, so that their pods are on ghost nodes.
    format!("n{}", random.below(NODES + 2)).into()
}

fn random_node(random: &mut Random, n: u64) -> Node {
    node(format!("n{n}"))
        .hostname()
        .zone(format!("z{}", random.below(3)))
        .cpu(64_000)
        .memory(256 << 30)
        .label("turn", random.below(7).to_string())
        .image([format!("image-{}", random.below(9))], 1 << 20)
        .build()
}

fn random_pod(random: &mut Random, name: String) -> Pod {
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
    builder.on(random_name(random)).build()
}

/// Pods are added, bound or left to expire, and removed; nodes are added, changed and removed.
fn write(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let who = random.next_u64();
    for n in 0..NODES {
        let node = random_node(&mut random, n);
        round.submit(Event::AddNode(Arc::new(node)))?;
    }
    let mut pods: Vec<Option<(Uid, bool)>> = vec![None; PODS_EACH as usize];
    let mut turn = 0_u64;
    while round.is_running() {
        turn += 1;
        let place = random.below(PODS_EACH) as usize;
        if let Some((uid, may_expire)) = pods[place].take() {
            let gone = round.submit(Event::RemovePod { uid: uid.clone(), node: None })?;
            if gone.is_none() && !may_expire {
                return Err(format!("pod {uid} was added but does not exist"));
            }
        }
        let new = random_pod(&mut random, format!("{who}-{turn}"));
        let (uid, new) = (new.uid.clone(), Arc::new(new));
        let event = Event::assume(new.clone());
        let Some(at) = round.submit(event)? else {
            return Err(format!("pod {uid} is new but was refused"));
        };
        let read = reader.at_least(at, None).map_err(|why| why.to_string())?;
        if read.pod(&uid).is_none() {
            return Err(format!(
                "pod {uid} was assumed at {} but is missing from {}",
                at.0,
                read.generation().0
            ));
        }
        let may_expire = random.one_in(4);
        if may_expire {
            let now = Timestamp::from_secs(round.clock.load(Ordering::Relaxed));
            round.submit(Event::FinishBinding { uid: uid.clone(), now })?;
        } else if round.submit(Event::AddPod(new))?.is_none() {
            return Err(format!("pod {uid} is assumed but was not confirmed"));
        }
        pods[place] = Some((uid, may_expire));
        let n = random.below(NODES);
        match random.below(24) {
            0 => drop(round.submit(Event::RemoveNode(format!("n{n}").into()))?),
            1 | 2 => {
                let node = random_node(&mut random, n);
                round.submit(Event::UpdateNode(Arc::new(node)))?;
            }
            _ => {}
        }
    }
    Ok(Vec::new())
}

/// Advances the clock, expires pods, reclaims memory, and now and then audits the state.
fn sweep(round: &Round<'_>, _: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.is_running() {
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
                return Err(format!("the writer's audit failed: {first}"));
            }
        }
        thread::sleep(Duration::from_millis(3));
    }
    Ok(Vec::new())
}

/// Upgrades weak handles of versions in a tight loop, to hit the moment at which the writer is about to free them. An
/// upgraded handle is a version like any other, however long it is held afterwards.
fn weaken(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    const BY: &str = "from a weak handle";
    let mut kept: Vec<Held> = Vec::new();
    let mut turn = 0_u64;
    while round.is_running() {
        turn += 1;
        let weak: Weak<Snapshot> = Arc::downgrade(&reader.snapshot());
        for _ in 0..4_000 {
            let Some(again) = weak.upgrade() else { break };
            // The writer may be dropping its own handle at this moment. If no other handle exists afterwards, this
            // version is the most likely one to lose data later, so it is kept. Others are kept at random.
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

/// Holds owned versions, and drops them in any order.
fn hold(round: &Round<'_>, mut reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut kept = Vec::new();
    while round.is_running() {
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
        if random.one_in(8) {
            reader.release();
        }
        thread::sleep(Duration::from_micros(random.below(2_000)));
    }
    Ok(kept)
}

/// Changes forks and forks of forks, holds them, and drops them in any order, without the versions that they were
/// created from.
fn fork(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut kept: Vec<Held> = Vec::new();
    let mut turn = 0;
    while round.is_running() {
        turn += 1;
        let mut fork = match kept.last() {
            Some(held) if random.one_in(3) => held.cluster().fork(),
            _ => reader.snapshot().fork(),
        };
        for n in 0..random.below(30) {
            let new = random_pod(&mut random, format!("forked-{turn}-{n}"));
            // A fork does not check whether pods fit, so this cannot fail.
            fork.add_pod(&new).map_err(|why| format!("a fork refused a new pod: {why}"))?;
        }
        for _ in 0..random.below(30) {
            let name = random_name(&mut random);
            let gone = fork.node(&name).and_then(|node| node.pods().next().map(|pod| pod.uid()));
            if let Some(uid) = gone {
                fork.remove_pod(&uid)
                    .map_err(|why| format!("a fork lacks a pod it lists: {why}"))?;
            }
        }
        if let Some(name) = Some(random_name(&mut random)).filter(|name| fork.node(name).is_some())
        {
            fork.remove_node(&name)
                .map_err(|why| format!("a fork lacks a node it lists: {why}"))?;
        }
        if random.one_in(8)
            && let Some(first) = fork.audit().first()
        {
            return Err(format!("the audit of a fork failed: {first}"));
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

/// Readers panic while they hold guards, owned versions and forks.
fn panic(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.is_running() {
        let (dies, with) = (reader.clone(), random.below(3));
        let died = catch_unwind(AssertUnwindSafe(move || {
            let outer = dies.pin();
            let _owned = (with > 0).then(|| dies.snapshot());
            let _fork = (with > 1).then(|| outer.fork());
            let _inner = dies.pin();
            // Bypasses the panic hook, which would print.
            std::panic::resume_unwind(Box::new(()));
        }));
        if died.is_ok() {
            return Err("a panic was swallowed".to_owned());
        }
        thread::sleep(Duration::from_micros(random.below(4_000)));
    }
    Ok(Vec::new())
}

/// Leaks guards, versions and forks, which must lose their memory and nothing else.
fn forget(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    let mut forgotten = Vec::new();
    while round.is_running() {
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
            let which = || format!("the handle leaked at generation {}", cluster.generation().0);
            check_pods(cluster).map_err(|why| format!("{}: {why}", which()))?;
            if cluster.dump() != *dump {
                return Err(format!("{} changed", which()));
            }
        }
        thread::sleep(Duration::from_millis(50 + random.below(400)));
    }
    Ok(Vec::new())
}

/// Creates readers, sends them to threads, clones and drops them there, and drops their guards in any order.
fn come_and_go(round: &Round<'_>, reader: Reader, mut random: Random) -> Result<Vec<Held>, String> {
    while round.is_running() {
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
        check_pods(&second)?;
        // Drops the oldest guard first.
        drop(first);
        check_pods(&third)?;
        drop((third, second));
        let kept = reader.refresh();
        if kept.generation() < last {
            return Err("a kept version is older than a pin".to_owned());
        }
        last = kept.generation();
    }
    Ok(())
}

//! Compares the cost of a pin: our own cell, arc-swap, a lock around an `Arc`, and left-right, alternating in one
//! process.
//!
//! `cargo bench --bench read` prints the nanoseconds of a pin with one access to the version, for one and two readers,
//! beside an idle writer and beside one that publishes continuously. Batches of 100 pins are timed and divided, so the
//! columns are percentiles over batches. Each turn runs every candidate for the same time, in changing order. The last
//! columns are the median and the spread, over the turns, of the ratio of a candidate's median to ours; above 1 we are
//! faster. All figures include reading the clock, about a third of a nanosecond each. With more threads than cores the
//! tails show the operating system's scheduler.
//!
//! It then measures the other ways to obtain a version, and the cost that registered readers add to a publish.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use portolan_publish::{Publisher, Subscription, Versioned};
use portolan_testkit::measure::{Sorted, ratios, rotate};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TURNS: usize = 11;
const A_TURN: Duration = Duration::from_millis(100);
const BATCH: usize = 100;

/// The published value: two cache lines of content.
struct Version {
    number: u64,
    _content: [u64; 15],
}

impl Version {
    fn new(number: u64) -> Arc<Version> {
        Arc::new(Version { number, _content: [number; 15] })
    }
}

impl Versioned for Version {
    fn version(&self) -> u64 {
        self.number
    }
}

/// A common interface of the candidates.
trait Rival: Send + 'static {
    type Reader: Send;
    const NAME: &'static str;

    fn new() -> Self;
    fn reader(&self) -> Self::Reader;
    fn publish(&mut self, number: u64);
    /// Pins a version, reads its number and releases it.
    fn pin(reader: &Self::Reader) -> u64;
}

/// Our own cell behind a publisher.
struct Rcu(Publisher<Version>);

impl Rival for Rcu {
    type Reader = Subscription<Version>;
    const NAME: &'static str = "rcu";

    fn new() -> Self {
        Self(Publisher::new(Version::new(0)))
    }

    fn reader(&self) -> Self::Reader {
        self.0.subscribe()
    }

    fn publish(&mut self, number: u64) {
        let published = self.0.publish(Version::new(number));
        debug_assert!(published.is_ok());
    }

    #[inline]
    fn pin(reader: &Self::Reader) -> u64 {
        reader.pin().number
    }
}

struct ArcSwap(Arc<arc_swap::ArcSwap<Version>>);

impl Rival for ArcSwap {
    type Reader = Arc<arc_swap::ArcSwap<Version>>;
    const NAME: &'static str = "arc-swap";

    fn new() -> Self {
        Self(Arc::new(arc_swap::ArcSwap::new(Version::new(0))))
    }

    fn reader(&self) -> Self::Reader {
        self.0.clone()
    }

    fn publish(&mut self, number: u64) {
        self.0.store(Version::new(number));
    }

    #[inline]
    fn pin(reader: &Self::Reader) -> u64 {
        reader.load().number
    }
}

struct Locked(Arc<RwLock<Arc<Version>>>);

impl Rival for Locked {
    type Reader = Arc<RwLock<Arc<Version>>>;
    const NAME: &'static str = "RwLock<Arc<_>>";

    fn new() -> Self {
        Self(Arc::new(RwLock::new(Version::new(0))))
    }

    fn reader(&self) -> Self::Reader {
        self.0.clone()
    }

    fn publish(&mut self, number: u64) {
        let next = Version::new(number);
        let old = std::mem::replace(&mut *self.0.write().expect("no thread panicked"), next);
        drop(old);
    }

    #[inline]
    fn pin(reader: &Self::Reader) -> u64 {
        reader.read().expect("no thread panicked").number
    }
}

#[derive(Clone)]
struct Copy(Arc<Version>);

impl left_right::Absorb<Arc<Version>> for Copy {
    fn absorb_first(&mut self, next: &mut Arc<Version>, _: &Self) {
        self.0 = next.clone();
    }

    fn sync_with(&mut self, first: &Self) {
        self.0 = first.0.clone();
    }
}

struct LeftRight(left_right::WriteHandle<Copy, Arc<Version>>);

impl Rival for LeftRight {
    type Reader = left_right::ReadHandle<Copy>;
    const NAME: &'static str = "left-right";

    fn new() -> Self {
        Self(left_right::new_from_empty(Copy(Version::new(0))).0)
    }

    fn reader(&self) -> Self::Reader {
        Self::Reader::clone(&self.0)
    }

    fn publish(&mut self, number: u64) {
        self.0.append(Version::new(number)).publish();
    }

    #[inline]
    fn pin(reader: &Self::Reader) -> u64 {
        reader.enter().map_or(0, |copy| copy.0.number)
    }
}

/// Sorted nanoseconds per pin of each batch, and publishes per second.
struct Sample {
    pins: Sorted<f32>,
    publishes: f64,
}

fn sample<R: Rival>(readers: usize, busy: bool) -> Sample {
    let mut rival = R::new();
    let (stop, start) = (AtomicBool::new(false), Barrier::new(readers + 1));
    let reading: Vec<R::Reader> = (0..readers).map(|_| rival.reader()).collect();
    thread::scope(|scope| {
        let (stop, start) = (&stop, &start);
        let handles: Vec<_> = reading
            .into_iter()
            .map(|reader| {
                scope.spawn(move || {
                    let mut pins = Vec::with_capacity(1 << 20);
                    start.wait();
                    let mut before = Instant::now();
                    while !stop.load(Ordering::Relaxed) && pins.len() < pins.capacity() {
                        for _ in 0..BATCH {
                            black_box(R::pin(&reader));
                        }
                        let now = Instant::now();
                        pins.push((now - before).as_nanos() as f32 / BATCH as f32);
                        before = now;
                    }
                    pins
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        let mut number = 0;
        while started.elapsed() < A_TURN {
            if busy {
                (0..64).for_each(|_| {
                    number += 1;
                    rival.publish(number);
                });
            } else {
                thread::sleep(A_TURN / 8);
            }
        }
        let publishes = number as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let pins = handles
            .into_iter()
            .flat_map(|reader| reader.join().expect("no reader thread panicked"));
        Sample { pins: Sorted::new(pins), publishes }
    })
}

fn pins() {
    type Sampler = fn(usize, bool) -> Sample;
    let rivals: [(&str, Sampler); 5] = [
        (Rcu::NAME, sample::<Rcu>),
        ("rcu (noise)", sample::<Rcu>),
        (ArcSwap::NAME, sample::<ArcSwap>),
        (Locked::NAME, sample::<Locked>),
        (LeftRight::NAME, sample::<LeftRight>),
    ];
    for readers in [1, 2] {
        for busy in [false, true] {
            let writer = if busy { "a continuously publishing writer" } else { "an idle writer" };
            println!("\n{readers} reader(s), {writer}: ns per pin");
            println!(
                "{:<16} {:>8} {:>8} {:>8} {:>10} {:>12}   to rcu: p50 [p10, p90]",
                "", "p50", "p99", "p99.9", "max", "publishes/s"
            );
            let samples = rotate(TURNS, rivals.len(), |which, _| rivals[which].1(readers, busy));
            let median = |sample: &Sample| f64::from(sample.pins.quantile(0.5));
            let medians: Vec<Vec<f64>> =
                samples.iter().map(|samples| samples.iter().map(median).collect()).collect();
            for (which, (name, _)) in rivals.iter().enumerate() {
                let ratios = ratios(&medians[which], &medians[0]);
                let [middle, low, high] = ratios.median_and_spread();
                let publishes: f64 =
                    samples[which].iter().map(|s| s.publishes).sum::<f64>() / TURNS as f64;
                let all = samples[which].iter().flat_map(|s| s.pins.values().iter().copied());
                let all = Sorted::new(all);
                println!(
                    "{name:<16} {:>8.2} {:>8.2} {:>8.2} {:>10.1} {publishes:>12.0}   {middle:.2} [{low:.2}, {high:.2}]",
                    all.quantile(0.5),
                    all.quantile(0.99),
                    all.quantile(0.999),
                    all.quantile(1.0),
                );
            }
        }
    }
}

/// Prints the median and the spread over batches.
fn row(name: &str, unit: &str, mut batch: impl FnMut() -> f64) {
    let values = Sorted::new((0..201).map(|_| batch()));
    let [middle, low, high] = values.median_and_spread();
    println!("{name:<58} {middle:>8.2} {unit} [{low:.2}, {high:.2}]");
}

fn ns_each(count: usize, mut work: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        work();
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// Measures the ways to obtain a version from our cell.
fn ways() {
    let publisher: Publisher<Version> = Publisher::new(Version::new(0));
    let mut reader = publisher.subscribe();
    println!();
    row("pin of the same version as before", "ns", || {
        ns_each(1_000, || drop(black_box(reader.pin())))
    });
    row("pin after release", "ns", || {
        ns_each(1_000, || {
            reader.release();
            drop(black_box(reader.pin()));
        })
    });
    row("snapshot", "ns", || ns_each(1_000, || drop(black_box(reader.snapshot()))));
    row("refresh of an unchanged version", "ns", || {
        ns_each(1_000, || {
            black_box(reader.refresh());
        })
    });
}

/// Measures what 64 registered readers add to a publish.
fn publishes() {
    const EACH: usize = 1_000;
    fn publish(publisher: &mut Publisher<Version>) -> f64 {
        let mut number = publisher.published();
        ns_each(EACH, || {
            number += 1;
            let published = publisher.publish(Version::new(number));
            debug_assert!(published.is_ok());
        }) / 1_000.0
    }
    println!();
    let mut alone: Publisher<Version> = Publisher::new(Version::new(0));
    let mut idle: Publisher<Version> = Publisher::new(Version::new(0));
    let _readers: Vec<_> = (0..64).map(|_| idle.subscribe()).collect();
    row("publish, no reader", "us", || publish(&mut alone));
    row("publish, 64 registered readers", "us", || publish(&mut idle));
    // One thread acts for 64 readers, each of which announces every version that it pins.
    let mut busy: Publisher<Version> = Publisher::new(Version::new(0));
    let readers: Vec<_> = (0..64).map(|_| busy.subscribe()).collect();
    let (stop, pinned) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let readers = readers;
            while !stop.load(Ordering::Relaxed) {
                for reader in &readers {
                    black_box(reader.pin().number);
                }
                pinned.fetch_add(64, Ordering::Relaxed);
            }
        });
        row("publish, 64 continuously pinning readers", "us", || publish(&mut busy));
        stop.store(true, Ordering::Relaxed);
    });
    let figures = busy.figures();
    println!("{} pins during the run, {} versions freed", pinned.into_inner(), figures.freed);
}

fn main() {
    // Returns early in a run without measurements, such as a test run.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    pins();
    ways();
    publishes();
}

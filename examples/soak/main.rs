//! Runs everything at once on one engine for some minutes: threads that write through the log, readers, forks, a
//! scheduler, and readers that panic, stall or never return. Checks that neither memory nor progress suffers.
//!
//! `cargo run --release --example soak -- --minutes 5`
//!
//! The memory check has three parts. In the *calm* part readers come, go and panic, and live bytes must not grow. In
//! the *stalled* part a reader pins a version and stops. In the *lost* part a thread ends without releasing its pin.
//! Both may retain the pinned version and what has been removed since, within a measured limit, and must not delay any
//! other thread. After the stalled part the memory must be freed.
//!
//! Before that, for a fifth of the time, readers misbehave in every way that the types allow, see [`hostile`]. `--mode
//! memory` or `--mode hostile` runs only one of the two.
//!
//! If a check fails, the exit status is 1 and a line names the check.

mod crew;
mod gauge;
mod hostile;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use portolan::cache::{CommitPolicy, Config, Engine, Figures};

use crew::{Counts, NODES, PODS_EACH};
use gauge::{Part, Sample};

/// The duration and the number of threads.
#[derive(Parser)]
struct Options {
    /// Total minutes, at least 0.1
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Number of writing threads
    #[arg(long, default_value_t = 2)]
    writers: usize,
    /// Number of reading threads
    #[arg(long, default_value_t = 3)]
    readers: usize,
    /// Checks to run
    #[arg(long, value_enum, default_value_t = Mode::All)]
    mode: Mode,
    /// Seed of the hostile readers; the interleaving of threads still varies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The checks to run.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// Hostile readers for a fifth of the time, then memory and progress
    All,
    /// Only memory and progress
    Memory,
    /// Only hostile readers
    Hostile,
}

/// The time between two samples; every tenth sample is printed.
const PERIOD: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    let options = Options::parse();
    let mut minutes = options.minutes.max(0.1);
    if options.mode != Mode::Memory {
        let share = if options.mode == Mode::All { 0.2 } else { 1.0 };
        println!("hostile readers for {:.1} minutes, seed {}", minutes * share, options.seed);
        match hostile::run(Duration::from_secs_f64(minutes * share * 60.0), options.seed) {
            Ok(rounds) => println!("hostile readers: {rounds} rounds passed"),
            Err(why) => {
                println!("FAILED: hostile readers, {why}");
                return ExitCode::FAILURE;
            }
        }
        if options.mode == Mode::Hostile {
            return ExitCode::SUCCESS;
        }
        minutes *= 1.0 - share;
    }
    let engine = Engine::shared(Config {
        log_capacity: Some(64),
        // Pods are added and removed at random, whether or not they fit.
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    });
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    println!(
        "{} writers, {} readers, {NODES} nodes, {PODS_EACH} pods per writer, for {minutes:.1} minutes",
        options.writers, options.readers
    );
    let verdict = thread::scope(|scope| {
        let _stop = crew::Stop(&stop);
        for writer in 0..options.writers {
            let engine = engine.clone();
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || crew::write(&engine, writer, stop, counts));
        }
        for seed in 0..options.readers {
            let reader = engine.reader().expect("no fold has panicked");
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || crew::read(reader, seed, stop, counts));
        }
        for work in [crew::fork, crew::decide, crew::panic_while_pinned] {
            let reader = engine.reader().expect("no fold has panicked");
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || work(reader, stop, counts));
        }
        soak(&engine, Duration::from_secs_f64(minutes * 60.0), &counts)
    });
    engine.close();
    let whole = engine.with_writer(|writer| writer.cluster().audit());
    match (verdict, whole) {
        (Ok(()), Ok(audit)) if audit.is_empty() => {
            println!("passed: {}", counts.summary());
            ExitCode::SUCCESS
        }
        (verdict, audit) => {
            for why in verdict.err().into_iter().flatten() {
                println!("FAILED: {why}");
            }
            match audit {
                Ok(audit) => audit.iter().for_each(|why| println!("FAILED: the audit: {why}")),
                Err(_) => println!("FAILED: a fold panicked"),
            }
            ExitCode::FAILURE
        }
    }
}

/// Samples for `all`, part by part, and returns the failed checks, if any.
fn soak(engine: &Engine, all: Duration, counts: &Counts) -> Result<(), Vec<String>> {
    // Lets pools and tables grow to their final sizes.
    sample(engine, Part::Warm, all.mul_f64(0.2), counts);
    let calm = sample(engine, Part::Calm, all.mul_f64(0.4), counts);
    let mut failed = gauge::judge_calm(&calm);

    // A reader that stalls with a pin, on a thread that waits for a signal.
    let (wake, sleep) = mpsc::channel::<()>();
    let reader = engine.reader().map_err(|_| vec!["a fold panicked".to_owned()])?;
    let stalled = thread::spawn(move || {
        let pinned = reader.pin();
        let _ = sleep.recv();
        pinned.pod_count()
    });
    let part = sample(engine, Part::Stalled, all.mul_f64(0.15), counts);
    failed.extend(gauge::judge_pinned(&calm, &part));
    drop(wake);
    if stalled.join().is_err() {
        failed.push("the thread of the stalled reader panicked".to_owned());
    }
    let part = sample(engine, Part::Freed, all.mul_f64(0.1), counts);
    failed.extend(gauge::judge_freed(&calm, &part));

    // A thread that ends without releasing its pin: its guard and its reader are never dropped.
    let reader = engine.reader().map_err(|_| vec!["a fold panicked".to_owned()])?;
    let lost = thread::spawn(move || std::mem::forget(Box::leak(Box::new(reader)).pin()));
    if lost.join().is_err() {
        failed.push("a reader panicked".to_owned());
    }
    let part = sample(engine, Part::Lost, all.mul_f64(0.15), counts);
    failed.extend(gauge::judge_pinned(&calm, &part));
    failed.is_empty().then_some(()).ok_or(failed)
}

/// Takes samples for `time`.
fn sample(engine: &Engine, part: Part, time: Duration, counts: &Counts) -> Vec<Sample> {
    let (started, mut samples) = (Instant::now(), Vec::new());
    while started.elapsed() < time {
        thread::sleep(PERIOD);
        // Reclaims memory explicitly, so that only what is still held is counted.
        let figures: Figures = engine
            .with_writer(|writer| {
                writer.reclaim();
                writer.figures()
            })
            .unwrap_or_else(|_| std::process::exit(1));
        let sample = Sample::new(figures, counts);
        if samples.len() % 10 == 9 {
            println!("{part:<8?} {sample}");
        }
        samples.push(sample);
        if counts.failed.load(Ordering::Relaxed) {
            println!("FAILED: a thread panicked, see above");
            std::process::exit(1);
        }
    }
    samples
}

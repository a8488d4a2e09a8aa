//! Minutes of everything at once on one engine: threads that write through the
//! log, readers, forks, a scheduler, readers that panic, that stall and that are
//! never seen again; and whether memory or progress suffers.
//!
//! `cargo run --release --example soak -- --minutes 5`
//!
//! Three parts. In the *calm* one readers come, go and panic, and live bytes must
//! not grow. In the *stalled* one a reader pins a version and does not go on; in
//! the *lost* one a thread ends without letting go of its pin. Both may cost the
//! version that they pinned and what went since, which is counted, and must not
//! hold anybody up; after the stalled part the memory must come back.
//!
//! Before that, for a fifth of the time, readers misbehave in every way that the types allow, see [`hostile`].
//! `--mode memory` or `--mode hostile` runs one of both alone.
//!
//! The exit status is 1 if any of this fails, with a line that says what.

mod crew;
mod gauge;
mod hostile;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use portolan::{CommitPolicy, Config, Engine, Figures};

use crew::{Counts, NODES, PODS_EACH};
use gauge::{Part, Sample};

/// How long, and with how many threads.
#[derive(Parser)]
struct Options {
    /// Minutes in all, at least a tenth.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Threads that write.
    #[arg(long, default_value_t = 2)]
    writers: usize,
    /// Threads that read.
    #[arg(long, default_value_t = 3)]
    readers: usize,
    /// Which checks to run.
    #[arg(long, value_enum, default_value_t = Mode::All)]
    mode: Mode,
    /// Seed of what hostile readers do; threads still meet by chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Which checks to run.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// Hostile readers for a fifth of the time, then memory and progress.
    All,
    /// Memory and progress alone.
    Memory,
    /// Hostile readers alone.
    Hostile,
}

/// Between two samples; every tenth is printed.
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
        live_index: true,
        // Pods come and go at random, wherever there is room or not.
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    });
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    println!(
        "{} writers, {} readers, {NODES} nodes, {PODS_EACH} pods a writer, for {minutes:.1} minutes",
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

/// Samples for so long, part by part; why it failed, if it did.
fn soak(engine: &Engine, all: Duration, counts: &Counts) -> Result<(), Vec<String>> {
    // Pools and tables reach their size.
    sample(engine, Part::Warm, all.mul_f64(0.2), counts);
    let calm = sample(engine, Part::Calm, all.mul_f64(0.4), counts);
    let mut failed = gauge::judge_calm(&calm);

    // A reader that stalls with a pin, on a thread that does not go on until told.
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
        failed.push("what the stalled reader had pinned was not whole".to_owned());
    }
    let part = sample(engine, Part::Freed, all.mul_f64(0.1), counts);
    failed.extend(gauge::judge_freed(&calm, &part));

    // A thread that ends without letting go: its guard and its reader are never dropped.
    let reader = engine.reader().map_err(|_| vec!["a fold panicked".to_owned()])?;
    let lost = thread::spawn(move || std::mem::forget(Box::leak(Box::new(reader)).pin()));
    if lost.join().is_err() {
        failed.push("a reader panicked".to_owned());
    }
    let part = sample(engine, Part::Lost, all.mul_f64(0.15), counts);
    failed.extend(gauge::judge_pinned(&calm, &part));
    failed.is_empty().then_some(()).ok_or(failed)
}

/// Takes samples for so long.
fn sample(engine: &Engine, part: Part, time: Duration, counts: &Counts) -> Vec<Sample> {
    let (started, mut samples) = (Instant::now(), Vec::new());
    while started.elapsed() < time {
        thread::sleep(PERIOD);
        // Freed by hand, so that only what somebody holds is counted.
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

//! What is measured, and what is too much of it.
//!
//! Live bytes are counted by the allocator, so that they are exact and a heap
//! that merely is in pieces fails nobody; the resident memory is printed beside
//! them and may grow by more.

use std::alloc::System;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use portolan::Figures;
use portolan_testkit::alloc::{Counting, OfProcess};

use super::crew::Counts;

#[global_allocator]
static ALLOCATOR: Counting<System, OfProcess> = Counting::of_process();

/// Which part of the soak.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Warm,
    Calm,
    Stalled,
    Freed,
    Lost,
}

/// What was at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    figures: Figures,
    live: i64,
    resident: i64,
    used: Duration,
    events: u64,
    removed: u64,
}

const MIB: i64 = 1 << 20;
/// What live bytes may swing by: versions that readers and forks hold at the moment.
const SWING: i64 = 8 * MIB;
/// How many versions all threads together hold at once, at most.
const HELD: usize = 64;
/// What an event may leave behind while a version from before it is held, so that the version still finds what it has:
/// an entry of the index of pods, its departure, a number and a name that are not used again.
const BYTES_AN_EVENT: i64 = 96;
/// What one version has that no other shares, after long enough: about all of it.
const BYTES_A_VERSION: i64 = 16 * MIB;

impl Sample {
    pub(crate) fn new(figures: Figures, counts: &Counts) -> Sample {
        Sample {
            figures,
            live: ALLOCATOR.live(),
            resident: resident(),
            used: used(),
            events: counts.events.load(Ordering::Relaxed),
            removed: counts.removed.load(Ordering::Relaxed),
        }
    }
}

/// Resident bytes; 0 where the system does not tell.
fn resident() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<i64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Processor time of all threads so far; time on the wall where the system does not tell.
fn used() -> Duration {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, is the only field that may contain blanks.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // In user mode and in the kernel, in hundredths of a second: fields 14 and 15 of proc_pid_stat(5).
    let ticks: Option<u64> = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok()).sum();
    match ticks {
        Some(ticks) if ticks > 0 => Duration::from_millis(10 * ticks),
        _ => STARTED.elapsed(),
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = match self.figures.oldest_pinned {
            Some(oldest) => format!("{} back", self.figures.published.0 - oldest.0),
            None => "none".to_owned(),
        };
        write!(
            f,
            "generation {:>9}  live {:>6.1} MiB  resident {:>6.1} MiB  retired {:>3}  oldest pin {oldest}",
            self.figures.published.0,
            self.live as f64 / MIB as f64,
            self.resident as f64 / MIB as f64,
            self.figures.retired,
        )
    }
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> i64) -> i64 {
    let mut values: Vec<i64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// How many samples are long enough for a busy machine to have run everybody: five seconds.
const WHILE: usize = 20;

/// Events in a second of processor time, in the slowest quarter of all stretches of five seconds at best.
///
/// A machine with other work gives fewer seconds of it, which is nobody's fault here. A writer that waits shows all the
/// same: the readers use the time up meanwhile.
fn slowest(samples: &[Sample]) -> u64 {
    let pace = |some: &[Sample]| {
        let (first, last) = (some.first()?, some.last()?);
        let used = (last.used - first.used).as_secs_f64();
        Some(((last.events - first.events) as f64 / used.max(0.01)) as u64)
    };
    let stretches = samples.windows(WHILE.min(samples.len()).max(2));
    let mut paces: Vec<u64> = stretches.filter_map(pace).collect();
    paces.sort_unstable();
    paces.get(paces.len() / 4).copied().unwrap_or(0)
}

/// Versions are published all the time.
fn progress(samples: &[Sample]) -> Vec<String> {
    let published = |sample: &Sample| sample.figures.published;
    let stands = samples
        .windows(WHILE.min(samples.len()).max(2))
        .any(|some| some.first().map(published) >= some.last().map(published));
    stands.then(|| "for five seconds no version was published".to_owned()).into_iter().collect()
}

/// The most versions that were retired in two samples in a row. In one sample there may be any number: a reader that
/// the system suspends while it announces a pin may reach all versions, until it runs again.
fn kept_on(samples: &[Sample]) -> usize {
    let both = |pair: &[Sample]| pair.iter().map(|sample| sample.figures.retired).min();
    samples.windows(2).filter_map(both).max().unwrap_or(0)
}

/// Nothing grows while readers come, go and panic.
pub(crate) fn judge_calm(samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let live = |samples| median(samples, |sample| sample.live);
    let grown = live(last) - live(first);
    if grown > SWING {
        failed.push(format!("live bytes grew by {} KiB in the calm part", grown >> 10));
    }
    let resident = |samples| median(samples, |sample| sample.resident);
    if resident(last) - resident(first) > 4 * SWING {
        failed.push("resident memory grew in the calm part".to_owned());
    }
    let retired = kept_on(samples);
    if retired > HELD {
        failed.push(format!("{retired} versions were retired and not freed"));
    }
    println!(
        "calm: live bytes {:+} KiB from the first third to the last, at most {retired} versions retired in two samples in a row, {} events a second of processor time",
        grown >> 10,
        slowest(samples),
    );
    failed
}

/// One pin for ever costs its version, and a few bytes an event; nobody waits.
pub(crate) fn judge_pinned(calm: &[Sample], samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return failed };
    let (events, removed) = (last.events - first.events, last.removed - first.removed);
    let grown = last.live - median(calm, |sample| sample.live);
    if grown > SWING + BYTES_A_VERSION + BYTES_AN_EVENT * events as i64 {
        failed.push(format!("a pin cost {} KiB beside {events} events", grown >> 10));
    }
    // Of versions that were current before; later on nobody else is as far back.
    let late = &samples[samples.len() / 2..];
    let pinned = last.figures.oldest_pinned;
    if pinned.is_none_or(|pinned| pinned > first.figures.published)
        || late.iter().any(|sample| sample.figures.oldest_pinned != pinned)
    {
        failed.push("the oldest pin does not show the reader that stopped".to_owned());
    }
    let retired = kept_on(samples);
    if retired > HELD {
        failed.push(format!("{retired} versions were retired and not freed beside one pin"));
    }
    if slowest(samples) * 4 < slowest(calm) {
        failed.push("events took more than four times the processor time of calm ones".to_owned());
    }
    println!(
        "a reader stopped with a pin: {:+} KiB beside {events} events, {removed} pods gone: {:.0} bytes an event; at \
         most {retired} versions retired, {} events a second of processor time",
        grown >> 10,
        grown as f64 / events.max(1) as f64,
        slowest(samples),
    );
    failed
}

/// What a pin cost comes back.
pub(crate) fn judge_freed(calm: &[Sample], samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    // Forks and versions of the moment come and go by megabytes: not one sample, but the last third.
    let late = &samples[samples.len() * 2 / 3..];
    let kept = median(late, |sample| sample.live) - median(calm, |sample| sample.live);
    if kept > SWING {
        failed.push(format!("{} KiB did not come back after the pin had gone", kept >> 10));
    }
    println!("the pin gone: live bytes {:+} KiB of the calm part's", kept >> 10);
    failed
}

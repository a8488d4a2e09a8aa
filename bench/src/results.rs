//! The results of `sched`: repeated measurements are combined, and printed as a table.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use portolan_cli::count;
use portolan_cli::{plain, right};

/// The cycles per second of a result.
pub(super) fn rate(result: &Value) -> f64 {
    result["cycles_per_second"].as_f64().unwrap_or_default()
}

/// The times of cycles in microseconds, and the longest one relative to the median.
pub(super) fn cycle_us(nanoseconds: &Histogram<u64>) -> Value {
    let at = |q| nanoseconds.value_at_quantile(q) as f64 / 1000.0;
    let (p50, max) = (at(0.5), nanoseconds.max() as f64 / 1000.0);
    let ratio = (p50 > 0.0).then(|| max / p50);
    json!({ "p50": p50, "p99": at(0.99), "max": max, "max_to_p50": ratio })
}

/// Combines the repeats of one measurement: the median repeat, with the cycles per second of
/// all repeats in the order in which they ran. Of an even number, the slower one of the two in
/// the middle is the median, so that all figures are those of one repeat.
///
/// Wrong placements count wherever they occurred: their number is the largest of all repeats.
/// `None` without repeats.
pub(super) fn combine(mut repeats: Vec<Value>) -> Option<Value> {
    let rates: Vec<f64> = repeats.iter().map(rate).collect();
    let overcommitted = repeats.iter().map(|repeat| repeat["overcommitted"].clone());
    let overcommitted = overcommitted.max_by_key(Value::as_u64);
    let mut order: Vec<usize> = (0..repeats.len()).collect();
    order.sort_by(|a, b| rates[*a].total_cmp(&rates[*b]));
    let (slowest, fastest) = (*order.first()?, *order.last()?);
    let mut result = repeats.swap_remove(order[(order.len() - 1) / 2]);
    result["repeats"] = json!(rates);
    result["min"] = json!(rates[slowest]);
    result["max"] = json!(rates[fastest]);
    result["overcommitted"] = json!(overcommitted);
    Some(result)
}

/// Combines the repeats of engines, which differ in the number of schedulers, and those of processes. Adds to the
/// result of each engine its ratio to the first one, and its ratio to the processes.
pub(super) fn compare(engines: Vec<Vec<Value>>, processes: Vec<Value>) -> Vec<Value> {
    let to_first: Vec<Option<Value>> =
        engines.iter().map(|of| ratio(of, engines.first()?)).collect();
    let to_processes: Vec<Option<Value>> = engines.iter().map(|of| ratio(of, &processes)).collect();
    let of_first = |results: &[Value], key: &str| results.first().map(|one| one[key].clone());
    let schedulers = engines.first().and_then(|of| of_first(of, "schedulers"));
    let count = of_first(&processes, "processes");
    let mut results = Vec::new();
    let ratios = to_first.into_iter().zip(to_processes);
    for (n, (repeats, (to_first, to_processes))) in engines.into_iter().zip(ratios).enumerate() {
        let to_first = to_first.filter(|_| n > 0);
        let Some(mut result) = combine(repeats) else { continue };
        if let Some(ratio) = to_first {
            result["compared_with"] = json!({ "schedulers": schedulers, "ratio": ratio });
        }
        if let Some(ratio) = to_processes {
            result["compared_with_processes"] = json!({ "processes": count, "ratio": ratio });
        }
        results.push(result);
    }
    results.extend(combine(processes));
    results
}

/// The cycles per second relative to those of another measurement, made alternately: median, smallest and largest ratio
/// of neighbouring runs. `None` without runs, or if the other one did nothing.
fn ratio(repeats: &[Value], others: &[Value]) -> Option<Value> {
    let mut ratios: Vec<f64> =
        repeats.iter().zip(others).map(|(one, other)| rate(one) / rate(other)).collect();
    ratios.sort_by(f64::total_cmp);
    let (min, max) = (*ratios.first()?, *ratios.last()?);
    let half = ratios.len() / 2;
    let median = if ratios.len().is_multiple_of(2) {
        ratios[half - 1].midpoint(ratios[half])
    } else {
        ratios[half]
    };
    max.is_finite().then(|| json!({ "median": median, "min": min, "max": max }))
}

/// A table with a row per result. The columns of the range are left out if nothing was repeated.
pub(super) fn table(results: &[Value]) -> String {
    let repeated = results.iter().any(|of| runs(of) > 1);
    let rates: &[&str] = if repeated { &["min", "median", "max"] } else { &["cycles/s"] };
    let times = ["p50 µs", "p99 µs", "max µs", "max/p50", "failed", "conflicts", "overcommitted"];
    let header = [&["workload"], rates, &times].concat();
    let mut table = plain(header.iter().copied());
    for of in results {
        let cycle = &of["cycle_us"];
        let rates = ["min", "cycles_per_second", "max"].map(|key| &of[key]);
        let rates = if repeated { &rates[..] } else { &rates[1..2] };
        let times = ["p50", "p99", "max", "max_to_p50"].map(|key| &cycle[key]);
        let counts = [&of["failed"], &of["conflicts"], &of["overcommitted"]];
        let figures = [rates, &times, &counts].concat();
        table.add_row(std::iter::once(name(of)).chain(figures.into_iter().map(text)));
    }
    right(table, &(1..header.len()).collect::<Vec<_>>()).trim_fmt()
}

fn name(of: &Value) -> String {
    let number = |key: &str| of[key].as_u64();
    let mut workload = text(&of["workload"]);
    if let Some(batch @ 2..) = number("batch") {
        let _ = write!(workload, ", batches of {batch}");
    }
    if let Some(percentage @ 1..) = number("percentage_of_nodes") {
        let _ = write!(workload, ", {percentage} % of nodes");
    }
    match (number("processes"), number("schedulers")) {
        (Some(1), _) => format!("{workload}, 1 process"),
        (Some(count), _) => format!("{workload}, {count} processes"),
        (None, Some(count @ 2..)) => format!("{workload}, {count} schedulers"),
        (None, _) => workload,
    }
}

/// A line for each comparison of an engine with the first one, and with processes.
pub(super) fn ratios(results: &[Value]) -> String {
    let mut lines = Vec::new();
    for of in results {
        let number = |value: &Value| value.as_u64().and_then(|it| usize::try_from(it).ok());
        let schedulers = count(number(&of["schedulers"]).unwrap_or(1), "scheduler");
        let mut line = |other: String, ratio: &Value| {
            let [median, min, max] = ["median", "min", "max"].map(|key| ratio[key].as_f64());
            let (Some(median), Some(min), Some(max)) = (median, min, max) else { return };
            let workload = text(&of["workload"]);
            let range = match runs(of) {
                1 => String::new(),
                runs => format!(" ({min:.2} to {max:.2} in {runs} runs)"),
            };
            lines.push(format!(
                "{workload}, cycles/s: {schedulers} on one engine / {other} = {median:.2}{range}"
            ));
        };
        let [engine, processes] = ["compared_with", "compared_with_processes"].map(|key| &of[key]);
        if let Some(first) = number(&engine["schedulers"]) {
            line(format!("{} on one engine", count(first, "scheduler")), &engine["ratio"]);
        }
        match number(&processes["processes"]) {
            None => {}
            Some(1) => line("1 process with 1 scheduler".to_owned(), &processes["ratio"]),
            Some(many) => {
                line(format!("{many} processes with 1 scheduler each"), &processes["ratio"]);
            }
        }
    }
    lines.join("\n")
}

/// The number of pods that a measurement without repeats needs, so that its figures vary little.
const STABLE: u64 = 20_000;

/// A note if some result is of few pods and was not repeated.
pub(super) fn note_of_short_runs(results: &[Value]) -> Option<String> {
    let few = |of: &&Value| runs(of) == 1 && of["pods"].as_u64().is_some_and(|pods| pods < STABLE);
    let least = results.iter().filter(few).filter_map(|of| of["pods"].as_u64()).min()?;
    Some(format!(
        "note: {least} pods are too few for stable figures: add --repeat 7, or raise --nodes and --pods"
    ))
}

/// The number of repeats of a result.
fn runs(of: &Value) -> usize {
    of["repeats"].as_array().map_or(1, Vec::len)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(number) if number.fract() != 0.0 => format!("{number:.1}"),
            Some(number) => format!("{number:.0}"),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeat(rate: f64, p50: f64, overcommitted: u64) -> Value {
        json!({
            "workload": "basic",
            "cycles_per_second": rate,
            "cycle_us": { "p50": p50, "p99": 9.0, "max": 50.0, "max_to_p50": 50.0 / p50 },
            "failed": 0,
            "conflicts": 0,
            "overcommitted": overcommitted,
        })
    }

    #[test]
    fn the_longest_cycle_is_related_to_the_median() {
        let mut cycles = Histogram::new(3).expect("three digits");
        assert_eq!(cycle_us(&cycles)["max_to_p50"], Value::Null);
        for nanoseconds in [500, 500, 500, 2000] {
            cycles.record(nanoseconds).expect("a small number");
        }
        let expected = json!({ "p50": 0.5, "p99": 2.0, "max": 2.0, "max_to_p50": 4.0 });
        assert_eq!(cycle_us(&cycles), expected);
    }

    #[test]
    fn repeats_are_combined_into_the_median_and_the_range() {
        let odd = vec![repeat(300.0, 3.0, 0), repeat(100.0, 10.0, 2), repeat(200.0, 5.0, 0)];
        let found = combine(odd).expect("three repeats");
        assert_eq!(found["cycles_per_second"], json!(200.0));
        assert_eq!(found["repeats"], json!([300.0, 100.0, 200.0]));
        assert_eq!((&found["min"], &found["max"]), (&json!(100.0), &json!(300.0)));
        assert_eq!(found["cycle_us"]["p50"], json!(5.0), "the times of the median repeat");
        assert_eq!(found["overcommitted"], json!(2), "of whichever repeat");

        let even = [4.0, 1.0, 3.0, 2.0].map(|rate| repeat(rate, rate, 0)).to_vec();
        let found = combine(even).expect("four repeats");
        assert_eq!(found["cycles_per_second"], json!(2.0));
        assert_eq!(found["cycle_us"]["p50"], json!(2.0));

        let one = combine(vec![repeat(7.0, 1.0, 0)]).expect("one repeat");
        assert_eq!((&one["min"], &one["max"]), (&json!(7.0), &json!(7.0)));
        assert_eq!(combine(Vec::new()), None);
    }

    #[test]
    fn an_engine_is_compared_with_processes_below_the_table() {
        let ratio = json!({ "median": 0.5, "min": 0.25, "max": 0.75 });
        let with = |processes: u64, repeats: &[f64]| {
            json!({
                "workload": "basic", "schedulers": 3, "repeats": repeats,
                "compared_with_processes": { "processes": processes, "ratio": ratio },
            })
        };
        let found = ratios(&[repeat(1.0, 1.0, 0), with(2, &[1.0]), with(1, &[1.0, 2.0])]);
        let engine = "basic, cycles/s: 3 schedulers on one engine";
        let expected = format!(
            "{engine} / 2 processes with 1 scheduler each = 0.50\n\
             {engine} / 1 process with 1 scheduler = 0.50 (0.25 to 0.75 in 2 runs)"
        );
        assert_eq!(found, expected);
        assert_eq!(ratios(&[repeat(1.0, 1.0, 0)]), "");
        assert!(table(&[json!({ "processes": 2 })]).contains("2 processes"));
    }

    #[test]
    fn a_row_names_the_options_that_change_its_figures() {
        let of = json!({
            "workload": "basic", "batch": 32, "percentage_of_nodes": 30, "schedulers": 2,
        });
        assert_eq!(name(&of), "basic, batches of 32, 30 % of nodes, 2 schedulers");
        let of = json!({
            "workload": "basic", "batch": 1, "percentage_of_nodes": 0, "schedulers": 1,
        });
        assert_eq!(name(&of), "basic");
    }

    #[test]
    fn a_note_names_the_shortest_measurement_that_is_not_repeated() {
        let of = |pods: u64, runs: usize| json!({ "pods": pods, "repeats": vec![1.0; runs] });
        assert_eq!(note_of_short_runs(&[of(20_000, 1), of(50, 2)]), None);
        let note = note_of_short_runs(&[of(20_000, 1), of(19_999, 1), of(50, 1)]);
        let note = note.unwrap_or_default();
        assert!(note.starts_with("note: 50 pods are too few"), "{note}");
    }

    #[test]
    fn the_range_is_printed_if_there_is_one() {
        let cells = |text: &str| -> Vec<Vec<String>> {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines().map(words).collect()
        };
        let one = table(&[combine(vec![repeat(200.0, 5.0, 0)]).expect("one repeat")]);
        let found = cells(&one);
        assert!(one.contains("cycles/s") && !one.contains("median"), "{one}");
        assert_eq!(found[1], ["basic", "200", "5", "9", "50", "10", "0", "0", "0"]);
        let two = vec![repeat(200.0, 4.0, 0), repeat(300.0, 5.0, 0)];
        let two = table(&[combine(two).expect("two repeats")]);
        let found = cells(&two);
        assert!(two.contains("median"), "{two}");
        assert_eq!(found[1], ["basic", "200", "200", "300", "4", "9", "50", "12.5", "0", "0", "0"]);
    }

    #[test]
    fn ratios_are_those_of_neighbouring_runs() {
        let rates =
            |all: &[f64]| -> Vec<Value> { all.iter().map(|r| repeat(*r, 1.0, 0)).collect() };
        let found = ratio(&rates(&[10.0, 30.0, 20.0]), &rates(&[20.0, 20.0, 20.0]));
        assert_eq!(found, Some(json!({ "median": 1.0, "min": 0.5, "max": 1.5 })));
        let found = ratio(&rates(&[10.0, 30.0]), &rates(&[20.0, 20.0]));
        assert_eq!(found, Some(json!({ "median": 1.0, "min": 0.5, "max": 1.5 })));
        assert_eq!(ratio(&rates(&[10.0]), &rates(&[0.0])), None);
        assert_eq!(ratio(&[], &[]), None);
    }

    #[test]
    fn engines_are_compared_with_the_first_one_and_with_processes() {
        let with = |schedulers: u64, rates: [f64; 2]| {
            let one = |rate| {
                let mut result = repeat(rate, 1.0, 0);
                result["schedulers"] = json!(schedulers);
                result
            };
            rates.map(one).to_vec()
        };
        let mut sum = repeat(30.0, 1.0, 0);
        sum["processes"] = json!(2);
        let engines = vec![with(1, [10.0, 10.0]), with(2, [15.0, 20.0])];
        let results = compare(engines, vec![sum.clone(), sum]);
        let names: Vec<String> = results.iter().map(name).collect();
        assert_eq!(names, ["basic", "basic, 2 schedulers", "basic, 2 processes"]);
        let of_processes =
            [0, 1, 2].map(|n: usize| &results[n]["compared_with_processes"]["processes"]);
        assert_eq!(of_processes, [&json!(2), &json!(2), &Value::Null]);
        let (one, two) = ("1 scheduler on one engine", "2 schedulers on one engine");
        let processes = "2 processes with 1 scheduler each";
        let expected = format!(
            "basic, cycles/s: {one} / {processes} = 0.33 (0.33 to 0.33 in 2 runs)\n\
             basic, cycles/s: {two} / {one} = 1.75 (1.50 to 2.00 in 2 runs)\n\
             basic, cycles/s: {two} / {processes} = 0.58 (0.50 to 0.67 in 2 runs)"
        );
        assert_eq!(ratios(&results), expected);
        assert_eq!(compare(vec![Vec::new()], Vec::new()), Vec::<Value>::new());
    }
}

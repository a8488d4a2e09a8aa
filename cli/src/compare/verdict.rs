//! Which of two configurations packs better, as a sentence.

use std::cmp::Ordering;

use super::shapes::Shapes;
use super::{Run, Spread};
use crate::text::line;

/// How a configuration packs, relative to the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packs {
    Better,
    Worse,
    Alike,
    /// More pods on more or costlier nodes, or fewer on fewer or cheaper ones.
    TradeOff,
}

impl Packs {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Packs::Better => "better",
            Packs::Worse => "worse",
            Packs::Alike => "alike",
            Packs::TradeOff => "trade-off",
        }
    }
}

/// The compared figures of a run: means over the seeds, if there are several.
struct Figures {
    nodes: f64,
    price: Option<f64>,
    placed: f64,
}

fn figures(run: &Run) -> Figures {
    let mean = |name: &str, value: f64| {
        run.spread.iter().find(|of| of.name == name).map_or(value, |of| of.mean)
    };
    let used = &run.packing.all;
    Figures {
        nodes: mean(super::NODES_USED, used.used),
        price: used.price.map(|price| mean(super::PRICE, price.used)),
        placed: mean(super::PLACED, run.outcome.placed as f64),
    }
}

/// How the other configuration packs, and the sentence that says so.
pub(super) fn verdict(first: &Run, other: &Run, shapes: &Shapes) -> (Packs, String) {
    let (a, b) = (figures(first), figures(other));
    let is_mean = first.outcome.busy.is_some() || !first.spread.is_empty();
    let nodes = compared(is_mean, [b.nodes, a.nodes]);
    let price = a.price.zip(b.price).map(|(a, b)| [format!("{b:.2}"), format!("{a:.2}")]);
    let pods = compared(is_mean, [b.placed, a.placed]);
    let compare = |name: &'static str, of: &[String; 2]| order(spreads(first, other, name), of);
    let by_nodes = compare(super::NODES_USED, &nodes);
    let by_price = price.as_ref().map(|price| compare(super::PRICE, price));
    let by_pods = compare(super::PLACED, &pods);
    let cost = by_price.unwrap_or(Ordering::Equal).then(by_nodes);
    let has_seeds = !first.spread.is_empty();
    let (packs, more) = match (by_pods, cost) {
        // The copies that fit are known for the first seed only.
        (Ordering::Equal, Ordering::Equal) if has_seeds => (Packs::Alike, String::new()),
        (Ordering::Equal, Ordering::Equal) => by_copies(first, other, shapes),
        _ => (packs(by_pods, cost), String::new()),
    };
    let (first_name, name) = (line(&first.name), line(&other.name));
    let answer = match packs {
        Packs::Better => format!("{name} packs better than {first_name}"),
        Packs::Worse => format!("{name} packs worse than {first_name}"),
        Packs::Alike => format!("{name} packs like {first_name}"),
        Packs::TradeOff => format!("neither {name} nor {first_name} packs better"),
    };
    let mut sentence = format!("{answer}: {}{}", used(&nodes), priced(price.as_ref()));
    sentence.push_str(", ");
    sentence.push_str(&placed(first, other, b.placed - a.placed));
    sentence.push_str(&more);
    let figures = [("nodes", &nodes, by_nodes), ("placed pods", &pods, by_pods)];
    let prices = price.as_ref().zip(by_price).map(|(price, order)| ("price", price, order));
    let within = figures.into_iter().chain(prices);
    let within = within.filter(|(_, [b, a], order)| b != a && order.is_eq());
    let within: Vec<&str> = within.map(|(name, ..)| name).collect();
    sentence.push_str(&remark(first, &within));
    (packs, sentence)
}

/// Whether the figures are means. `within` are the names of those that differ, but whose ranges overlap.
fn remark(first: &Run, within: &[&str]) -> String {
    match first.outcome.busy {
        _ if !within.is_empty() => {
            format!(" (means over the seeds; overlapping ranges: {})", within.join(", "))
        }
        _ if !first.spread.is_empty() => " (means over the seeds)".to_owned(),
        Some(_) => " (nodes are means over time)".to_owned(),
        None => String::new(),
    }
}

/// The spreads of a figure over the seeds, if there are several seeds.
fn spreads<'r>(first: &'r Run, other: &'r Run, name: &str) -> Option<[&'r Spread; 2]> {
    let of = |run: &'r Run| run.spread.iter().find(|of| of.name == name);
    Some([of(first)?, of(other)?])
}

/// How the other configuration's figure compares with the first one's. Figures are compared as they are printed, so
/// that the sentence is true. They are equal if their ranges over the seeds overlap.
fn order(spreads: Option<[&Spread; 2]>, printed: &[String; 2]) -> Ordering {
    if spreads.is_some_and(|[first, other]| !other.is_apart(first)) {
        return Ordering::Equal;
    }
    let [b, a] = printed.each_ref().map(|text| text.parse().unwrap_or(0.0));
    f64::total_cmp(&b, &a)
}

/// How a configuration packs that places more or fewer pods on more or fewer nodes.
fn packs(pods: Ordering, cost: Ordering) -> Packs {
    match (pods, cost.reverse()) {
        (Ordering::Equal, Ordering::Equal) => Packs::Alike,
        (Ordering::Greater, Ordering::Less) | (Ordering::Less, Ordering::Greater) => {
            Packs::TradeOff
        }
        (Ordering::Less, _) | (_, Ordering::Less) => Packs::Worse,
        _ => Packs::Better,
    }
}

/// Two numbers as they are printed: means have a decimal place.
fn compared(is_mean: bool, values: [f64; 2]) -> [String; 2] {
    values.map(|value| if is_mean { format!("{value:.1}") } else { format!("{value:.0}") })
}

fn used([b, a]: &[String; 2]) -> String {
    let noun = if *b == "1" { "node" } else { "nodes" };
    if a == b {
        format!("{b} {noun} used by both")
    } else {
        format!("{b} {noun} used instead of {a}")
    }
}

fn priced(price: Option<&[String; 2]>) -> String {
    match price {
        None => String::new(),
        Some([b, a]) if a == b => format!(" (price {b} per hour for both)"),
        Some([b, a]) => format!(" (price {b} instead of {a} per hour)"),
    }
}

/// Which pods are placed: the same, as many, or more or fewer.
fn placed(first: &Run, other: &Run, more: f64) -> String {
    let of_both = first.outcome.placements.iter().zip(&other.outcome.placements);
    let is_same = of_both.clone().all(|(a, b)| a.is_some() == b.is_some());
    let number = if more.fract() == 0.0 {
        format!("{:.0}", more.abs())
    } else {
        format!("{:.1}", more.abs())
    };
    let noun = if number == "1" { "pod" } else { "pods" };
    match more.total_cmp(&0.0) {
        Ordering::Greater => format!("{number} more {noun} placed"),
        Ordering::Less => format!("{number} fewer {noun} placed"),
        Ordering::Equal if is_same => "same pods placed".to_owned(),
        Ordering::Equal => "as many pods placed, but not the same".to_owned(),
    }
}

/// If the nodes and pods are equal, the configuration is better under which more copies of each shape fit.
fn by_copies(first: &Run, other: &Run, shapes: &Shapes) -> (Packs, String) {
    let (Some(a), Some(b)) = (&first.left, &other.left) else {
        return (Packs::Alike, String::new());
    };
    let both = || a.copies.iter().zip(&b.copies);
    let is_better = both().any(|(a, b)| b > a);
    let is_worse = both().any(|(a, b)| b < a);
    let packs = match (is_better, is_worse) {
        (true, false) => Packs::Better,
        (false, true) => Packs::Worse,
        (false, false) => return (Packs::Alike, String::new()),
        (true, true) => Packs::TradeOff,
    };
    let differs = both().zip(shapes.groups()).find(|((a, b), _)| a != b);
    let more = differs.map_or_else(String::new, |((a, b), (shape, _))| {
        let noun = if *b == 1 { "copy" } else { "copies" };
        format!("; {b} more {noun} of {} fit instead of {a}", shape.name)
    });
    (packs, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_differs_only_if_its_own_ranges_are_apart() {
        let spread = |least: f64, most: f64| Spread {
            name: super::super::NODES_USED,
            mean: f64::midpoint(least, most),
            least,
            most,
        };
        let printed = ["3.5".to_owned(), "3.0".to_owned()];
        let (first, apart, overlapping) = (spread(2.0, 3.0), spread(3.1, 4.0), spread(2.5, 4.0));
        assert_eq!(order(None, &printed), Ordering::Greater);
        assert_eq!(order(Some([&first, &apart]), &printed), Ordering::Greater);
        assert_eq!(order(Some([&first, &overlapping]), &printed), Ordering::Equal);
    }

    #[test]
    fn more_pods_on_more_nodes_are_a_trade_off() {
        use Ordering::{Equal, Greater, Less};
        for (pods, cost, expected) in [
            (Equal, Less, Packs::Better),
            (Greater, Less, Packs::Better),
            (Greater, Equal, Packs::Better),
            (Equal, Equal, Packs::Alike),
            (Equal, Greater, Packs::Worse),
            (Less, Equal, Packs::Worse),
            (Less, Greater, Packs::Worse),
            (Greater, Greater, Packs::TradeOff),
            (Less, Less, Packs::TradeOff),
        ] {
            assert_eq!(packs(pods, cost), expected, "{pods:?} {cost:?}");
        }
    }
}

//! Prometheus' classic text format (0.0.4).

use std::collections::HashMap;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Returns a registry's metrics in Prometheus' classic text format (0.0.4), which scrapers, the textfile collector and
/// the Pushgateway read.
#[must_use]
pub fn encode_classic(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    classic(&text)
}

/// Rewrites OpenMetrics as the classic text format.
///
/// In OpenMetrics, a counter's family has no suffix `_total`; in the classic format, the family has the name of its
/// samples, which would have no type and no help otherwise. The classic format lacks units, the end marker, exemplars,
/// and the types `info`, `stateset` and `gaugehistogram`.
fn classic(text: &str) -> String {
    let type_of = |line: &str| {
        let rest = line.strip_prefix("# TYPE ")?;
        rest.split_once(' ').map(|(name, kind)| (name.to_owned(), kind.to_owned()))
    };
    let types: HashMap<String, String> = text.lines().filter_map(type_of).collect();
    let mut classic = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let comment = ["# HELP ", "# TYPE "].into_iter().find(|start| line.starts_with(start));
        let Some(start) = comment else {
            classic.push_str(without_exemplar(line));
            classic.push('\n');
            continue;
        };
        let rest = &line[start.len()..];
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = types.get(name).map(String::as_str).unwrap_or_default();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let rest = match (start, kind) {
            ("# TYPE ", "info" | "stateset") => "gauge",
            ("# TYPE ", "unknown" | "gaugehistogram") => "untyped",
            _ => rest,
        };
        classic.push_str(&format!("{start}{name}{suffix} {rest}\n"));
    }
    classic
}

/// The sample without its exemplar, which follows the value as ` # {…} …`. Label values can contain the same
/// characters, within quotes.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_type_in_the_classic_format() {
        let open = "# HELP a Pods.\n# TYPE a counter\n# UNIT a pods\na_total{b=\"x # {y} \\\" #\"} 1 # {c=\"d\"} 1.0\n\
                    # HELP i Facts.\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE u unknown\nu 2\n# EOF\n";
        let expected = "# HELP a_total Pods.\n# TYPE a_total counter\na_total{b=\"x # {y} \\\" #\"} 1\n\
                        # HELP i_info Facts.\n# TYPE i_info gauge\ni_info{v=\"1\"} 1\n# TYPE u untyped\nu 2\n";
        assert_eq!(classic(open), expected);
    }
}

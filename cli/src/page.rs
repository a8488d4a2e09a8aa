//! The files of the page, which are part of the program.

/// The document of a server.
#[cfg(feature = "cluster")]
pub(crate) const INDEX: &str = include_str!("page/index.html");

/// The document of a page in one file, with the names of its values in braces.
pub(crate) const FILE: &str = include_str!("page/file.html");

pub(crate) const ICON: &str = include_str!("page/icon.svg");

pub(crate) const STYLE: &str = include_str!("page/page.css");

/// The other files, by name.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("page.css", STYLE),
    ("icon.svg", ICON),
    ("api.js", include_str!("page/api.js")),
    ("chart.js", include_str!("page/chart.js")),
    ("clock.js", include_str!("page/clock.js")),
    ("comparison.js", include_str!("page/comparison.js")),
    ("difference.js", include_str!("page/difference.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("duel.js", include_str!("page/duel.js")),
    ("explain.js", include_str!("page/explain.js")),
    ("file.js", include_str!("page/file.js")),
    ("findings.js", include_str!("page/findings.js")),
    ("fleet.js", include_str!("page/fleet.js")),
    ("headroom.js", include_str!("page/headroom.js")),
    ("heat.js", include_str!("page/heat.js")),
    ("input.js", include_str!("page/input.js")),
    ("layout.js", include_str!("page/layout.js")),
    ("login.js", include_str!("page/login.js")),
    ("main.js", include_str!("page/main.js")),
    ("map.js", include_str!("page/map.js")),
    ("moment.js", include_str!("page/moment.js")),
    ("node.js", include_str!("page/node.js")),
    ("outcome.js", include_str!("page/outcome.js")),
    ("pending.js", include_str!("page/pending.js")),
    ("pod.js", include_str!("page/pod.js")),
    ("picker.js", include_str!("page/picker.js")),
    ("pools.js", include_str!("page/pools.js")),
    ("question.js", include_str!("page/question.js")),
    ("recorded.js", include_str!("page/recorded.js")),
    ("replay.js", include_str!("page/replay.js")),
    ("resilience.js", include_str!("page/resilience.js")),
    ("result.js", include_str!("page/result.js")),
    ("route.js", include_str!("page/route.js")),
    ("runs.js", include_str!("page/runs.js")),
    ("series.js", include_str!("page/series.js")),
    ("sessions.js", include_str!("page/sessions.js")),
    ("share.js", include_str!("page/share.js")),
    ("sides.js", include_str!("page/sides.js")),
    ("stage.js", include_str!("page/stage.js")),
    ("stranded.js", include_str!("page/stranded.js")),
    ("studio.js", include_str!("page/studio.js")),
    ("tiles.js", include_str!("page/tiles.js")),
    ("times.js", include_str!("page/times.js")),
    ("upgrade.js", include_str!("page/upgrade.js")),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_has_all_its_files() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        let entries = std::fs::read_dir(folder).expect("the folder of the page");
        let files: BTreeSet<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.ends_with(".html"))
            .collect();
        assert_eq!(files, FILES.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
}

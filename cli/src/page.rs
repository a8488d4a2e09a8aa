//! The files of the page, which are part of the program.

/// The document.
pub(crate) const INDEX: &str = include_str!("page/index.html");

pub(crate) const ICON: &str = include_str!("page/icon.svg");

/// The other files, by name.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("page.css", include_str!("page/page.css")),
    ("icon.svg", ICON),
    ("api.js", include_str!("page/api.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("duel.js", include_str!("page/duel.js")),
    ("explain.js", include_str!("page/explain.js")),
    ("fleet.js", include_str!("page/fleet.js")),
    ("headroom.js", include_str!("page/headroom.js")),
    ("heat.js", include_str!("page/heat.js")),
    ("input.js", include_str!("page/input.js")),
    ("layout.js", include_str!("page/layout.js")),
    ("login.js", include_str!("page/login.js")),
    ("main.js", include_str!("page/main.js")),
    ("map.js", include_str!("page/map.js")),
    ("node.js", include_str!("page/node.js")),
    ("outcome.js", include_str!("page/outcome.js")),
    ("pending.js", include_str!("page/pending.js")),
    ("question.js", include_str!("page/question.js")),
    ("resilience.js", include_str!("page/resilience.js")),
    ("route.js", include_str!("page/route.js")),
    ("sessions.js", include_str!("page/sessions.js")),
    ("share.js", include_str!("page/share.js")),
    ("stranded.js", include_str!("page/stranded.js")),
    ("studio.js", include_str!("page/studio.js")),
    ("tiles.js", include_str!("page/tiles.js")),
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
            .filter(|name| name != "index.html")
            .collect();
        assert_eq!(files, FILES.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
}

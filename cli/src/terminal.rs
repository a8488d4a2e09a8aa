//! The terminal: `--quiet`, colour on standard error, and progress there.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::text::line;

/// Whether progress bars, and notes on standard error, are dropped. It is set once, before the command starts.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether progress bars, and notes on standard error, are dropped (`--quiet`).
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether results go to a terminal, so that tables must fit its width.
pub(crate) fn shows_results() -> bool {
    std::io::stdout().is_terminal()
}

/// What a progress bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Bytes,
    /// Items, by the plural of their noun.
    Items(&'static str),
}

impl Of {
    fn text(self, done: u64, all: u64) -> String {
        match self {
            Of::Bytes => format!("{} of {}", HumanBytes(done), HumanBytes(all)),
            Of::Items(noun) => format!("{done} of {all} {noun}"),
        }
    }
}

/// Work that takes less time shows no progress.
const SOON: Duration = Duration::from_secs(1);

/// Starts a line on standard error that shows how far some work is, in `all` units, or for how long it runs if that is
/// 0. Only a terminal gets it, and none with `--quiet`. The line is removed when the bar is dropped.
pub(crate) fn progress(what: impl Into<String>, all: u64, of: Of) -> ProgressBar {
    if is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let what = line(&what.into()).into_owned();
    let text = move |state: &ProgressState, out: &mut dyn Write| {
        let (elapsed, all) = (state.elapsed(), state.len().unwrap_or(0));
        // Writing to a line does not fail.
        let _ = match all {
            _ if elapsed < SOON => Ok(()),
            0 => write!(out, "{what} for {}", HumanDuration(elapsed)),
            all => {
                let text = of.text(state.pos(), all);
                write!(out, "{what}: {text}, {} left", HumanDuration(state.eta()))
            }
        };
    };
    let style = ProgressStyle::with_template("{text}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("text", text);
    let bar = ProgressBar::new(all).with_style(style);
    bar.enable_steady_tick(SOON / 4);
    bar
}

/// Prints an error. The name of the program is red on a terminal, unless NO_COLOR is set.
pub(crate) fn error(text: &str) {
    labelled("portolan", AnsiColor::Red, text);
}

/// Prints a note, unless `--quiet` is set.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        labelled("note", AnsiColor::Cyan, text);
    }
}

/// Prints a warning.
pub(crate) fn warning(text: &str) {
    labelled("warning", AnsiColor::Yellow, text);
}

/// Prints a line with a bold label. anstream removes the colour if standard error is not a terminal or NO_COLOR is set.
fn labelled(label: &str, color: AnsiColor, text: &str) {
    let style = Style::new().bold().fg_color(Some(color.into()));
    anstream::eprintln!("{style}{label}:{style:#} {}", line(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_counted_in_its_unit() {
        assert_eq!(Of::Bytes.text(1 << 20, 3 << 20), "1.00 MiB of 3.00 MiB");
        assert_eq!(Of::Items("nodes").text(2, 30), "2 of 30 nodes");
    }
}

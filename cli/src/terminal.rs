//! The terminal: `--quiet`, and colour on standard error.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};

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

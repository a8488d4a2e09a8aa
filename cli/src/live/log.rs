//! The log of a command that runs until a signal: one line on standard error for each event.
//!
//! Messages quote API servers, extenders and plugins of other programs. Control characters in them are escaped here, in
//! one place, so that no event can forge a line or control the terminal.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::text::line;

/// Logs events of this severity and higher ones.
pub(crate) fn log_to_stderr(least: tracing::Level) {
    let mut shown = Targets::new().with_default(least);
    if least < tracing::Level::DEBUG {
        // It logs each failed request, and our messages already name the request.
        shown = shown.with_target("kube_client", LevelFilter::OFF);
    }
    let lines = tracing_subscriber::fmt::layer().event_format(OneLine(Format::default()));
    // Only a subscriber that is already set is an error.
    let _ = tracing_subscriber::registry()
        .with(shown)
        .with(lines.with_writer(std::io::stderr))
        .try_init();
}

/// Formats an event as a line with all control characters escaped.
struct OneLine(Format);

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        // This writer has no colours, which would be escaped.
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writeln!(writer, "{}", line(text.strip_suffix('\n').unwrap_or(&text)))
    }
}

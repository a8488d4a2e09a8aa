//! Spans and events for the crate `tracing` (feature `tracing`).
//!
//! One line per call site, and no code without the feature: the macros then expand to nothing, arguments included. With
//! the feature and no subscriber, a call site costs one load and one compare, because arguments are evaluated only if a
//! subscriber has enabled the span or event.
//!
//! Call sites are at the edges of rooms (a batch, a publish, a cycle), never per node or per chunk.

/// Emits an event: level, then fields and message as `tracing::event!` takes them.
macro_rules! trace_event {
    ($level:ident, $($fields:tt)+) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(tracing::Level::$level, $($fields)+);
    }};
}

/// Enters a span until the end of the block, under a local name: level, then name and fields as `tracing::span!` takes
/// them.
macro_rules! trace_span {
    ($span:ident, $level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        let $span = tracing::span!(tracing::Level::$level, $($fields)+).entered();
    };
}

/// Records a field of a span that was left empty.
macro_rules! trace_record {
    ($span:ident, $field:ident = $value:expr) => {{
        #[cfg(feature = "tracing")]
        if !$span.is_disabled() {
            $span.record(stringify!($field), tracing::field::display($value));
        }
    }};
}

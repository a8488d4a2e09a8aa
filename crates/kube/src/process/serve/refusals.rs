//! Counts refused connections and reviews, by reason.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a connection was closed, or a request was not reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) enum Reason {
    /// Too many connections: this one, which had no accepted request, was closed for a newer one.
    Displaced,
    /// Too many connections, all with accepted requests.
    Full,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The head of the first request took too long.
    Head,
    /// The body of a request took too long.
    Body,
    /// The client did not read its answer in time.
    Unread,
    /// Too many bearer tokens waited for reviews.
    TokenReviews,
    /// Too many accesses waited for reviews.
    AccessReviews,
}

impl Reason {
    const ALL: [Reason; 8] = [
        Reason::Displaced,
        Reason::Full,
        Reason::Handshake,
        Reason::Head,
        Reason::Body,
        Reason::Unread,
        Reason::TokenReviews,
        Reason::AccessReviews,
    ];

    fn label(self) -> [(&'static str, &'static str); 1] {
        let reason = match self {
            Reason::Displaced => "displaced",
            Reason::Full => "full",
            Reason::Handshake => "handshake",
            Reason::Head => "head",
            Reason::Body => "body",
            Reason::Unread => "unread",
            Reason::TokenReviews => "token_reviews",
            Reason::AccessReviews => "access_reviews",
        };
        [("reason", reason)]
    }
}

/// The refusals of all servers of a process.
#[derive(Clone, Debug)]
pub(in crate::process) struct Refusals(Family<[(&'static str, &'static str); 1], Counter>);

impl Default for Refusals {
    fn default() -> Refusals {
        let counters = Family::default();
        // Each reason is written from the start, so that rates can be computed.
        Reason::ALL.iter().for_each(|reason| drop(counters.get_or_create(&reason.label())));
        Refusals(counters)
    }
}

impl Refusals {
    pub(in crate::process) fn count(&self, reason: Reason) {
        self.0.get_or_create(&reason.label()).inc();
    }

    #[cfg(test)]
    pub(in crate::process) fn of(&self, reason: Reason) -> u64 {
        self.0.get_or_create(&reason.label()).get()
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Connections and reviews that a server refused, by reason";
        registry.register("portolan_serve_refused", help, self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component_metrics::Scrape;

    #[test]
    fn every_reason_is_in_the_metrics() {
        let refusals = Refusals::default();
        refusals.clone().count(Reason::Displaced);
        let mut scrape = Scrape::new(|| ());
        refusals.register(scrape.registry());
        let text = scrape.text();
        assert!(text.contains("portolan_serve_refused_total{reason=\"displaced\"} 1\n"), "{text}");
        let samples = text.lines().filter(|line| line.starts_with("portolan_serve_refused_total{"));
        assert_eq!(samples.filter(|line| line.ends_with("} 0")).count(), Reason::ALL.len() - 1);
    }
}

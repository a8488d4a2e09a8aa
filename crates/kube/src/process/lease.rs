//! A Lease that candidates take, renew and release by the rules of client-go (leaderelection.go), one request at a
//! time. [`Election`](super::Election) and the holder of shards decide when.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::ElectionConfig;
use super::election::ElectionError;
use crate::api::{Api, ApiError, Resource, in_time};
use crate::write::micros;

/// The annotation of a Lease whose holder is asked to give it up, with the identity of the candidate that asks.
const WANTED_BY: &str = "portolan.dev/wanted-by";

/// The annotation of a shard's Lease with the number of shards that its holder has.
const SHARDS: &str = "portolan.dev/shards";

/// One candidate's view of a Lease.
#[derive(Debug)]
pub(super) struct LeaseLock {
    api: Api,
    config: ElectionConfig,
    path: String,
    observed: Option<Observed>,
    /// The number of shards, if the Lease is that of a shard.
    shards: Option<u32>,
    /// Whether the next renewal removes the request to give the Lease up.
    declines: bool,
}

/// A candidate's knowledge about the holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This candidate.
    Us,
    /// Another candidate, whose Lease has not expired.
    Other(String),
    /// Nobody, as this candidate has known for this long.
    Nobody(Duration),
}

/// The Lease as it was last seen, and when its specification was first seen.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

/// The outcome of one try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The Lease is ours. The try began at this moment.
    Held(Instant),
    /// The Lease is not ours. Contains the candidate that holds it.
    Other(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    /// Labels, annotations and other fields that a replacement would remove.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Spec {
    fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }
}

impl Observed {
    /// How long a candidate waits for the holder.
    fn duration(&self) -> Duration {
        let seconds = self.lease.spec.lease_duration_seconds.unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

impl Metadata {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.rest.get("annotations")?.get(key)?.as_str()
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.rest.entry("annotations").or_insert_with(|| Map::new().into());
        match annotations {
            Value::Object(annotations) => {
                annotations.insert(key.to_owned(), value.into());
            }
            other => *other = serde_json::json!({key: value}),
        }
    }

    /// The identity of the candidate that asks for the Lease.
    fn wanted_by(&self) -> Option<&str> {
        self.annotation(WANTED_BY).filter(|by| !by.is_empty())
    }

    fn remove_wanted_by(&mut self) {
        if let Some(Value::Object(annotations)) = self.rest.get_mut("annotations") {
            annotations.remove(WANTED_BY);
        }
    }
}

impl LeaseLock {
    /// # Errors
    ///
    /// The configuration is invalid.
    pub(super) fn new(api: Api, config: ElectionConfig) -> Result<LeaseLock, ElectionError> {
        config.check()?;
        let path = Resource::LEASES.object(&config.namespace, &config.name);
        Ok(LeaseLock { api, config, path, observed: None, shards: None, declines: false })
    }

    /// Writes the number of shards into the Lease when it is taken and renewed.
    pub(super) fn with_shards(self, count: u32) -> LeaseLock {
        LeaseLock { shards: Some(count), ..self }
    }

    pub(super) fn config(&self) -> &ElectionConfig {
        &self.config
    }

    /// The path of the Lease, for messages.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Releases the Lease if this candidate holds it, so that another candidate need not wait for its expiry.
    pub(super) async fn release(&mut self) -> Result<(), ApiError> {
        let Some(Observed { lease, .. }) = &self.observed else { return Ok(()) };
        if lease.spec.holder() != self.config.identity {
            return Ok(());
        }
        let released = match self.give_back(lease).await {
            // A renewal whose answer was not awaited, or a request for the lease, has changed it.
            Err(error) if error.is_conflict() => {
                let found = read(&self.api.get(&self.path).await?)?;
                match found.spec.holder() == self.config.identity {
                    true => self.give_back(&found).await?,
                    false => found,
                }
            }
            released => released?,
        };
        self.see(released);
        Ok(())
    }

    async fn give_back(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let now = now();
        let spec = Spec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..lease.spec.clone()
        };
        let released = Lease { spec, ..lease.clone() };
        read(&self.api.replace(&self.path, &released).await?)
    }

    /// Takes or renews the Lease, unless another candidate holds it.
    pub(super) async fn try_turn(&mut self) -> Result<Turn, ApiError> {
        in_time(self.limit(), self.turn(true)).await
    }

    /// Renews the Lease if it is ours. If it is free, it is not taken: another candidate may have held it meanwhile, so
    /// the holder must not go on as before. The [`Turn::Other`] is then empty.
    pub(super) async fn renew(&mut self) -> Result<Turn, ApiError> {
        in_time(self.limit(), self.turn(false)).await
    }

    /// Reads the Lease.
    pub(super) async fn look(&mut self) -> Result<(), ApiError> {
        match in_time(self.limit(), self.api.get(&self.path)).await {
            Ok(bytes) => self.see(read(&bytes)?),
            Err(error) if error.is_not_found() => drop(self.lacks()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks the holder of the Lease to give it up, unless another candidate asks already.
    pub(super) async fn ask(&mut self) -> Result<(), ApiError> {
        in_time(self.limit(), self.look_and_ask()).await
    }

    async fn look_and_ask(&mut self) -> Result<(), ApiError> {
        self.look().await?;
        let Some(Observed { lease, .. }) = &self.observed else { return Ok(()) };
        if !matches!(self.holder(), Holder::Other(_)) || lease.metadata.wanted_by().is_some() {
            return Ok(());
        }
        let mut asking = lease.clone();
        asking.metadata.annotate(WANTED_BY, &self.config.identity);
        let asked = self.api.replace(&self.path, &asking).await?;
        self.see(read(&asked)?);
        Ok(())
    }

    /// Removes the request to give up the Lease with the next renewal.
    pub(super) fn decline(&mut self) {
        self.declines = true;
    }

    /// Returns who holds the Lease, as it was last seen.
    pub(super) fn holder(&self) -> Holder {
        let Some(observed) = &self.observed else { return Holder::Nobody(Duration::ZERO) };
        let holder = observed.lease.spec.holder();
        let age = observed.since.elapsed();
        match observed.duration() {
            _ if holder.is_empty() => Holder::Nobody(age),
            _ if holder == self.config.identity => Holder::Us,
            duration if age > duration => Holder::Nobody(age - duration),
            _ => Holder::Other(holder.to_owned()),
        }
    }

    /// Returns the number of shards of another candidate that holds the Lease, if it differs from ours.
    pub(super) fn other_shards(&self) -> Option<u32> {
        let Holder::Other(_) = self.holder() else { return None };
        let annotation = self.observed.as_ref()?.lease.metadata.annotation(SHARDS)?;
        annotation.parse().ok().filter(|count| Some(*count) != self.shards)
    }

    /// Returns the candidate that asks for the Lease.
    pub(super) fn wanted_by(&self) -> Option<&str> {
        self.observed.as_ref()?.lease.metadata.wanted_by()
    }

    /// The longest time to wait for a request.
    pub(super) fn limit(&self) -> Duration {
        self.config.renew_deadline / 2
    }

    async fn turn(&mut self, may_take: bool) -> Result<Turn, ApiError> {
        let started = Instant::now();
        let known = match self.api.get(&self.path).await {
            Ok(bytes) => read(&bytes)?,
            Err(error) if error.is_not_found() => {
                if let Some(holder) = self.lacks() {
                    return Ok(Turn::Other(holder));
                }
                if !may_take {
                    return Ok(Turn::Other(String::new()));
                }
                let collection = Resource::LEASES.collection(Some(&self.config.namespace));
                let created = self.api.create(&collection, &self.first()).await?;
                self.see(read(&created)?);
                return Ok(Turn::Held(started));
            }
            Err(error) => return Err(error),
        };
        self.see(known.clone());
        let is_ours = known.spec.holder() == self.config.identity;
        let is_free = known.spec.holder().is_empty() || self.has_expired();
        let is_possible = is_ours || (may_take && is_free);
        if !is_possible {
            return Ok(Turn::Other(known.spec.holder().to_owned()));
        }
        let renewed = self.api.replace(&self.path, &self.next(&known, is_ours)).await?;
        self.declines = false;
        self.see(read(&renewed)?);
        Ok(Turn::Held(started))
    }

    /// Records that the Lease does not exist, and returns another candidate that held it and may not have noticed yet.
    fn lacks(&mut self) -> Option<String> {
        if let Holder::Other(holder) = self.holder() {
            return Some(holder);
        }
        self.observed = None;
        None
    }

    /// Records the Lease, and the time if its holder has changed it. A change of metadata is not a renewal.
    fn see(&mut self, lease: Lease) {
        match &mut self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.lease = lease,
            observed => *observed = Some(Observed { lease, since: Instant::now() }),
        }
    }

    /// Returns whether the Lease has been unchanged for longer than its duration.
    fn has_expired(&self) -> bool {
        self.observed.as_ref().is_none_or(|observed| observed.since.elapsed() > observed.duration())
    }

    fn first(&self) -> Lease {
        let ElectionConfig { namespace, name, .. } = self.config.clone();
        let blank = Lease {
            api_version: Resource::LEASES.api_version.to_owned(),
            kind: Resource::LEASES.kind.to_owned(),
            metadata: Metadata { name, namespace, ..Metadata::default() },
            spec: Spec::default(),
        };
        let now = now();
        self.ours(blank, Some(now.clone()), now, 0)
    }

    fn next(&self, known: &Lease, is_ours: bool) -> Lease {
        let (transitions, now) = (known.spec.lease_transitions.unwrap_or(0), now());
        let mut next = match is_ours {
            true => self.ours(known.clone(), known.spec.acquire_time.clone(), now, transitions),
            false => {
                self.ours(known.clone(), Some(now.clone()), now, transitions.saturating_add(1))
            }
        };
        if !is_ours || self.declines {
            next.metadata.remove_wanted_by();
        }
        next
    }

    /// Returns a Lease with this candidate as its holder.
    fn ours(
        &self,
        mut lease: Lease,
        acquired: Option<String>,
        now: String,
        transitions: i64,
    ) -> Lease {
        let seconds = i64::try_from(self.config.lease_duration.as_secs()).unwrap_or(i64::MAX);
        lease.spec = Spec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: acquired,
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            rest: lease.spec.rest,
        };
        if let Some(count) = self.shards {
            lease.metadata.annotate(SHARDS, &count.to_string());
        }
        lease
    }
}

fn read(bytes: &[u8]) -> Result<Lease, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Malformed(format!("a Lease: {error}")))
}

fn now() -> String {
    micros(Timestamp::now())
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;

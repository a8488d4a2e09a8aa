//! The client: requests with timeouts, limits and typed errors. It never retries, because only the caller knows whether
//! a write may be sent twice.

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::credentials::Client;
use super::error::{is_unsent, reasons};
use super::pace::Pace;
use super::requests::Meter;
use super::{ApiError, Lines, Refusal};
use crate::debug::debug_by;
use crate::fence::Fence;

/// The limits on a client's requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The number of requests in flight at once, not counting watches. Each has its own connection, since requests use
    /// HTTP/1.1.
    pub in_flight: usize,
    /// The number of requests per second, or `None` for no limit (`clientConnection.qps`).
    pub qps: Option<f64>,
    /// The number of requests in a burst after a pause, if `qps` is set (`clientConnection.burst`).
    pub burst: NonZeroU32,
    /// The longest time to wait for an answer.
    pub timeout: Duration,
    /// The largest body of an answer, in bytes. The server is trusted, but a broken one
    /// must not fill the memory.
    pub body: usize,
    /// The largest line of a watch, in bytes.
    pub line: usize,
    /// The longest time without data on a watch, after which its connection counts as broken. Servers send a bookmark
    /// about once a minute.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            in_flight: 256,
            qps: None,
            burst: NonZeroU32::MIN,
            timeout: Duration::from_secs(30),
            // A list of a million pods has about 4 GB.
            body: 8 << 30,
            line: 64 << 20,
            idle: Duration::from_secs(90),
        }
    }
}

/// The largest body of a refusal that is read.
const REFUSAL: usize = 1 << 20;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the cluster: {0}")]
pub struct ConnectError(String);

impl ConnectError {
    pub(super) fn new(why: String) -> ConnectError {
        ConnectError(why)
    }
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    /// Strategic merge patch, which built-in kinds accept: lists are merged by their keys.
    Strategic,
    /// JSON merge patch: lists are replaced.
    Merge,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Merge => "application/merge-patch+json",
        }
    }
}

/// A client of an API server. Clones share their connections and limits.
#[derive(Clone)]
pub struct Api {
    client: Client,
    /// The address of the server, for messages.
    server: Arc<str>,
    meter: Meter,
    limits: Limits,
    in_flight: Arc<Semaphore>,
    pace: Option<Arc<Pace>>,
    /// Must be open for writes.
    fence: Option<Fence>,
}

/// Checks a configuration, and completes it.
fn prepared(mut config: kube::Config) -> Result<kube::Config, ConnectError> {
    // The client would panic on such a URL.
    if config.cluster_url.scheme().is_none() || config.cluster_url.host().is_none() {
        let why = "write a URL such as https://10.0.0.1:6443";
        return Err(ConnectError(format!("server address {}: {why}", config.cluster_url)));
    }
    config.default_retry = false;
    config.read_timeout = None;
    let agent = HeaderValue::from_static(concat!("portolan/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config.connect_timeout = Some(config.connect_timeout.unwrap_or(Duration::from_secs(10)));
    Ok(config)
}

impl Api {
    /// Creates a client. Call it within a tokio runtime, which runs the connections.
    ///
    /// # Errors
    ///
    /// The configuration cannot be used, for instance because of an invalid certificate.
    pub fn new(config: kube::Config, limits: Limits) -> Result<Api, ConnectError> {
        let config = prepared(config)?;
        let server = config.cluster_url.clone();
        Ok(Api::with(Client::new(config)?, &server, limits))
    }

    /// Creates a client, after the exec plugin of the configuration has run.
    pub(super) async fn open(config: kube::Config, limits: Limits) -> Result<Api, ConnectError> {
        let config = prepared(config)?;
        let server = config.cluster_url.clone();
        Ok(Api::with(Client::open(config).await?, &server, limits))
    }

    fn with(client: Client, server: &Uri, limits: Limits) -> Api {
        Api::sharing(client, server.to_string().into(), Meter::new(server), limits)
    }

    fn sharing(client: Client, server: Arc<str>, meter: Meter, limits: Limits) -> Api {
        let in_flight = Arc::new(Semaphore::new(limits.in_flight.max(1)));
        let qps = limits.qps.filter(|qps| qps.is_finite() && *qps > 0.0);
        let pace = qps.map(|qps| Arc::new(Pace::new(qps, limits.burst.get())));
        Api { client, server, meter, limits, in_flight, pace, fence: None }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns a client with the same credentials, and with limits of its own.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Api {
        Api::sharing(self.client.clone(), self.server.clone(), self.meter.clone(), limits)
    }

    /// Returns a clone whose writes need an open fence. Reads do not.
    ///
    /// - If the fence is closed when the request's turn comes, the write fails with [`ApiError::NotPermitted`].
    /// - If the fence closes while a connection is being made or the answer is awaited, the write is abandoned: it
    ///   fails with [`ApiError::NoAnswer`], and is not sent later. A slow connection must not delay a write beyond the
    ///   permission.
    #[must_use]
    pub fn with_permission(&self, fence: Fence) -> Api {
        Api { fence: Some(fence), ..self.clone() }
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    ///
    /// See [`ApiError`].
    pub async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        self.send(Method::GET, path, None).await
    }

    /// Creates an object, or posts to a subresource.
    ///
    /// # Errors
    ///
    /// See [`ApiError`].
    pub async fn create(&self, path: &str, body: &impl Serialize) -> Result<Bytes, ApiError> {
        self.send(Method::POST, path, Some(("application/json", json(body)?))).await
    }

    /// Replaces an object. One that has changed since its `resourceVersion` is a conflict.
    pub(crate) async fn replace(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Bytes, ApiError> {
        self.send(Method::PUT, path, Some(("application/json", json(body)?))).await
    }

    /// Patches an object.
    pub(crate) async fn patch(
        &self,
        path: &str,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<Bytes, ApiError> {
        self.send(Method::PATCH, path, Some((patch.content_type(), json(body)?))).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(
        &self,
        path: &str,
        options: &impl Serialize,
    ) -> Result<Bytes, ApiError> {
        self.send(Method::DELETE, path, Some(("application/json", json(options)?))).await
    }

    /// Starts a watch, whose path includes its query.
    pub(crate) async fn watch(&self, path: &str) -> Result<Lines, ApiError> {
        let response = self.begin(&Method::GET, path, None).await?;
        if response.status().is_success() {
            return Ok(Lines::new(response.into_body(), &self.limits));
        }
        Err(self.refusal(&Method::GET, response).await)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, ApiError> {
        // The semaphore is never closed.
        let _permit = self.in_flight.acquire().await;
        let _timed = self.meter.time(&method);
        let size = body.as_ref().map_or(0, |(_, body)| body.len());
        let response = self.begin(&method, path, body).await?;
        self.meter.sent(&method, size);
        match response.status().is_success() {
            true => self.bytes(&method, response, self.limits.body).await,
            false => Err(self.refusal(&method, response).await),
        }
    }

    /// Sends a request and returns the answer as soon as its head has arrived.
    async fn begin(
        &self,
        method: &Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Response<Body>, ApiError> {
        if let Some(pace) = &self.pace {
            let started = Instant::now();
            pace.wait().await;
            self.meter.waited(method, started.elapsed());
        }
        let fence = self.fence.as_ref().filter(|_| *method != Method::GET);
        if fence.is_some_and(|fence| !fence.may_write()) {
            return Err(ApiError::NotPermitted);
        }
        let mut request = Request::builder().method(method.clone()).uri(path);
        request = request.header(ACCEPT, "application/json");
        let request = match body {
            Some((format, body)) => request.header(CONTENT_TYPE, format).body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        let request =
            request.map_err(|error| ApiError::Invalid(format!("path {path:?}: {error}")))?;
        let send = async {
            let client = self.client.get();
            let sent = timeout(self.limits.timeout, client.send(request)).await;
            let status =
                sent.as_ref().ok().and_then(|sent| sent.as_ref().ok()).map(Response::status);
            self.meter.answered(method, status);
            let answer =
                sent.map_err(|_| self.timed_out())?.map_err(|error| self.failed(&error))?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                self.client.refused(&client);
            }
            Ok(answer)
        };
        let Some(fence) = fence else { return send.await };
        let mut expired = pin!(fence.expired());
        // Checked before each step of the request, because a timer may be late, for instance if the process was
        // stopped.
        let ended = poll_fn(|context| match fence.may_write() {
            true => expired.as_mut().poll(context),
            false => Poll::Ready(()),
        });
        tokio::select! {
            biased;
            () = ended => {
                self.meter.answered(method, None);
                let why = "the permission to write ended before the answer";
                Err(ApiError::NoAnswer(why.to_owned()))
            }
            sent = send => sent,
        }
    }

    /// Reads a body of at most this size.
    async fn bytes(
        &self,
        method: &Method,
        response: Response<Body>,
        most: usize,
    ) -> Result<Bytes, ApiError> {
        let mut body = response.into_body();
        let mut all = Vec::new();
        // The timeout applies to each part of the body, since a long list may take longer in total.
        loop {
            let part = timeout(self.limits.timeout, body.frame()).await;
            match part.map_err(|_| self.timed_out())? {
                None => {
                    self.meter.received(method, all.len());
                    return Ok(all.into());
                }
                Some(Err(error)) => return Err(ApiError::NoAnswer(error.to_string())),
                Some(Ok(frame)) => all.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            }
            if all.len() > most {
                let why = format!("{}: the answer has more than {most} bytes", self.server);
                return Err(ApiError::NoAnswer(why));
            }
        }
    }

    async fn refusal(&self, method: &Method, response: Response<Body>) -> ApiError {
        let code = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        // Callers act on the status code, so a truncated body does not change the error.
        let body = self.bytes(method, response, REFUSAL).await.unwrap_or_default();
        Refusal::read(code, &body, retry_after.map(Duration::from_secs)).into()
    }

    /// Distinguishes a server that was not reached from one that was reached and did not answer.
    fn failed(&self, error: &kube::Error) -> ApiError {
        let is_unreached = is_unsent(error) || matches!(error, kube::Error::Auth(_));
        let why = match error {
            kube::Error::Service(error) => reasons(&**error),
            error => reasons(error),
        };
        let why = format!("{}: {why}", self.server);
        if is_unreached { ApiError::Unreachable(why) } else { ApiError::NoAnswer(why) }
    }

    fn timed_out(&self) -> ApiError {
        ApiError::NoAnswer(format!(
            "{}: no answer within {} s",
            self.server,
            self.limits.timeout.as_secs_f32()
        ))
    }
}

debug_by!(Api, it, limits: it.limits);

fn json(body: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(body).map_err(|error| ApiError::Invalid(format!("a body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_body_that_cannot_be_serialized_is_not_sent() {
        let keys_are_no_texts = BTreeMap::from([((1, 2), 3)]);
        let error = json(&keys_are_no_texts).expect_err("no JSON");
        assert!(matches!(error, ApiError::Invalid(_)), "{error}");
        assert!(!error.may_have_been_done());
    }

    #[tokio::test]
    async fn an_address_without_a_scheme_is_refused() {
        for address in ["localhost", "10.0.0.1:6443", "/path"] {
            let config = kube::Config::new(address.parse().expect("an address"));
            let error = Api::new(config, Limits::default()).expect_err(address).to_string();
            assert!(error.contains(address) && error.contains("https://"), "{error}");
        }
    }
}

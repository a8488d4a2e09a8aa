//! Asks the API server to review a token or an access.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::api::{Api, ApiError, Resource, in_time};

/// The time for all tries of a review.
const LIMIT: Duration = Duration::from_secs(10);
/// Tries of a review.
const TRIES: u32 = 5;
/// The time between the first two tries. Each later pause is 1.5 times as long.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a, S> {
    api_version: &'a str,
    kind: &'a str,
    spec: &'a S,
}

#[derive(Deserialize)]
struct Answer<T> {
    status: T,
}

/// Creates a review and returns its status. A review has no effect, so it is repeated if the server fails.
pub(super) async fn review<S: Serialize, T: DeserializeOwned>(
    api: &Api,
    resource: Resource,
    spec: &S,
) -> Result<T, ApiError> {
    in_time(LIMIT, repeat(api, resource, spec)).await
}

async fn repeat<S: Serialize, T: DeserializeOwned>(
    api: &Api,
    resource: Resource,
    spec: &S,
) -> Result<T, ApiError> {
    let question = Question { api_version: resource.api_version, kind: resource.kind, spec };
    let (mut tries, mut pause) = (1, PAUSE);
    loop {
        let error = match api.create(&resource.collection(None), &question).await {
            Ok(answer) => {
                let answer: Result<Answer<T>, _> = serde_json::from_slice(&answer);
                return answer
                    .map(|answer| answer.status)
                    .map_err(|error| ApiError::Malformed(format!("a {}: {error}", resource.kind)));
            }
            Err(error) => error,
        };
        let may_pass = error.may_have_been_done()
            || error.code() == Some(429)
            || matches!(error, ApiError::Unreachable(_));
        if !may_pass || tries == TRIES {
            return Err(error);
        }
        sleep(error.wait(pause, LIMIT)).await;
        (tries, pause) = (tries + 1, pause.mul_f64(1.5));
    }
}

//! The parameters of a request, whose errors name the parameter and what it may be.

use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};

use super::problem::Problem;

/// The parameters of a request.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked<T>, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Asked(parameters)),
            Err(rejection) => {
                let text = rejection.body_text();
                let text = text.strip_prefix("Failed to deserialize query string: ");
                // The names of the parameters are fields for the parser.
                let text = text.unwrap_or("wrong").replacen(" field `", " parameter `", 1);
                Err(Problem::new(StatusCode::BAD_REQUEST, format!("the query: {text}")))
            }
        }
    }
}

/// A number in a query.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Number).map_err(|_| D::Error::custom("pass a number, such as 1"))
    }
}

//! Reviews the bearer tokens of another server's requests, and what their users may do.

use super::authentication::Tokens;
use super::authorization::{Authorization, Decision};
use super::reviews::Unreviewed;
use super::{ServeError, TTL};
use crate::api::Api;

/// Authenticates bearer tokens by TokenReviews, and authorizes their users by SubjectAccessReviews. Answers are kept for
/// 10 s, and the number of reviews at once is limited, as those of [`Served::secure`](super::super::Served::secure).
pub struct BearerReviews {
    tokens: Tokens,
    authorization: Authorization,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BearerError {
    /// The token is invalid, or could not be reviewed.
    #[error("{0}")]
    Unauthenticated(String),
    /// The user of the token may not make the request.
    #[error("user {user:?} cannot {verb} path {path:?}")]
    Forbidden {
        /// The user's name.
        user: String,
        /// The verb.
        verb: String,
        /// The path that was reviewed.
        path: String,
    },
    /// Too many other requests wait for reviews.
    #[error("too many requests wait for reviews")]
    TooMany,
    /// The access could not be reviewed.
    #[error("the access was not reviewed: {0}")]
    Unreviewed(String),
}

impl BearerReviews {
    /// Reviews tokens with the first client, and accesses with the second one. Without the second one, only the group
    /// `system:masters` is allowed.
    ///
    /// # Errors
    ///
    /// [`ServeError::Random`].
    pub fn new(
        authentication: Api,
        authorization: Option<Api>,
    ) -> Result<BearerReviews, ServeError> {
        let tokens = Tokens::new(authentication, TTL).map_err(|_| ServeError::Random)?;
        Ok(BearerReviews {
            tokens,
            authorization: Authorization::new(authorization, &[], (TTL, TTL)),
        })
    }

    /// Returns whether the user of a token may make a request. The verb is an HTTP method in lower case.
    ///
    /// # Errors
    ///
    /// See [`BearerError`].
    pub async fn admit(&self, token: &str, verb: &str, path: &str) -> Result<(), BearerError> {
        let user = self.tokens.user(token).await.map_err(|error| match error {
            Unreviewed::TooMany => BearerError::TooMany,
            Unreviewed::Failed(why) => BearerError::Unauthenticated(why),
        })?;
        match self.authorization.decide(&user, verb, path).await {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Denied(_)) => Err(BearerError::Forbidden {
                user: user.name,
                verb: verb.to_owned(),
                path: path.to_owned(),
            }),
            Err(Unreviewed::TooMany) => Err(BearerError::TooMany),
            Err(Unreviewed::Failed(why)) => Err(BearerError::Unreviewed(why)),
        }
    }
}

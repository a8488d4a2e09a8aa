//! Refuses requests that reach a loopback address under the name of another host.
//!
//! A browser lets a page read the answers of the host that it came from, and finds that host by its name. If the name
//! is changed to resolve to 127.0.0.1 after the page was loaded (DNS rebinding), the page reads what a process serves
//! to its own machine. The header `Host` then still has the name of the page's host.

use std::net::IpAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

/// Answers requests that do not name the local host with 403. For routes on a loopback address.
pub(in super::super) fn local_only(routes: Router) -> Router {
    routes.route_layer(from_fn(check))
}

async fn check(request: Request, next: Next) -> Response {
    if is_local(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    let why = "the header Host must be localhost, 127.0.0.1 or [::1], with any port";
    (StatusCode::FORBIDDEN, why).into_response()
}

/// Returns whether a request names the local host, and no other one.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter().peekable();
    hosts.peek().is_some()
        && hosts.all(|host| {
            host.to_str().is_ok_and(|host| host.parse().is_ok_and(|host| is_this(&host)))
        })
        && uri.authority().is_none_or(is_this)
}

fn is_this(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    // A page cannot be served under the name `localhost`, and an address is not resolved.
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    async fn status(uri: &str, hosts: &[&str]) -> StatusCode {
        let routes = local_only(Router::new().route("/configz", get(|| async { "ok" })));
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let request = request.body(Body::empty()).expect("a request");
        let answer = TowerToHyperService::new(routes).call(request).await;
        answer.expect("infallible").status()
    }

    #[tokio::test]
    async fn a_request_must_name_the_local_host() {
        for host in [
            "localhost",
            "LocalHost:1",
            "127.0.0.1",
            "127.0.0.1:10259",
            "[::1]",
            "[::1]:80",
            "127.0.0.5",
        ] {
            assert_eq!(status("/configz", &[host]).await, StatusCode::OK, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:10259",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]",
            "",
            "a b",
        ] {
            assert_eq!(status("/configz", &[host]).await, StatusCode::FORBIDDEN, "{host}");
        }
        assert_eq!(status("/configz", &[]).await, StatusCode::FORBIDDEN);
        assert_eq!(status("/configz", &["localhost", "evil"]).await, StatusCode::FORBIDDEN);
        let other = status("http://evil.example/configz", &["localhost"]).await;
        assert_eq!(other, StatusCode::FORBIDDEN);
        assert_eq!(status("http://localhost/configz", &["localhost"]).await, StatusCode::OK);
    }
}

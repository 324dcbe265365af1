//! Who may see the page: everyone who can reach a loopback address, or whoever has the token.
//!
//! Without a token the `Host` header must name this machine, so that a web page elsewhere cannot read results through
//! a name that it lets point to 127.0.0.1.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};

use super::pages::Problem;

const COOKIE: &str = "midflush_token";

/// The rule in force.
#[derive(Clone)]
pub(super) enum Access {
    /// Only through names and addresses of this machine.
    Local,
    /// With the token whose digest this is.
    Token([u8; 32]),
}

impl Access {
    /// The rule for a token, or for none.
    pub(super) fn new(token: Option<&str>) -> Self {
        token.map_or(Self::Local, |token| Self::Token(digest(token)))
    }

    /// Whether an address may be listened on under this rule.
    pub(super) fn allows_listening(&self, address: SocketAddr) -> bool {
        matches!(self, Self::Token(_)) || address.ip().is_loopback()
    }
}

/// Lets a request through, or answers it.
pub(super) async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    let expected = match access {
        Access::Local if is_local(request.headers()) => return next.run(request).await,
        Access::Local => {
            let why = "this page is for this machine only: open it at a 127.0.0.1 or localhost address";
            return Problem::new(StatusCode::FORBIDDEN, why).into_response();
        }
        Access::Token(expected) => expected,
    };
    // A container's health check has no token, and the answer tells nothing.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    if let Some(token) = token_of_query(request.uri().query()) {
        if !same(&digest(token), &expected) {
            return refused();
        }
        // The token leaves the address bar for a cookie that scripts cannot read.
        let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Lax; Path=/");
        return ([(header::SET_COOKIE, cookie)], Redirect::to(request.uri().path())).into_response();
    }
    match token_of_headers(request.headers()) {
        Some(token) if same(&digest(token), &expected) => next.run(request).await,
        _ => refused(),
    }
}

fn refused() -> Response {
    let why = "a token is needed: add ?token=TOKEN to the address once, or send it as a bearer token";
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, why).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response
}

fn token_of_query(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn token_of_headers(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    let cookie = || {
        let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
        cookies.split("; ").find_map(|pair| pair.strip_prefix(COOKIE)?.strip_prefix('='))
    };
    bearer.or_else(cookie)
}

/// Digests are compared, in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|v| v.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, header::HeaderValue::from_static(value))])
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for local in ["127.0.0.1:8420", "localhost", "127.9.9.9", "[::1]:8420"] {
            assert!(is_local(&host(local)), "{local}");
        }
        for other in ["midflush.example:8420", "10.0.0.1", "127.0.0.1.example", "[2001:db8::1]", ""] {
            assert!(!is_local(&host(other)), "{other}");
        }
    }

    #[test]
    fn a_token_comes_from_query_header_or_cookie() {
        assert_eq!(token_of_query(Some("a=1&token=abc")), Some("abc"));
        let cookie = header::HeaderValue::from_static("other=1; midflush_token=abc");
        assert_eq!(token_of_headers(&HeaderMap::from_iter([(header::COOKIE, cookie)])), Some("abc"));
        let bearer = header::HeaderValue::from_static("Bearer abc");
        assert_eq!(token_of_headers(&HeaderMap::from_iter([(header::AUTHORIZATION, bearer)])), Some("abc"));
    }

    #[test]
    fn other_addresses_demand_a_token() {
        let everywhere: SocketAddr = "0.0.0.0:8420".parse().unwrap();
        assert!(!Access::new(None).allows_listening(everywhere));
        assert!(Access::new(Some("abc")).allows_listening(everywhere));
        assert!(Access::new(None).allows_listening("127.0.0.1:8420".parse().unwrap()));
    }
}

//! What every answer carries, whoever made it: a request id, and headers that keep foreign code out.

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// Only our own files, and nobody else may frame the page. The chart library sets styles by itself and draws pictures for
/// download through `blob:` and `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Time for the head of an answer; a stream's body may take as long as its run.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The router with everything around it.
pub(super) fn layered(router: Router) -> Router {
    let id = HeaderName::from_static("x-request-id");
    let fixed = |name: HeaderName, value: &'static str| {
        SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value))
    };
    router.layer(
        ServiceBuilder::new()
            .layer(SetRequestIdLayer::new(id.clone(), MakeRequestUuid))
            .layer(TraceLayer::new_for_http())
            .layer(PropagateRequestIdLayer::new(id))
            .layer(fixed(header::CONTENT_SECURITY_POLICY, POLICY))
            .layer(fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .layer(fixed(header::X_FRAME_OPTIONS, "DENY"))
            .layer(fixed(header::REFERRER_POLICY, "no-referrer"))
            .layer(fixed(HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
            .layer(fixed(HeaderName::from_static("cross-origin-resource-policy"), "same-origin"))
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ANSWER_WITHIN))
            // Leaves streams of events alone.
            .layer(CompressionLayer::new()),
    )
}

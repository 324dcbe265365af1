//! Style, scripts and the chart library, all in the binary.
//!
//! Every address carries the digest of its contents, so that a browser keeps an asset for good and never an old one.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use rust_embed::RustEmbed;
use sha2::{Digest, Sha256};

use super::pages::Problem;

#[derive(RustEmbed)]
#[folder = "web/assets/"]
struct Own;

const PLOTLY: &str = "plotly.js";

/// The chart library's script, cut out of the tags in which its crate hands it over.
static PLOTLY_JS: LazyLock<Bytes> = LazyLock::new(|| {
    let tags = plotly::Plot::offline_js_sources();
    let script = tags.split_once('>').map_or("", |(_, rest)| rest);
    let script = script.split("</script>").next().unwrap_or_default();
    Bytes::copy_from_slice(script.as_bytes())
});

static PLOTLY_DIGEST: LazyLock<String> = LazyLock::new(|| short_hex(&Sha256::digest(&*PLOTLY_JS)));

/// The first eight bytes, as hex: enough to tell versions apart.
fn short_hex(digest: &[u8]) -> String {
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn find(name: &str) -> Option<(Bytes, String)> {
    if name == PLOTLY {
        return Some((PLOTLY_JS.clone(), PLOTLY_DIGEST.clone()));
    }
    let file = Own::get(name)?;
    let bytes = match file.data {
        Cow::Borrowed(data) => Bytes::from_static(data),
        Cow::Owned(data) => Bytes::from(data),
    };
    Some((bytes, short_hex(&file.metadata.sha256_hash())))
}

/// The address of an asset, for templates.
pub(super) fn address(name: &str) -> String {
    let digest = find(name).map(|(_, digest)| digest).unwrap_or_default();
    format!("/assets/{name}?v={digest}")
}

/// `GET /assets/{name}`.
pub(super) async fn get(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some((bytes, digest)) = find(&name) else {
        return Problem::new(StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    let tag = format!("\"{digest}\"");
    let kept = "public, max-age=31536000, immutable";
    let known = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if known.is_some_and(|known| known.split(", ").any(|t| t.trim_start_matches("W/") == tag)) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag), (header::CACHE_CONTROL, kept.to_owned())])
            .into_response();
    }
    let kind = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let headers =
        [(header::CONTENT_TYPE, kind.to_owned()), (header::ETAG, tag), (header::CACHE_CONTROL, kept.to_owned())];
    (headers, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_library_is_in_the_binary() {
        assert!(PLOTLY_JS.len() > 1_000_000);
        assert!(PLOTLY_JS.starts_with(b"/**\n* plotly.js"), "{:?}", &PLOTLY_JS[..40]);
        assert!(!PLOTLY_JS.ends_with(b"</script>"));
    }

    #[test]
    fn addresses_change_with_the_contents() {
        let style = address("style.css");
        assert!(style.starts_with("/assets/style.css?v=") && style.len() > 30, "{style}");
    }
}

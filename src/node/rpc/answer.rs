//! Answers in JSON-RPC 2.0 as CometBFT gives them: a GET has id −1 and an error there is HTTP status 500; a POST echoes
//! the id, and an error is status 200 unless the body itself cannot be read.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    code: i64,
    message: &'static str,
    data: String,
}

impl RpcError {
    /// The node cannot give what was asked for.
    pub(super) fn internal(data: impl ToString) -> Self {
        Self { code: -32603, message: "Internal error", data: data.to_string() }
    }

    /// An argument makes no sense.
    pub(super) fn params(data: impl Into<String>) -> Self {
        Self { code: -32602, message: "Invalid params", data: data.into() }
    }

    /// There is no such method.
    pub(super) fn method() -> Self {
        Self { code: -32601, message: "Method not found", data: String::new() }
    }

    /// The body is no JSON.
    pub(super) fn parse(data: impl ToString) -> Self {
        Self { code: -32700, message: "Parse error. Invalid JSON", data: data.to_string() }
    }

    /// The body is no request.
    pub(super) fn request(data: impl Into<String>) -> Self {
        Self { code: -32600, message: "Invalid Request", data: data.into() }
    }
}

/// Result or error in their envelope.
pub(super) fn envelope(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({ "code": code, "message": message });
            if !data.is_empty() {
                error["data"] = json!(data);
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

/// The answer to a GET.
pub(super) fn get(outcome: Result<Value, RpcError>) -> Response {
    let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    body(status, &envelope(&json!(-1), outcome))
}

/// Any answer.
pub(super) fn body(status: StatusCode, value: &Value) -> Response {
    (status, axum::Json(value)).into_response()
}

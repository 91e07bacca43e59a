//! Answers as the API has them: lists, and the `Status` that tells of a failure.

use serde_json::{Value, json};

use super::route::Name;
use crate::server::http::{JSON, Reply, Response};

pub fn ok(value: &Value) -> Response {
    Response::json(value)
}

pub fn created(value: &Value) -> Response {
    Response { status: 201, ..Response::json(value) }
}

/// A `Status` of failure, as an object.
pub fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

pub fn failed(code: u16, message: &str) -> Response {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    with(code, &failure(code, reason, message))
}

pub fn with(code: u16, status: &Value) -> Response {
    Response { status: code, ..Response::json(status) }
}

pub fn not_found(name: &Name) -> Response {
    let message = format!("{} {:?} not found", name.resource.name(), name.name);
    let mut status = failure(404, "NotFound", &message);
    status["details"] = json!({"name": name.name, "kind": name.resource.name()});
    with(404, &status)
}

pub fn exists(name: &Name) -> Response {
    let message = format!("{} {:?} already exists", name.resource.name(), name.name);
    let mut status = failure(409, "AlreadyExists", &message);
    status["details"] = json!({"name": name.name, "kind": name.resource.name()});
    with(409, &status)
}

/// An object that can't be: the fields, and what is wrong with them.
pub fn invalid(name: &Name, problems: &[(String, String)]) -> Response {
    let all: Vec<String> = problems.iter().map(|(field, message)| format!("{field}: {message}")).collect();
    let kind = name.resource.kind();
    let mut status = failure(422, "Invalid", &format!("{kind} {:?} is invalid: {}", name.name, all.join("; ")));
    let cause = |(field, message): &(String, String)| json!({"reason": "FieldValueInvalid", "field": field, "message": message});
    let causes: Vec<Value> = problems.iter().map(cause).collect();
    status["details"] = json!({"name": name.name, "kind": kind, "causes": causes});
    with(422, &status)
}

/// What the kubelet API refuses in plain text, as the API refuses it.
pub fn of_kubelet(reply: Reply) -> Reply {
    match reply {
        Reply::Whole(response) if response.status >= 400 && !is_json(&response) => {
            failed(response.status, String::from_utf8_lossy(&response.body).trim_end()).into()
        }
        reply => reply,
    }
}

fn is_json(response: &Response) -> bool {
    response.headers.iter().any(|(name, value)| *name == "Content-Type" && value == JSON)
}

//! `/configz`: the configuration in force.

use serde_json::{Value, json};

use crate::server::http::Response;

pub fn configz(configuration: &Value) -> Response {
    Response::json(&json!({"kubeletconfig": configuration}))
}

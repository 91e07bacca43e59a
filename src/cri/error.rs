//! Errors of the runtime's calls, by gRPC code.

use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

/// The gRPC codes that make a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The runtime can't be reached; it may come back.
    Unavailable,
    /// No answer in time.
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    /// The runtime doesn't have this call.
    Unimplemented,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    /// Anything else; most failures of runtimes come as `Unknown`.
    Other,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    pub call: &'static str,
    pub code: Code,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Code::Unavailable => write!(f, "{}: the container runtime can't be reached: {}", self.call, self.message),
            Code::DeadlineExceeded => write!(f, "{}: no answer from the container runtime in time", self.call),
            Code::Unimplemented => write!(f, "{}: the container runtime doesn't know this call", self.call),
            _ => write!(f, "{}: {}", self.call, self.message),
        }
    }
}

impl Error {
    pub(super) fn new(call: &'static str, error: grpcio::Error) -> Error {
        let grpcio::Error::RpcFailure(status) = error else {
            return Error { call, code: Code::Other, message: error.to_string() };
        };
        use grpcio::RpcStatusCode as Rpc;
        let code = match status.code() {
            Rpc::UNAVAILABLE | Rpc::CANCELLED => Code::Unavailable,
            Rpc::DEADLINE_EXCEEDED => Code::DeadlineExceeded,
            Rpc::NOT_FOUND => Code::NotFound,
            Rpc::ALREADY_EXISTS => Code::AlreadyExists,
            Rpc::UNIMPLEMENTED => Code::Unimplemented,
            Rpc::INVALID_ARGUMENT => Code::InvalidArgument,
            Rpc::PERMISSION_DENIED | Rpc::UNAUTHENTICATED => Code::PermissionDenied,
            Rpc::RESOURCE_EXHAUSTED => Code::ResourceExhausted,
            _ => Code::Other,
        };
        Error { call, code, message: status.message().trim().to_owned() }
    }

    pub(super) fn garbage(call: &'static str, what: impl Into<String>) -> Error {
        Error { call, code: Code::Other, message: format!("an answer that makes no sense: {}", what.into()) }
    }

    /// The runtime did not answer at all, so nothing is known of what the call did.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::DeadlineExceeded)
    }
}

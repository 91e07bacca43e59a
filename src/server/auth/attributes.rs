//! What a request is to those who decide about it: an action on a part of the node, as the kubelet
//! 1.36 maps it (pkg/kubelet/server/auth.go).

use crate::server::http::{Head, Method};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Empty for a method that has none.
    pub verb: &'static str,
    /// Subresources of the node; who may use one of them may do it.
    pub subresources: Vec<&'static str>,
}

impl Attributes {
    pub fn of(head: &Head) -> Attributes {
        let verb = match head.method {
            Method::Post => "create",
            Method::Get => "get",
            Method::Put => "update",
            Method::Patch => "patch",
            Method::Delete => "delete",
            Method::Head | Method::Options | Method::Other => "",
        };
        let subresources = match head.path.segments().first() {
            Some(&"pods" | &"runningpods") => vec!["pods", "proxy"],
            Some(&"healthz") => vec!["healthz", "proxy"],
            Some(&"configz") => vec!["configz", "proxy"],
            Some(&"statusz") => vec!["statusz", "proxy"],
            Some(&"stats") => vec!["stats"],
            Some(&"metrics") => vec!["metrics"],
            Some(&"logs") => vec!["log"],
            Some(&"checkpoint") => vec!["checkpoint"],
            _ => vec!["proxy"],
        };
        Attributes { verb, subresources }
    }
}

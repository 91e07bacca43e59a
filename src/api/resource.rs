//! The kinds of objects that there are.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    Pods,
    Events,
    ConfigMaps,
    Secrets,
    Nodes,
    Namespaces,
}

impl Resource {
    pub const ALL: [Resource; 6] = [
        Resource::ConfigMaps,
        Resource::Events,
        Resource::Namespaces,
        Resource::Nodes,
        Resource::Pods,
        Resource::Secrets,
    ];

    /// As in paths, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Pods => "pods",
            Resource::Events => "events",
            Resource::ConfigMaps => "configmaps",
            Resource::Secrets => "secrets",
            Resource::Nodes => "nodes",
            Resource::Namespaces => "namespaces",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Resource::Pods => "Pod",
            Resource::Events => "Event",
            Resource::ConfigMaps => "ConfigMap",
            Resource::Secrets => "Secret",
            Resource::Nodes => "Node",
            Resource::Namespaces => "Namespace",
        }
    }

    pub fn short_names(self) -> &'static [&'static str] {
        match self {
            Resource::Pods => &["po"],
            Resource::Events => &["ev"],
            Resource::ConfigMaps => &["cm"],
            Resource::Secrets => &[],
            Resource::Nodes => &["no"],
            Resource::Namespaces => &["ns"],
        }
    }

    pub fn named(name: &str) -> Option<Resource> {
        Resource::ALL.into_iter().find(|r| r.name() == name)
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(self, Resource::Nodes | Resource::Namespaces)
    }

    /// Whether it can be written to the manifest directory.
    pub fn is_writable(self) -> bool {
        matches!(self, Resource::Pods | Resource::ConfigMaps | Resource::Secrets)
    }

    /// Paths in an object that a field selector may name, beside its name and namespace.
    pub fn selectable(self) -> &'static [&'static str] {
        match self {
            Resource::Pods => &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ],
            Resource::Events => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            Resource::Secrets => &["type"],
            Resource::Nodes => &["spec.unschedulable"],
            Resource::Namespaces => &["status.phase"],
            Resource::ConfigMaps => &[],
        }
    }
}

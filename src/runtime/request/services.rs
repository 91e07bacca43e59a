//! Variables that tell a container where services are (pkg/kubelet/envvars,
//! pkg/kubelet/kubelet_pods.go `getServiceEnvVarMap`).

use std::collections::BTreeMap;

use crate::pod::{Pod, core};

/// The service that every pod is told of, in the namespace `default`.
const MASTER: &str = "kubernetes";

/// The variables of the services that the pod is told of: those of its namespace, unless it has
/// `enableServiceLinks: false`, and the API server.
pub fn variables(pod: &Pod, services: &[core::Service]) -> BTreeMap<String, String> {
    let links = pod.spec.enable_service_links.unwrap_or(true);
    let mut shown: BTreeMap<&str, &core::Service> = BTreeMap::new();
    for service in services.iter().filter(|s| cluster_ip(s).is_some()) {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        if namespace == "default" && name == MASTER {
            shown.entry(name).or_insert(service);
        } else if links && namespace == &*pod.name.namespace {
            shown.insert(name, service);
        }
    }
    shown.into_iter().flat_map(|(name, service)| of_service(name, service)).collect()
}

fn cluster_ip(service: &core::Service) -> Option<&str> {
    service.spec.as_ref()?.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None")
}

fn of_service(name: &str, service: &core::Service) -> Vec<(String, String)> {
    let ip = cluster_ip(service).unwrap_or_default();
    let ports = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let prefix = variable(name);
    let mut out = vec![(format!("{prefix}_SERVICE_HOST"), ip.to_owned())];
    for (i, port) in ports.iter().enumerate() {
        let (number, protocol) = (port.port, port.protocol.as_deref().unwrap_or("TCP"));
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if i == 0 {
            out.push((format!("{prefix}_SERVICE_PORT"), number.to_string()));
            out.push((format!("{prefix}_PORT"), url.clone()));
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            out.push((format!("{prefix}_SERVICE_PORT_{}", variable(name)), number.to_string()));
        }
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        out.push((format!("{link}_PROTO"), protocol.to_lowercase()));
        out.push((format!("{link}_PORT"), number.to_string()));
        out.push((format!("{link}_ADDR"), ip.to_owned()));
        out.push((link, url));
    }
    out
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use super::*;

    /// A service as `namespace name ip name:port/protocol…`.
    fn service(text: &str) -> core::Service {
        let mut words = text.split(' ');
        let mut word = || words.next().map(str::to_owned);
        let mut service = core::Service::default();
        (service.metadata.namespace, service.metadata.name) = (word(), word());
        let cluster_ip = word().filter(|ip| ip != "-");
        let port = |text: &str| {
            let (name, rest) = text.split_once(':').expect("a name");
            let (port, protocol) = rest.split_once('/').expect("a protocol");
            core::ServicePort {
                name: Some(name.to_owned()).filter(|n| !n.is_empty()),
                port: port.parse().expect("a number"),
                protocol: Some(protocol.to_owned()).filter(|p| !p.is_empty()),
                ..Default::default()
            }
        };
        let ports = Some(words.map(port).collect());
        service.spec = Some(core::ServiceSpec { cluster_ip, ports, ..Default::default() });
        service
    }

    fn names(links: bool, services: &[&str]) -> Vec<String> {
        let pod = pod(&format!("{{containers: [{{name: c, image: i}}], enableServiceLinks: {links}}}"));
        let services: Vec<_> = services.iter().map(|s| service(s)).collect();
        let all = variables(&pod, &services).into_iter().map(|(k, v)| format!("{k}={v}"));
        all.filter(|v| v.contains("_SERVICE_HOST")).collect()
    }

    #[test]
    fn which_services() {
        let services = [
            "ns web 10.96.0.2 :80/",
            "other web2 10.96.0.3 :80/",
            "default kubernetes 10.96.0.1 https:443/TCP",
            "ns headless None :80/",
            "ns external -",
        ];
        let master = "KUBERNETES_SERVICE_HOST=10.96.0.1";
        assert_eq!(names(true, &services), [master, "WEB_SERVICE_HOST=10.96.0.2"]);
        assert_eq!(names(false, &services), [master]);
        // One of the pod's namespace with the same name comes before the API server.
        let own = ["default kubernetes 10.96.0.1 :443/", "ns kubernetes 10.96.0.9 :1/"];
        assert_eq!(names(true, &own), ["KUBERNETES_SERVICE_HOST=10.96.0.9"]);
        assert_eq!(names(true, &[own[1], own[0]]), ["KUBERNETES_SERVICE_HOST=10.96.0.9"]);
    }

    #[test]
    fn what_of_a_service() {
        let pod = pod("{containers: [{name: c, image: i}]}");
        let services = [service("ns my-db 10.96.0.2 sql-a:5432/ :53/UDP")];
        let got: Vec<_> = variables(&pod, &services).into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        let want = [
            "MY_DB_PORT=tcp://10.96.0.2:5432",
            "MY_DB_PORT_53_UDP=udp://10.96.0.2:53",
            "MY_DB_PORT_53_UDP_ADDR=10.96.0.2",
            "MY_DB_PORT_53_UDP_PORT=53",
            "MY_DB_PORT_53_UDP_PROTO=udp",
            "MY_DB_PORT_5432_TCP=tcp://10.96.0.2:5432",
            "MY_DB_PORT_5432_TCP_ADDR=10.96.0.2",
            "MY_DB_PORT_5432_TCP_PORT=5432",
            "MY_DB_PORT_5432_TCP_PROTO=tcp",
            "MY_DB_SERVICE_HOST=10.96.0.2",
            "MY_DB_SERVICE_PORT=5432",
            "MY_DB_SERVICE_PORT_SQL_A=5432",
        ];
        assert_eq!(got, want);
        let six = variables(&pod, &[service("ns x fd00::5 :80/")]);
        assert_eq!(six.get("X_PORT").map(String::as_str), Some("tcp://[fd00::5]:80"));
        assert_eq!(six.get("X_SERVICE_HOST").map(String::as_str), Some("fd00::5"));
    }
}

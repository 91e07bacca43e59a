//! Variables that tell a container where services are (pkg/kubelet/envvars,
//! pkg/kubelet/kubelet_pods.go `getServiceEnvVarMap`).

use std::collections::BTreeMap;

use crate::local::{MASTER, Service};
use crate::pod::Pod;

/// The variables of the services that the pod is told of: `own`, those of its namespace, unless it has
/// `enableServiceLinks: false`, and `master`, the API server.
pub fn variables(pod: &Pod, (own, master): (&[Service], &[Service])) -> BTreeMap<String, String> {
    let links = pod.spec.enable_service_links.unwrap_or(true);
    let master = master.iter().filter(|service| service.name == MASTER);
    let shown = master.chain(own.iter().filter(|_| links)).filter(|s| is_told_of(s));
    // One of the pod's namespace with the same name comes before the API server.
    let shown: BTreeMap<&str, &Service> = shown.map(|service| (service.name.as_str(), service)).collect();
    shown.into_iter().flat_map(|(name, service)| of_service(name, service)).collect()
}

fn is_told_of(service: &Service) -> bool {
    !matches!(service.cluster_ip.as_str(), "" | "None")
}

fn of_service(name: &str, service: &Service) -> Vec<(String, String)> {
    let ip = service.cluster_ip.as_str();
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let prefix = variable(name);
    let mut out = vec![(format!("{prefix}_SERVICE_HOST"), ip.to_owned())];
    for (i, port) in service.ports.iter().enumerate() {
        let number = port.port;
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if i == 0 {
            out.push((format!("{prefix}_SERVICE_PORT"), number.to_string()));
            out.push((format!("{prefix}_PORT"), url.clone()));
        }
        if !port.name.is_empty() {
            out.push((format!("{prefix}_SERVICE_PORT_{}", variable(&port.name)), number.to_string()));
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
    use crate::local::ServicePort;

    /// A service as `name ip name:port/protocol…`.
    fn service(text: &str) -> Service {
        let mut words = text.split(' ');
        let mut word = || words.next().map(str::to_owned).unwrap_or_default();
        let (name, ip) = (word(), word());
        let port = |text: &str| {
            let (name, rest) = text.split_once(':').expect("a name");
            let (port, protocol) = rest.split_once('/').expect("a protocol");
            ServicePort { name: name.to_owned(), port: port.parse().expect("a number"), protocol: protocol.to_owned() }
        };
        let ports = words.map(port).collect();
        Service { name, cluster_ip: if ip == "-" { String::new() } else { ip }, ports }
    }

    fn names(links: bool, own: &[&str], master: &[&str]) -> Vec<String> {
        let pod = pod(&format!("{{containers: [{{name: c, image: i}}], enableServiceLinks: {links}}}"));
        let of = |texts: &[&str]| texts.iter().map(|s| service(s)).collect::<Vec<_>>();
        let all = variables(&pod, (&of(own), &of(master))).into_iter().map(|(k, v)| format!("{k}={v}"));
        all.filter(|v| v.contains("_SERVICE_HOST")).collect()
    }

    #[test]
    fn which_services() {
        let own = ["web 10.96.0.2 :80/", "headless None :80/", "external -"];
        let api = ["kubernetes 10.96.0.1 https:443/TCP"];
        let master = "KUBERNETES_SERVICE_HOST=10.96.0.1";
        assert_eq!(names(true, &own, &api), [master, "WEB_SERVICE_HOST=10.96.0.2"]);
        assert_eq!(names(false, &own, &api), [master]);
        // One of the pod's namespace with the same name comes before the API server.
        assert_eq!(names(true, &["kubernetes 10.96.0.9 :1/"], &api), ["KUBERNETES_SERVICE_HOST=10.96.0.9"]);
    }

    #[test]
    fn what_of_a_service() {
        let pod = pod("{containers: [{name: c, image: i}]}");
        let services = [service("my-db 10.96.0.2 sql-a:5432/ :53/UDP")];
        let got: Vec<_> = variables(&pod, (&services, &[])).into_iter().map(|(k, v)| format!("{k}={v}")).collect();
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
        let six = variables(&pod, (&[service("x fd00::5 :80/")], &[]));
        assert_eq!(six.get("X_PORT").map(String::as_str), Some("tcp://[fd00::5]:80"));
        assert_eq!(six.get("X_SERVICE_HOST").map(String::as_str), Some("fd00::5"));
    }
}

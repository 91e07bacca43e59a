//! `cleat logs`.

use std::io;

use super::client::Client;
use super::options::{Options, pod_name};
use super::{Error, path};
use crate::api::Resource;
use crate::server::http::percent_encode;

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (pod, container) = match options.arguments.as_slice() {
        [pod] => (pod, options.container.as_ref()),
        [pod, container] => (pod, Some(container)),
        _ => return Err(Error::Usage("there has to be a pod: logs web".to_owned())),
    };
    let pod = pod_name(pod);
    let namespace = options.namespace();
    let mut target = format!("{}/log?", path(Resource::Pods, Some(namespace), Some(pod)));
    let mut add = |name: &str, value: &str| target.push_str(&format!("{name}={}&", percent_encode(value)));
    if let Some(container) = container {
        add("container", container);
    }
    for (name, on) in [("follow", options.follow), ("previous", options.previous), ("timestamps", options.timestamps)] {
        if on {
            add(name, "true");
        }
    }
    for (name, number) in [("tailLines", options.tail), ("sinceSeconds", options.since)] {
        if let Some(number) = number {
            add(name, &number.to_string());
        }
    }
    let mut answer = client.get(&target, "")?;
    io::copy(&mut answer.body, &mut io::stdout().lock()).map(drop).map_err(Error::Write)
}

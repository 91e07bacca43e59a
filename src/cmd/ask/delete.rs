//! `cleat delete`.

use super::client::Client;
use super::options::Options;
use super::{Error, path, resource};

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (kind, name) = options.kind_and_name()?;
    let (resource, namespace) = (resource(&kind)?, options.namespace.as_deref().unwrap_or("default"));
    let name = name.ok_or_else(|| Error::Usage("there has to be a name: delete pod web".to_owned()))?;
    client.send("DELETE", &path(resource, Some(namespace), Some(&name)), "{}")?;
    println!("{}/{name} deleted", resource.kind().to_lowercase());
    Ok(())
}

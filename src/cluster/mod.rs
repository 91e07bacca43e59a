//! What a node does for a cluster's API server: it tells the status of its pods, removes those that
//! have ended, mirrors its static pods, and gets what the server's pods refer to. All of it on threads
//! of its own: a pod never waits for the API server, and without one nothing of this is there.

mod diff;
mod events;
mod fetch;
mod item;
mod mirror;
mod objects;
mod records;
mod refresh;
mod status;
mod watches;

pub use objects::{ObjectGetter, Settings as ObjectSettings, spawn as spawn_objects};

pub use status::{Rounds, Settings as StatusSettings, StatusManager, spawn as spawn_status};

#![deny(unsafe_code)]

pub mod cri;
pub mod yaml;

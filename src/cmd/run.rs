//! `cleat run`: the agent.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use log::LevelFilter;

use crate::config::flags::{self, Parsed};
use crate::{agent, config};

pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let loaded = match flags::parse(args) {
        Ok(Parsed::Help) => {
            print!("{}", flags::help());
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Run(flags)) => config::load(&flags),
        Err(e) => Err(e.into()),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(e) => {
            eprintln!("cleat: {e}");
            return ExitCode::from(2);
        }
    };
    log_to_stderr(loaded.config.verbosity);
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    match agent::run(&loaded.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// One line an event: time, level, text. `--v`: up to 2 what happens to pods, up to 4 how it is
/// decided, above that everything.
fn log_to_stderr(verbosity: u32) {
    let level = match verbosity {
        0..=2 => LevelFilter::Info,
        3..=4 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let quiet = if verbosity > 4 { LevelFilter::Trace } else { LevelFilter::Warn };
    env_logger::Builder::new()
        .filter_level(level)
        // How a request is made is told of when everything is.
        .filter_module("ureq", level.min(quiet))
        .filter_module("ureq_proto", level.min(quiet))
        .filter_module("rustls", level.min(quiet))
        .format(|out, record| {
            let now = jiff::Timestamp::now();
            writeln!(out, "{now:.3} {:<5} {}", record.level(), record.args())
        })
        .init();
}

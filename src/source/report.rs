//! What a source has to tell.

/// Something for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Problem(String),
    Warning(String),
    Info(String),
}

pub fn tell(report: Report) {
    match report {
        Report::Problem(text) => log::error!("{text}"),
        Report::Warning(text) => log::warn!("{text}"),
        Report::Info(text) => log::info!("{text}"),
    }
}

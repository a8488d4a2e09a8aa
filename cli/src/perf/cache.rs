//! `portolan perf cache`.
/// placeholder
#[derive(clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: &Arguments) -> Result<std::process::ExitCode, crate::error::Failure> {
    Ok(std::process::ExitCode::SUCCESS)
}

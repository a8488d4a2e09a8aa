//! Completions and man pages, made from the arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::error::CommandError;
use crate::output::failed;
use crate::{arguments, print};

/// Print the completions of a shell.
///
/// Load them with `source <(portolan completions bash)`; for zsh, write them to a file `_portolan` in a folder of
/// $fpath; for fish, to ~/.config/fish/completions/portolan.fish.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the man page, or write the pages of all commands to a folder.
#[derive(clap::Args)]
pub(crate) struct Man {
    /// Folder for one page per command, such as ~/.local/share/man/man1.
    folder: Option<PathBuf>,
}

fn command() -> Command {
    arguments::complete(crate::Arguments::command())
}

/// The commands of a script or of the pages must be text, which they are unless the generators are broken.
fn text(bytes: Vec<u8>) -> Result<String, CommandError> {
    String::from_utf8(bytes).map_err(|error| CommandError::Usage(error.to_string()))
}

pub(crate) fn completions(arguments: &Completions) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "portolan", &mut script);
    print(text(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &Man) -> Result<ExitCode, CommandError> {
    match &arguments.folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(failed(folder))?;
            clap_mangen::generate_to(command(), folder).map_err(failed(folder))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command()).render(&mut page).map_err(CommandError::Output)?;
            print(text(page)?.trim_end())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

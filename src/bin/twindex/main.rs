//! The command line: builds index files from vector files, searches, measures and inspects them.
//!
//! | module | job |
//! |---|---|
//! | [`args`] | the commands and their options |
//! | [`build`], [`bench`], [`search`], [`inspect`], [`demo`] | one command each (`inspect`: `info` and `verify`) |
//! | [`measure`] | timing queries, recall |
//! | [`data`] | opening an index with its originals, reading queries and ground truth whole |
//! | [`output`] | standard output, files, progress bars, numbers for people |
//! | [`resources`] | CPU time and memory of this process |
//! | [`failure`] | what went wrong, on one line, and the exit code |
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. A reader that closes the pipe early is no failure.

mod args;
mod bench;
mod build;
mod data;
mod demo;
mod failure;
mod inspect;
mod measure;
mod output;
mod resources;
mod search;

use args::{Cli, Command};
use clap::Parser;
use clap::error::ErrorKind;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => refuse(&error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Build(args) => build::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Search(args) => search::run(&args),
        Command::Info(args) => inspect::info(&args),
        Command::Verify(args) => inspect::verify(&args),
        Command::Demo(args) => demo::run(&args),
    }
}

/// Help goes out as it is; a mistake becomes one line.
fn refuse(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(error.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()?;
            Err(Failure::Told)
        }
        _ => {
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
            let said: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
            let said = said.join(" ");
            Err(Failure::Usage(said.strip_prefix("error: ").unwrap_or(&said).to_owned()))
        }
    }
}

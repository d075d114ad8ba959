//! What went wrong, on one line, and the exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug)]
pub enum Failure {
    /// The command was used wrongly.
    Usage(String),
    /// The command could not be carried out.
    Failed(String),
    /// What was given as originals are other vectors.
    OtherVectors(String),
    /// Wrong usage that has been explained already.
    Told,
    /// Whoever read our output has had enough.
    Closed,
}

impl Failure {
    pub fn failed(what: impl Display) -> Self {
        Failure::Failed(what.to_string())
    }

    /// `reason`, told of `subject`: a file, an option.
    pub fn of(subject: impl Display, reason: impl Display) -> Self {
        Failure::Failed(format!("{subject}: {reason}"))
    }

    /// Names the file the originals came from, if they are what is wrong.
    pub fn with_originals(self, path: Option<&Path>) -> Self {
        match (self, path) {
            (Failure::OtherVectors(reason), Some(path)) => Failure::of(path.display(), reason),
            (other, _) => other,
        }
    }

    /// Prints the line, if there is one, and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (message, code) = match self {
            Failure::Usage(message) => (format!("{message} (see twindex --help)"), 2),
            Failure::Failed(message) | Failure::OtherVectors(message) => (message, 1),
            Failure::Told => return ExitCode::from(2),
            Failure::Closed => return ExitCode::SUCCESS,
        };
        let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // With standard error closed there is nobody left to tell.
        let _ = writeln!(io::stderr(), "error: {line}");
        ExitCode::from(code)
    }
}

/// From the library; the ones about a file of vectors name it themselves.
impl From<twindex::Error> for Failure {
    fn from(error: twindex::Error) -> Self {
        match error {
            twindex::Error::FingerprintMismatch { .. } => Failure::OtherVectors(error.to_string()),
            other => Failure::failed(other),
        }
    }
}

/// From writing to standard output. Other files name themselves through [`Failure::of`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::of("standard output", error),
        }
    }
}

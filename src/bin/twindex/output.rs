//! Standard output, files, progress bars, and numbers as people read them.

use crate::failure::Failure;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;
use twindex::{Encoding, Originals};

/// Standard output, buffered: flush it before returning.
pub fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Writes `text` into the file, or to standard output if it is called `-`.
pub fn write_to(path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(path) {
        let mut out = stdout();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    }
    std::fs::write(path, text).map_err(|e| Failure::of(path.display(), e))
}

pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(Failure::failed)
}

/// Whether two paths lead to the same file, be it there yet or not.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        (Err(_), Err(_)) => a == b,
        _ => false,
    }
}

/// Refuses a command that would write one of `written` over another of its files.
pub fn check_distinct(written: &[(&str, Option<&Path>)], read: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    for (i, (option, path)) in written.iter().enumerate() {
        let Some(path) = path.filter(|path| !is_stdout(path)) else { continue };
        for (other, file) in read.iter().chain(&written[i + 1..]) {
            if file.is_some_and(|file| is_same_file(file, path)) {
                return Err(Failure::Usage(format!("{option} and {other} are the same file")));
            }
        }
    }
    Ok(())
}

/// Fails early where writing `path` could not succeed in the end.
pub fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Failure::of(path.display(), format!("there is no folder {}", folder.display())))
        }
        _ if path.is_dir() => Err(Failure::of(path.display(), "is a folder")),
        _ => Ok(()),
    }
}

/// A bar on standard error with rate and time left; nothing at all where that is no terminal.
pub fn progress(what: &'static str, total: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = match total {
        Some(_) => "{msg} [{wide_bar}] {human_pos}/{human_len}  {rate}  {left}",
        None => "{msg} {spinner} {human_pos}  {rate}",
    };
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A bar that cannot be drawn is no reason to stop.
        let _ = write!(out, "{}/s", count(state.per_sec() as u64));
    };
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
        }
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.with_key("rate", rate).with_key("left", left).progress_chars("=> "));
    bar.set_message(what);
    bar
}

/// `1234567` as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in decimal units, three digits or more.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// What is stored of the vectors: `int8`, or `int8 + f32 originals`.
pub fn encoding(encoding: Encoding, originals: Originals) -> String {
    match originals {
        Originals::None => encoding.to_string(),
        kept => format!("{encoding} + {kept} originals"),
    }
}

/// `n` and the noun, in the plural where it belongs.
pub fn plural(n: u64, noun: &str, nouns: &str) -> String {
    format!("{} {}", count(n), if n == 1 { noun } else { nouns })
}

/// `text` cut to `width` characters.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    let _ = write!(short, "…");
    short
}

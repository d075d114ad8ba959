//! Files that are there as a whole or not at all.
//!
//! ```text
//! x.twx.tmp-<pid>-<n>  create, lock → write → fsync → rename to x.twx → fsync of the directory
//! ```
//!
//! The lock, held until after the rename, tells a save under way from the leavings of one that crashed: the operating
//! system releases a dead process's locks, so a temporary file that can be locked belongs to nobody.

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the file at `path` by what `write` writes, or leaves it as it was.
///
/// The bytes go to a temporary file in the same directory, which is synced and then renamed. After an error the
/// temporary file is removed and `path` is untouched; only a failing sync of the directory comes after the fact.
/// Leavings of crashed saves of the same file are removed after a successful one. A symbolic link is followed: the
/// file it points at is replaced. The new file has the permissions of the old one.
///
/// # Errors
/// Whatever `write` returns; [`Error::Io`] from the file system, and for a `path` where there is something else than a
/// regular file (a directory, a device, a pipe); [`Error::FileInUse`] where the operating system
/// refuses to replace a mapped file (Windows).
pub fn save_atomic<T>(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let path = path.as_ref();
    let target = match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(path)?,
        _ => path.to_path_buf(),
    };
    if let Ok(found) = fs::metadata(&target)
        && !found.is_file()
    {
        let reason = format!("{} is not a regular file; it is not replaced", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, reason).into());
    }
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} names no file", path.display())).into());
    };
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let temporary = Temporary::create(directory, name)?;
    let mut out = BufWriter::with_capacity(1 << 20, &temporary.file);
    let value = write(&mut out)?;
    out.flush()?;
    drop(out);
    if let Ok(found) = fs::metadata(&target) {
        temporary.file.set_permissions(found.permissions())?;
    }
    temporary.file.sync_all()?;
    temporary.rename_to(&target)?;
    sync_directory(directory)?;
    remove_leavings(directory, name);
    Ok(value)
}

/// A locked temporary file, removed when dropped unless it was renamed.
struct Temporary {
    file: File,
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    fn create(directory: &Path, name: &OsStr) -> Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        loop {
            let mut own = prefix(name);
            own.push(format!("{}-{}", process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
            let path = directory.join(own);
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e.into()),
            };
            // Between creation and lock another save may take the file for leavings: then it is gone, or its lock is.
            let lost = matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !path.exists();
            if !lost {
                return Ok(Temporary { file, path, renamed: false });
            }
        }
    }

    fn rename_to(mut self, target: &Path) -> Result<()> {
        fs::rename(&self.path, target).map_err(|e| match e.raw_os_error() {
            // ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_USER_MAPPED_FILE
            Some(5 | 32 | 1224) if cfg!(windows) => Error::FileInUse { path: target.display().to_string() },
            _ => e.into(),
        })?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // The error under way matters more than this one.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn prefix(name: &OsStr) -> OsString {
    let mut prefix = name.to_os_string();
    prefix.push(".tmp-");
    prefix
}

/// Makes the rename durable. File systems without such a thing say so by "invalid" or "unsupported"; a directory that
/// may be written but not read cannot be opened for it.
fn sync_directory(directory: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(directory).and_then(|d| d.sync_all()) {
        Err(e)
            if !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied) =>
        {
            Err(e.into())
        }
        _ => Ok(()),
    }
}

/// Removes what crashed saves of `name` left. The save has succeeded: what cannot be read or removed stays.
fn remove_leavings(directory: &Path, name: &OsStr) {
    let prefix = prefix(name);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let rest = file_name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        if !rest.is_some_and(is_pid_and_number) || !entry.file_type().is_ok_and(|t| t.is_file()) {
            continue;
        }
        let path = entry.path();
        if let Ok(file) = OpenOptions::new().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether `bytes` is `<digits>-<digits>`.
fn is_pid_and_number(bytes: &[u8]) -> bool {
    let mut parts = bytes.split(|&b| b == b'-');
    let number = |part: Option<&[u8]>| part.is_some_and(|p| !p.is_empty() && p.iter().all(u8::is_ascii_digit));
    number(parts.next()) && number(parts.next()) && parts.next().is_none()
}

//! Saving: the new file or the old one, and nothing left over.

use crate::sample::Sample;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use twindex::segment::{Segment, save_atomic};
use twindex::storage::MmapStorage;
use twindex::{Error, Result};

/// Fails once `left` bytes are written, as a full disk does.
struct Limited<W> {
    out: W,
    left: usize,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = self.out.write(&bytes[..bytes.len().min(self.left)])?;
        self.left -= n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn save(sample: &Sample, path: &Path, left: usize) -> Result<u64> {
    save_atomic(path, |out| sample.write(Limited { out, left }).map(|(_, len)| len))
}

fn seed_of(path: &Path) -> u64 {
    let segment = Segment::open(Arc::new(MmapStorage::open(path).unwrap())).unwrap();
    segment.verify().unwrap();
    segment.meta().graph.as_ref().unwrap().seed
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_failing_save_leaves_the_old_file_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.twx");
    let (old, new) = (Sample::full(1), Sample::full(2));
    let len = new.bytes().len();
    let limits = [0, 1, 63, 64, 100, len / 2, len * 99 / 100, len - 1].into_iter().chain((0..len).step_by(len / 50));

    assert!(matches!(save(&old, &path, 10), Err(Error::Io(_))));
    assert_eq!(names(directory.path()), [""; 0]);

    save(&old, &path, usize::MAX).unwrap();
    for left in limits {
        assert!(matches!(save(&new, &path, left), Err(Error::Io(_))), "{left} bytes");
        assert_eq!(seed_of(&path), 1, "{left} bytes");
        assert_eq!(names(directory.path()), ["x.twx"], "{left} bytes");
    }
    assert_eq!(save(&new, &path, len).unwrap(), len as u64);
    assert_eq!((seed_of(&path), names(directory.path())), (2, vec!["x.twx".to_string()]));
    assert_eq!(fs::read(&path).unwrap(), new.bytes());
}

#[test]
fn truncated_files_are_refused_when_mapped_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.twx");
    let bytes = Sample::full(1).bytes();
    for len in [0, 1, 8, 63, 64, 65, 191, 192, 4096, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..len]).unwrap();
        let opened = Segment::open(Arc::new(MmapStorage::open(&path).unwrap()));
        assert!(matches!(opened, Err(Error::Truncated { .. })), "{len} bytes: {opened:?}");
    }
}

#[test]
fn a_panic_while_writing_leaves_the_old_file_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.twx");
    save(&Sample::full(1), &path, usize::MAX).unwrap();
    let panicked = std::panic::catch_unwind(|| {
        save_atomic(&path, |out| -> Result<()> {
            out.write_all(&[1; 100])?;
            std::panic::resume_unwind(Box::new("in the middle"))
        })
    });
    assert!(panicked.is_err());
    assert_eq!((seed_of(&path), names(directory.path())), (1, vec!["x.twx".to_string()]));
}

#[test]
fn leavings_of_crashed_saves_go_and_everything_else_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for crashed in ["x.twx.tmp-1-0", "x.twx.tmp-4194304-17"] {
        fs::write(at(crashed), b"half a file").unwrap();
    }
    let others =
        ["x.twx.tmp", "x.twx.tmp-", "x.twx.tmp-1", "x.twx.tmp-1-", "x.twx.tmp-a-1", "x.twx.tmp-1-2-3", "y.twx.tmp-1-0"];
    others.iter().for_each(|name| fs::write(at(name), b"mine").unwrap());
    fs::create_dir(at("x.twx.tmp-9-9")).unwrap();
    let under_way = File::create(at("x.twx.tmp-2-0")).unwrap();
    under_way.lock().unwrap();

    save(&Sample::full(1), &at("x.twx"), usize::MAX).unwrap();
    let mut expected: Vec<&str> = others.into_iter().chain(["x.twx", "x.twx.tmp-9-9", "x.twx.tmp-2-0"]).collect();
    expected.sort_unstable();
    assert_eq!(names(directory.path()), expected);

    drop(under_way);
    save(&Sample::full(1), &at("x.twx"), usize::MAX).unwrap();
    assert!(!at("x.twx.tmp-2-0").exists());
}

#[test]
fn saves_of_one_file_from_many_threads_leave_one_whole_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.twx");
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..5 {
                    save(&Sample::full(seed), path, usize::MAX).unwrap();
                }
            });
        }
    });
    assert!((1..=4).contains(&seed_of(&path)));
    save(&Sample::full(7), &path, usize::MAX).unwrap();
    assert_eq!((seed_of(&path), names(directory.path())), (7, vec!["x.twx".to_string()]));
}

#[test]
fn what_cannot_be_a_file_is_an_error_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let taken = directory.path().join("x.twx");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("inside"), b"").unwrap();
    assert!(save(&Sample::full(1), &taken, usize::MAX).is_err());
    assert_eq!(names(directory.path()), ["x.twx"]);
    assert!(save(&Sample::full(1), Path::new("/"), usize::MAX).is_err());
    assert!(save(&Sample::full(1), Path::new(""), usize::MAX).is_err());
    assert!(save(&Sample::full(1), &directory.path().join("no/such/x.twx"), usize::MAX).is_err());
}

#[cfg(unix)]
#[test]
fn links_are_followed_permissions_stay_and_open_maps_live_on() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real.twx"), directory.path().join("link.twx"));
    save(&Sample::full(1), &real, usize::MAX).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.twx", &link).unwrap();

    let mapped = Segment::open(Arc::new(MmapStorage::open(&real).unwrap())).unwrap();
    save(&Sample::full(2), &link, usize::MAX).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(seed_of(&real), 2);
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    mapped.verify().unwrap();
    assert_eq!(mapped.meta().graph.as_ref().unwrap().seed, 1);
}

/// Whoever saves to a device or a pipe, as scripts do, must not find it gone.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for target in [&path, &link, &folder.path().to_path_buf()] {
        match save(&Sample::full(1), target, usize::MAX) {
            Err(Error::Io(e)) => assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{}", target.display()),
            other => panic!("{}: {other:?}", target.display()),
        }
    }
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

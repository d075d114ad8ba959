//! CPU time and memory of this process, as far as the operating system tells.

#[cfg(unix)]
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};

/// Seconds of CPU time this process has used so far, all threads together, in user and kernel mode.
#[cfg(unix)]
pub fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |t: TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// The most memory this process has had resident so far, in bytes; mapped files count where they are resident.
#[cfg(unix)]
pub fn peak_rss_bytes() -> Option<u64> {
    // What rusage says on Linux begins with the peak of the process that started this one.
    if let Some(peak) = status_bytes("VmHWM:") {
        return Some(peak);
    }
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    u64::try_from(getrusage(UsageWho::RUSAGE_SELF).ok()?.max_rss()).ok().map(|peak| peak * unit)
}

/// What this process has resident now, in bytes: all of it, and the part that no file backs. Linux tells.
pub fn rss_bytes() -> (Option<u64>, Option<u64>) {
    (status_bytes("VmRSS:"), status_bytes("RssAnon:"))
}

/// A size among what Linux tells of this process.
fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix(name))?;
    size.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(not(unix))]
pub fn cpu_seconds() -> Option<f64> {
    None
}

#[cfg(not(unix))]
pub fn peak_rss_bytes() -> Option<u64> {
    None
}

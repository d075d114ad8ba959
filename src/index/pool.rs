//! Buffers lent to whoever searches or inserts, so that a warmed-up call allocates nothing; and the threads to run on.

use crate::error::Error;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffers not in use.
#[derive(Debug, Default)]
pub struct Pool<T> {
    idle: Mutex<Vec<Box<T>>>,
}

impl<T: Default> Pool<T> {
    /// Lends buffers: used ones if there are any.
    pub fn lend(&self) -> Lease<'_, T> {
        let value = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        Lease { pool: self, value: Some(value) }
    }

    /// Drops the buffers not in use.
    pub fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Buffers on loan: they go back when dropped.
#[derive(Debug)]
pub struct Lease<'a, T: Default> {
    pool: &'a Pool<T>,
    /// There until it goes back.
    value: Option<Box<T>>,
}

impl<T: Default> Deref for Lease<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it goes back once"),
        }
    }
}

impl<T: Default> DerefMut for Lease<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("it goes back once"),
        }
    }
}

impl<T: Default> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.value.take());
    }
}

/// The most threads an index may be given.
const MAX_THREADS: usize = 1024;

/// The threads an index may use: 0 = all cores.
///
/// They are started for each batch and joined at its end. A shared pool would have threads that wait for a batch take
/// up other tasks meanwhile, another change to the same index among them: a deadlock with whoever waits for the first
/// to end.
#[derive(Debug)]
pub struct Threads {
    count: usize,
}

impl Threads {
    /// As many as `count`, this one included.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] beyond [`MAX_THREADS`].
    pub fn new(count: usize) -> Result<Self, Error> {
        if count > MAX_THREADS {
            return Err(Error::InvalidParameter { name: "threads", expected: "0 to 1024", got: count.to_string() });
        }
        Ok(Threads { count })
    }

    /// How many there may be, this one included.
    pub fn count(&self) -> usize {
        match self.count {
            _ if !cfg!(feature = "parallel") => 1,
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }

    /// Runs `f(scratch, i)` for every `i` in `range`: in order on one thread; on several, begun in order. Stops at the
    /// first error.
    pub fn for_each<T, E>(
        &self,
        range: Range<usize>,
        pool: &Pool<T>,
        f: impl Fn(&mut T, usize) -> Result<(), E> + Sync,
    ) -> Result<(), E>
    where
        T: Default + Send,
        E: Send,
    {
        let next = AtomicUsize::new(range.start);
        let work = || {
            let mut scratch = pool.lend();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= range.end {
                    return Ok(());
                }
                if let Err(e) = f(&mut scratch, i) {
                    // Nothing is left for the others.
                    next.store(range.end, Ordering::Relaxed);
                    return Err(e);
                }
            }
        };
        self.on_all(range.len(), &work)
    }

    /// Does `work` on this thread: there are no others.
    #[cfg(not(feature = "parallel"))]
    fn on_all<E>(&self, tasks: usize, work: &(dyn Fn() -> Result<(), E> + Sync)) -> Result<(), E> {
        let _ = self.count.min(tasks);
        work()
    }

    /// Does `work` on this thread and on others, no more of them than there are tasks.
    #[cfg(feature = "parallel")]
    fn on_all<E: Send>(&self, tasks: usize, work: &(dyn Fn() -> Result<(), E> + Sync)) -> Result<(), E> {
        use std::thread;
        let count = self.count();
        thread::scope(|scope| {
            // Where no more threads are to be had, those there are do it all.
            let others: Vec<_> =
                (1..count.min(tasks)).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            let mine = work();
            let theirs = others.into_iter().map(|other| match other.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            theirs.fold(mine, Result::and)
        })
    }
}

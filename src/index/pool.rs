//! Buffers lent to whoever searches or inserts, so that a warmed-up call allocates nothing; and the threads to run on.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Buffers not in use.
#[derive(Debug, Default)]
pub struct Pool<T> {
    idle: Mutex<Vec<T>>,
}

impl<T: Default> Pool<T> {
    /// Lends buffers: used ones if there are any.
    pub fn lend(&self) -> Lease<'_, T> {
        let value = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        Lease { pool: self, value }
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
    value: T,
}

impl<T: Default> Deref for Lease<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default> DerefMut for Lease<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        let value = std::mem::take(&mut self.value);
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }
}

/// The threads an index may use: 0 = all cores.
pub struct Threads {
    count: usize,
    #[cfg(feature = "parallel")]
    own: std::sync::OnceLock<Option<rayon::ThreadPool>>,
}

impl Threads {
    /// Threads are started when they are first needed.
    pub fn new(count: usize) -> Self {
        Threads {
            count,
            #[cfg(feature = "parallel")]
            own: std::sync::OnceLock::new(),
        }
    }

    /// Runs `f(scratch, i)` for every `i` in `range`, in order on one thread or in any order on several. Stops at the first
    /// error.
    pub fn for_each<T, E>(
        &self,
        range: std::ops::Range<usize>,
        pool: &Pool<T>,
        f: impl Fn(&mut T, usize) -> Result<(), E> + Sync,
    ) -> Result<(), E>
    where
        T: Default + Send,
        E: Send,
    {
        #[cfg(feature = "parallel")]
        if self.count != 1 && range.len() > 1 {
            return self.for_each_parallel(range, pool, f);
        }
        let mut scratch = pool.lend();
        range.into_iter().try_for_each(|i| f(&mut scratch, i))
    }

    #[cfg(feature = "parallel")]
    fn for_each_parallel<T, E>(
        &self,
        range: std::ops::Range<usize>,
        pool: &Pool<T>,
        f: impl Fn(&mut T, usize) -> Result<(), E> + Sync,
    ) -> Result<(), E>
    where
        T: Default + Send,
        E: Send,
    {
        use rayon::prelude::*;
        let run =
            || range.into_par_iter().with_max_len(1).try_for_each_init(|| pool.lend(), |scratch, i| f(scratch, i));
        // Where no threads can be had, rayon's own pool does the work on this one.
        let own = (self.count > 1)
            .then(|| self.own.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(self.count).build().ok()));
        match own {
            Some(Some(threads)) => threads.install(run),
            _ => run(),
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count).finish_non_exhaustive()
    }
}

//! Counts the work of a publish (bytes copied, reference counts changed), so that tests can assert its cost without a
//! clock.
//!
//! Nothing is counted outside this crate's tests and the feature `cost`: there the calls are empty.

/// Work on this thread since the last call of `take`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of tree nodes that were copied.
    pub bytes: u64,
    /// Reference counts that those copies incremented.
    pub counts: u64,
    /// References to children that freed tree nodes dropped.
    pub dropped: u64,
}

#[cfg(any(test, feature = "cost"))]
thread_local! {
    static COST: std::cell::Cell<Cost> = const {
        std::cell::Cell::new(Cost { bytes: 0, counts: 0, dropped: 0 })
    };
}

/// Records the copy of a `T` that incremented `counts` reference counts.
pub(crate) fn copied<T>(counts: usize) {
    copied_bytes(size_of::<T>(), counts);
}

/// Records a copy of `bytes` bytes that incremented `counts` reference counts.
#[cfg_attr(not(any(test, feature = "cost")), expect(unused_variables, reason = "counted in tests"))]
pub(crate) fn copied_bytes(bytes: usize, counts: usize) {
    #[cfg(any(test, feature = "cost"))]
    COST.with(|cost| {
        let mut sum = cost.get();
        sum.bytes += bytes as u64;
        sum.counts += counts as u64;
        cost.set(sum);
    });
}

/// Returns the work on this thread since the last call, and resets the counters.
#[cfg(any(test, feature = "cost"))]
pub fn take() -> Cost {
    let dropped = crate::freeing::take_dropped();
    Cost { dropped, ..COST.with(|cost| cost.replace(Cost::default())) }
}

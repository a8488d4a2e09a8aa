//! What a publish copies, counts and frees, so that its cost law can be asserted
//! without a clock.
//!
//! Counted only in this crate's own tests: everywhere else the calls are empty.

/// Bytes copied and reference counts bumped and dropped on this thread since the last `take`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of tree nodes copied.
    pub bytes: u64,
    /// Reference counts bumped by those copies.
    pub counts: u64,
    /// References to children dropped by tree nodes that were freed.
    pub dropped: u64,
}

#[cfg(any(test, feature = "cost"))]
thread_local! {
    static COST: std::cell::Cell<Cost> = const {
        std::cell::Cell::new(Cost { bytes: 0, counts: 0, dropped: 0 })
    };
}

/// A value of type `T` was copied, and `counts` reference counts in it bumped.
pub(crate) fn copied<T>(counts: usize) {
    copied_bytes(size_of::<T>(), counts);
}

/// `bytes` were copied, and `counts` reference counts bumped.
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

/// What was counted on this thread since the last call.
#[cfg(any(test, feature = "cost"))]
pub fn take() -> Cost {
    let dropped = crate::freeing::take_dropped();
    Cost { dropped, ..COST.with(|cost| cost.replace(Cost::default())) }
}

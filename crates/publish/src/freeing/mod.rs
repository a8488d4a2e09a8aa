//! Frees large trees a bounded number of steps at a time.
//!
//! Dropping the last owner of a persistent tree frees everything that no other tree shares, and that takes as long as
//! the tree is large: half a second for a million nodes. This module bounds it. A thread that frees has a number of
//! steps, and a step drops one reference. When the steps run out, a tree node that is being dropped no longer drops its
//! children: it puts them off, all of them as one [`Part`], and the owner of the budget keeps the parts for later.
//!
//! The steps are counted in the destructors of the tree nodes and not by a walk over the tree, for two reasons. The
//! destructor of a node runs exactly once, on the thread that dropped the last reference, so two owners that let go at
//! the same moment cannot each leave the work to the other. And nobody has to list the trees of which a version
//! consists: a tree that is added later takes part by itself.
//!
//! A kind of tree node takes part by a field [`Counted`] and by a `Drop` that calls [`drop_children`].
//!
//! Three owners free:
//!
//! - The writer's side has a [`Backlog`] and gives a number of steps each time ([`Backlog::free`],
//!   [`Backlog::work_off`]). The backlog also takes the forks and versions that a step of the writer drops
//!   ([`Backlog::during`]): the writer takes no lock and starts no thread.
//! - An owner that drops a version or a fork by itself, on any thread, frees [`IN_PLACE`] steps there. A thread that
//!   lives as long as there is work frees the rest ([`reaper`]); a version asks for this with the fields
//!   [`Begin`] and [`End`]. An ending thread does the same for what its thread-locals hold.
//! - Any other drop of a tree is not bounded.
//!
//! # Why a backlog runs out
//!
//! Call the slots for children in all nodes that are not freed yet the units. Nodes count theirs when they are made
//! ([`made`]), and a step empties one: there is none in a part that holds nothing. If each round makes `m` units and
//! frees with `m + k` steps, then as long as something is left of the backlog there are `k` units less after each round;
//! so it is empty after at most `units / k` rounds.

mod reaper;

use std::mem;

/// Something that was put off: children of a node that is freed.
pub trait Part: Send + Sync + 'static {}

impl<T: Send + Sync + 'static> Part for T {}

/// The slots of a tree node, counted when it is made. Takes no memory.
pub struct Counted<const CHILDREN: usize>(());

impl<const CHILDREN: usize> Counted<CHILDREN> {
    /// A node is made.
    #[inline]
    pub fn new() -> Self {
        count(CHILDREN);
        Self(())
    }
}

impl<const CHILDREN: usize> Default for Counted<CHILDREN> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl<const CHILDREN: usize> Clone for Counted<CHILDREN> {
    #[inline]
    fn clone(&self) -> Self {
        Self::new()
    }
}

#[cfg(any(test, feature = "cost"))]
#[doc(hidden)]
pub use local::take_dropped;
pub use local::{Begin, End, count, made};
use local::{Scope, put_off, take_steps};

/// The children of a tree node: an array with vacant slots, or a list.
pub trait Children: Part + Sized {
    /// Whether a child refers to anything that is freed.
    const NEEDS_DROP: bool;

    /// How many there are.
    fn count(&self) -> usize;

    /// A position with a child, the first from `from` on in an array.
    fn next(&self, from: usize) -> Option<usize>;

    /// Drops the child at a position that [`next`](Self::next) returned.
    fn drop_at(&mut self, at: usize);

    /// Takes all children out.
    fn take(&mut self) -> Self;
}

impl<C: Part, const N: usize> Children for [Option<C>; N] {
    const NEEDS_DROP: bool = mem::needs_drop::<C>();

    #[inline]
    fn count(&self) -> usize {
        self.iter().flatten().count()
    }

    #[inline]
    fn next(&self, from: usize) -> Option<usize> {
        (from..N).find(|at| self[*at].is_some())
    }

    #[inline]
    fn drop_at(&mut self, at: usize) {
        self[at] = None;
    }

    fn take(&mut self) -> Self {
        mem::replace(self, [const { None }; N])
    }
}

impl<C: Part> Children for Vec<C> {
    const NEEDS_DROP: bool = mem::needs_drop::<C>();

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn next(&self, _from: usize) -> Option<usize> {
        self.len().checked_sub(1)
    }

    #[inline]
    fn drop_at(&mut self, _last: usize) {
        self.pop();
    }

    fn take(&mut self) -> Self {
        mem::take(self)
    }
}

/// So few children take their steps together, which is faster than one by one. Each may be put off by itself then, so
/// this bounds the parts of a level.
const FEW: usize = 8;

/// Drops the children of a node while steps are left, and puts the others off. Those that are still there afterwards
/// have their steps: the node's fields drop them.
#[inline]
pub fn drop_children<C: Children>(children: &mut C) {
    if !C::NEEDS_DROP {
        return;
    }
    let count = children.count();
    if count > FEW || !take_steps(count) {
        drop_some(children);
    }
}

#[inline(never)]
fn drop_some<C: Children>(children: &mut C) {
    let mut from = 0;
    while let Some(at) = children.next(from) {
        if !take_steps(1) {
            put_off(Box::new(Deferred(children.take())));
            return;
        }
        children.drop_at(at);
        from = at;
    }
}

/// Deferred children. Those that exceed the budget again are deferred again.
struct Deferred<C: Children>(C);

impl<C: Children> Drop for Deferred<C> {
    fn drop(&mut self) {
        drop_children(&mut self.0);
    }
}

/// Parts to be freed, kept by the owner of the budget.
#[derive(Default)]
pub(crate) struct Backlog {
    parts: Vec<Box<dyn Part>>,
}

impl Backlog {
    /// Drops `whole` with at most `*steps` steps, subtracts the steps used, and keeps the rest.
    ///
    /// The parts of `whole` that are in no tree are dropped at once and take no steps.
    pub(crate) fn free<T>(&mut self, whole: T, steps: &mut u64) {
        self.during(steps, || drop(whole));
    }

    /// Runs `work` on this thread, and keeps what it frees in more than `*steps` steps. Allocating a tree node adds its
    /// slots to the steps, so `work` can always free the nodes that it allocated. Leaves the remaining steps in `*steps`.
    pub(crate) fn during<R>(&mut self, steps: &mut u64, work: impl FnOnce() -> R) -> R {
        let _scope = Scope::open(steps, &mut self.parts);
        work()
    }

    /// Frees the kept parts, the latest first, with at most `*steps` steps, and subtracts the steps used.
    pub(crate) fn work_off(&mut self, steps: &mut u64) {
        while *steps > 0
            && let Some(part) = self.parts.pop()
        {
            // Takes a step at least: no part is empty.
            self.free(part, steps);
        }
        if self.parts.is_empty() && self.parts.capacity() > 64 {
            self.parts = Vec::new();
        }
    }

    /// How many parts are kept. Each may be a large tree.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        let mut steps = IN_PLACE;
        self.work_off(&mut steps);
        if !self.parts.is_empty() {
            hand_over(mem::take(&mut self.parts));
        }
    }
}

impl std::fmt::Debug for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backlog").field("parts", &self.len()).finish()
    }
}

/// Steps on the thread of an owner that drops a version or a fork; a fraction of a millisecond. Unlimited under Miri.
pub(crate) const IN_PLACE: u64 = if cfg!(miri) { u64::MAX } else { 512 };

pub(crate) use reaper::hand_over;
#[cfg(any(test, feature = "cost"))]
#[doc(hidden)]
pub use reaper::take_handed_over;

#[cfg(not(loom))]
mod local {
    //! The steps of this thread, and what it put off.

    use std::cell::Cell;
    use std::mem::ManuallyDrop;

    use super::{IN_PLACE, Part, hand_over};

    struct Thread {
        /// Steps that are left. Outside of any scope there are too many to ever run out.
        left: Cell<u64>,
        /// Scopes that are open, each within the one before.
        scopes: Cell<u32>,
        made: Cell<u64>,
        /// Parts of the open scopes, the deepest of a tree first. Empty when no scope is open, so nothing leaks although
        /// it is never dropped. If it were, the destructors of other thread-locals could come after that and have nowhere
        /// to put parts.
        put_off: ManuallyDrop<Cell<Vec<Box<dyn Part>>>>,
        #[cfg(any(test, feature = "cost"))]
        dropped: Cell<u64>,
    }

    thread_local! {
        static THREAD: Thread = const {
            Thread {
                left: Cell::new(u64::MAX),
                scopes: Cell::new(0),
                made: Cell::new(0),
                put_off: ManuallyDrop::new(Cell::new(Vec::new())),
                #[cfg(any(test, feature = "cost"))]
                dropped: Cell::new(0),
            }
        };
    }

    /// Slots were made. The open scope may drop as many more.
    #[inline]
    pub fn count(units: usize) {
        let units = units as u64;
        THREAD.with(|thread| {
            thread.made.set(thread.made.get().wrapping_add(units));
            thread.left.set(thread.left.get().saturating_add(units));
        });
    }

    /// How many slots this thread has made; wraps.
    pub fn made() -> u64 {
        THREAD.with(|thread| thread.made.get())
    }

    /// Takes so many steps, if as many are left.
    #[inline]
    pub(super) fn take_steps(steps: usize) -> bool {
        let steps = steps as u64;
        THREAD.with(|thread| {
            let Some(left) = thread.left.get().checked_sub(steps) else { return false };
            thread.left.set(left);
            #[cfg(any(test, feature = "cost"))]
            thread.dropped.set(thread.dropped.get() + steps);
            true
        })
    }

    /// How many references nodes dropped on this thread since the last call, in all.
    #[cfg(any(test, feature = "cost"))]
    pub fn take_dropped() -> u64 {
        THREAD.with(|thread| thread.dropped.take())
    }

    #[cold]
    pub(super) fn put_off(part: Box<dyn Part>) {
        THREAD.with(|thread| {
            let mut parts = thread.put_off.take();
            parts.push(part);
            thread.put_off.set(parts);
        });
    }

    /// A number of steps, for what this thread drops while the scope is open.
    pub(super) struct Scope<'a> {
        steps: &'a mut u64,
        into: &'a mut Vec<Box<dyn Part>>,
        /// What the scope around it has left.
        around: u64,
    }

    impl<'a> Scope<'a> {
        pub(super) fn open(steps: &'a mut u64, into: &'a mut Vec<Box<dyn Part>>) -> Self {
            let around = THREAD.with(|thread| {
                thread.scopes.set(thread.scopes.get() + 1);
                thread.left.replace(*steps)
            });
            Self { steps, into, around }
        }
    }

    impl Drop for Scope<'_> {
        /// Also where a destructor panicked.
        fn drop(&mut self) {
            *self.steps = THREAD.with(|thread| {
                thread.scopes.set(thread.scopes.get() - 1);
                thread.left.replace(self.around)
            });
            self.into.extend(take_put_off());
        }
    }

    /// The last part is the first to be taken up again. That is to be the deepest, so that there are never more parts of
    /// a tree than `FEW` a level; it was put off before those above it.
    fn take_put_off() -> impl ExactSizeIterator<Item = Box<dyn Part>> {
        THREAD.with(|thread| thread.put_off.take()).into_iter().rev()
    }

    /// The first field of what is freed in bounded steps by whoever drops it: fields drop in their order.
    pub struct Begin;

    /// The last field of it. What a scope around it frees is left to that scope.
    pub struct End;

    impl Drop for Begin {
        #[inline]
        fn drop(&mut self) {
            THREAD.with(|thread| {
                let scopes = thread.scopes.get();
                if scopes == 0 {
                    thread.left.set(IN_PLACE);
                }
                thread.scopes.set(scopes + 1);
            });
        }
    }

    impl Drop for End {
        #[inline]
        fn drop(&mut self) {
            let is_last = THREAD.with(|thread| {
                let scopes = thread.scopes.get().saturating_sub(1);
                thread.scopes.set(scopes);
                if scopes == 0 {
                    thread.left.set(u64::MAX);
                }
                scopes == 0
            });
            if is_last {
                hand_over(take_put_off().collect());
            }
        }
    }
}

#[cfg(loom)]
mod local {
    //! Nothing is put off in a model: all its threads are one thread of the system, and what this counts is a
    //! thread's own.

    use super::Part;

    /// See the other `local`.
    pub struct Begin;
    /// See the other `local`.
    pub struct End;
    pub(super) struct Scope<'a>(std::marker::PhantomData<&'a ()>);

    impl<'a> Scope<'a> {
        pub(super) fn open(_steps: &'a mut u64, _into: &'a mut Vec<Box<dyn Part>>) -> Self {
            Self(std::marker::PhantomData)
        }
    }

    impl Drop for Scope<'_> {
        fn drop(&mut self) {}
    }

    /// See the other `local`.
    pub fn count(_units: usize) {}

    /// See the other `local`.
    pub fn made() -> u64 {
        0
    }

    pub(super) fn take_steps(_steps: usize) -> bool {
        true
    }

    #[cfg(any(test, feature = "cost"))]
    pub fn take_dropped() -> u64 {
        0
    }

    pub(super) fn put_off(_part: Box<dyn Part>) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A node of a tree, which counts how many there are.
    struct Node {
        children: [Option<Arc<Node>>; 4],
        alive: Arc<AtomicUsize>,
        _counted: Counted<4>,
    }

    impl Drop for Node {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::Relaxed);
            drop_children(&mut self.children);
        }
    }

    fn node(alive: &Arc<AtomicUsize>, children: [Option<Arc<Node>>; 4]) -> Arc<Node> {
        alive.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node { children, alive: alive.clone(), _counted: Counted::new() })
    }

    /// A full tree: a node, and so many levels below it.
    fn tree(alive: &Arc<AtomicUsize>, levels: usize) -> Arc<Node> {
        let below = |_| (levels > 0).then(|| tree(alive, levels - 1));
        node(alive, std::array::from_fn(below))
    }

    fn work_off_all(backlog: &mut Backlog) {
        let mut steps = u64::MAX;
        backlog.work_off(&mut steps);
        assert_eq!(backlog.len(), 0);
    }

    const LEVELS: usize = if cfg!(miri) { 3 } else { 6 };

    #[test]
    fn a_round_takes_no_more_steps_than_it_is_given() {
        let alive = Arc::default();
        let mut whole = Some(tree(&alive, LEVELS));
        let mut backlog = Backlog::default();
        let nodes = alive.load(Ordering::Relaxed);
        let mut rounds = 0;
        loop {
            let before = alive.load(Ordering::Relaxed);
            local::take_dropped();
            let mut steps = 10;
            if let Some(whole) = whole.take() {
                backlog.free(whole, &mut steps);
            }
            backlog.work_off(&mut steps);
            let dropped = local::take_dropped();
            assert!(dropped <= 10, "{dropped} references in a round of 10 steps");
            assert!(before - alive.load(Ordering::Relaxed) <= 11);
            assert!(backlog.len() <= 4 * LEVELS, "{backlog:?}");
            rounds += 1;
            if backlog.len() == 0 {
                break;
            }
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        // Each node but the first takes a step.
        assert_eq!(rounds, (nodes - 1).div_ceil(10));
    }

    #[test]
    fn what_others_share_stays() {
        let alive = Arc::default();
        let shared = tree(&alive, 2);
        let kept = alive.load(Ordering::Relaxed);
        let whole = node(&alive, std::array::from_fn(|_| Some(shared.clone())));
        let mut backlog = Backlog::default();
        backlog.free(whole, &mut 2);
        assert_eq!((backlog.len(), alive.load(Ordering::Relaxed)), (1, kept));
        work_off_all(&mut backlog);
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_backlog_gets_shorter_while_rounds_make_as_much_as_ever() {
        let alive = Arc::default();
        let mut backlog = Backlog::default();
        backlog.free(tree(&alive, LEVELS), &mut 0);
        let first = alive.load(Ordering::Relaxed);
        let mut rounds = 0;
        while backlog.len() > 0 {
            // Another tree is made and replaced in each round.
            let before = made();
            let whole = tree(&alive, 2);
            let mut steps = 16 + made().wrapping_sub(before);
            backlog.free(whole, &mut steps);
            backlog.work_off(&mut steps);
            rounds += 1;
            assert!(rounds <= first / 16 + 1, "{} nodes are left", alive.load(Ordering::Relaxed));
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn concurrent_last_drops_free_everything() {
        for _ in 0..if cfg!(miri) { 5 } else { 500 } {
            let alive = Arc::default();
            let whole = tree(&alive, 3);
            let owners = [whole.clone(), whole];
            std::thread::scope(|scope| {
                for owner in owners {
                    scope.spawn(|| {
                        let mut backlog = Backlog::default();
                        backlog.free(owner, &mut 7);
                        while backlog.len() > 0 {
                            local::take_dropped();
                            backlog.work_off(&mut 7);
                            assert!(local::take_dropped() <= 7);
                        }
                    });
                }
            });
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_destructor_that_panics_leaves_the_thread_as_it_was() {
        struct Panics(Option<Arc<Node>>);
        impl Drop for Panics {
            fn drop(&mut self) {
                self.0 = None;
                std::panic::panic_any(());
            }
        }
        let alive = Arc::default();
        let mut backlog = Backlog::default();
        let panics = Panics(Some(tree(&alive, 3)));
        let freeing = std::panic::AssertUnwindSafe(|| backlog.free(panics, &mut 3));
        assert!(std::panic::catch_unwind(freeing).is_err());
        assert!(backlog.len() > 0);
        work_off_all(&mut backlog);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        // Outside of a scope nothing is put off.
        drop(tree(&alive, 3));
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    /// Held by tests that fill the queue of the thread that frees, or need room in it.
    static QUEUE_ALONE: Mutex<()> = Mutex::new(());

    /// As a version is.
    struct Whole {
        _begin: Begin,
        _tree: Arc<Node>,
        _end: End,
    }

    #[test]
    #[cfg_attr(miri, ignore = "all is freed in place there")]
    fn an_owner_frees_a_little_itself_and_leaves_the_rest_to_a_thread() {
        let _alone = QUEUE_ALONE.lock();
        let alive = Arc::default();
        let whole = || Whole { _begin: Begin, _tree: tree(&alive, 7), _end: End };
        // More owners than the thread takes work from.
        for round in 0..100 {
            local::take_dropped();
            drop(whole());
            let dropped = local::take_dropped();
            // Those that find the queue full free all of it.
            let is_bounded = dropped == IN_PLACE;
            assert!(is_bounded || round > 0 && dropped > IN_PLACE, "{dropped} in round {round}");
        }
        // One within a scope leaves the rest to that scope.
        let mut backlog = Backlog::default();
        local::take_dropped();
        backlog.free(whole(), &mut 5);
        assert_eq!((local::take_dropped(), backlog.len() > 0), (5, true));
        drop(backlog);
        while alive.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
    #[test]
    #[cfg_attr(miri, ignore = "all is freed in place there")]
    fn an_ending_thread_frees_what_its_locals_hold_in_bounded_steps() {
        use std::cell::RefCell;
        use std::sync::mpsc::Sender;

        /// Says how many references its drop dropped.
        struct Kept(Option<Whole>, Sender<u64>);
        impl Drop for Kept {
            fn drop(&mut self) {
                local::take_dropped();
                self.0 = None;
                let _ = self.1.send(local::take_dropped());
            }
        }
        thread_local! {
            static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
        }
        let _alone = QUEUE_ALONE.lock();
        let alive = Arc::default();
        let (said, dropped) = std::sync::mpsc::channel();
        let kept = tree(&alive, 7);
        let thread = std::thread::spawn(move || {
            // Registered first, so destroyed after the locals of this module.
            KEPT.set(None);
            drop(Whole { _begin: Begin, _tree: tree(&Arc::default(), 5), _end: End });
            let whole = Whole { _begin: Begin, _tree: kept, _end: End };
            KEPT.set(Some(Kept(Some(whole), said)));
        });
        thread.join().unwrap();
        assert_eq!(dropped.recv(), Ok(IN_PLACE));
        while alive.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "all is freed in place there")]
    fn a_drop_that_takes_all_steps_and_no_more_hands_nothing_over() {
        let alive = Arc::default();
        let below = [4, 3, 3, 0].map(|levels| Some(tree(&alive, levels)));
        let root = node(&alive, below);
        assert_eq!(alive.load(Ordering::Relaxed) as u64 - 1, IN_PLACE);
        take_handed_over();
        drop(Whole { _begin: Begin, _tree: root, _end: End });
        assert_eq!((alive.load(Ordering::Relaxed), take_handed_over()), (0, 0));
    }

    #[test]
    fn work_frees_what_it_allocates_and_keeps_the_rest_for_later() {
        let alive = Arc::default();
        let older = tree(&alive, LEVELS);
        let mut backlog = Backlog::default();
        let before = alive.load(Ordering::Relaxed);
        backlog.during(&mut 0, || drop(tree(&alive, LEVELS)));
        assert_eq!((backlog.len(), alive.load(Ordering::Relaxed)), (0, before));
        backlog.during(&mut 5, || drop(older));
        assert_eq!(alive.load(Ordering::Relaxed), before - 6);
        work_off_all(&mut backlog);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}

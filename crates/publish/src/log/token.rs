//! The writer token: a lock whose holder does everyone's work, and the argument that no work is stranded.
//!
//! The pattern is flat combining. A thread with an event puts it in the log and *tries* the token. If the thread gets
//! the token, it folds everything in the log. If not, it returns, because the holder is doing the work. Nobody queues
//! for the lock, and a thread mostly folds its own event on its own core, in its own cache.
//!
//! # No event is stranded
//!
//! The danger is the moment of release: a holder finds the log empty, another thread pushes an event and fails to get
//! the token, and the holder releases the token. Then the event is in the log and nobody folds it. So each side does
//! two things, in an order that a fence enforces:
//!
//! - the submitter S: *push*; fence `Fs`; *try the token*;
//! - a holder H: *release*; fence `Fh`; *check the log*, and if it is not empty, try the token again.
//!
//! Suppose S fails to get the token because H holds it. All such fences are in one total order:
//!
//! 1. `Fs` before `Fh`: H's check sees the push, and H tries the token. If the try fails, a third thread holds the
//!    token, and H's try did not see that thread's release. So that thread's fence comes after `Fh`, and the argument
//!    repeats with that thread in H's place. There are finitely many tries, so the last holder sees the push and gets
//!    the token.
//! 2. `Fh` before `Fs`: S's try sees H's release, so it can fail only because another thread took the token later. That
//!    thread is H in this argument.
//!
//! A holder may leave without the check in one case: another thread has *promised* to take the token ([`Token::take`])
//! and is waiting for the lock that the holder releases. That thread acquires the lock after the release, so it sees
//! what the holder would have seen, and the same rule binds it when it leaves.
//!
//! # No thread waits for itself
//!
//! A fold, or work that runs on the writer, may call back into the log that it runs under. So each thread records the
//! tokens that it holds ([`Token::is_held_here`]), and the log refuses calls that would wait for one of them.
//!
//! # No holder works forever
//!
//! While other threads keep submitting events, a holder could continue without end. After [`PATIENCE`] batches it sets
//! the `tired` flag. A submitter that fails to get the token and sees the flag then waits for the token (a
//! promise), and the holder leaves at the end of its batch. If no submitter comes, no events arrive either, so at most
//! one full log remains to fold.

use std::cell::RefCell;

use crossbeam_utils::CachePadded;

use crate::sync::{
    AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, fenced, lock, mutated, try_lock,
};

/// The number of batches after which a holder asks for relief.
pub(crate) const PATIENCE: u32 = if cfg!(loom) { 1 } else { 4 };

/// A lock around the writer's state, with the hand-over described in the module documentation.
pub(crate) struct Token<S> {
    hints: CachePadded<Hints>,
    state: Mutex<S>,
}

/// State that threads read without the lock. All accesses are relaxed: the fences provide the ordering.
struct Hints {
    /// Set while a thread holds the token, so that a try is mostly one load of a shared cache line.
    held: AtomicBool,
    /// Set while the holder asks for relief.
    tired: AtomicBool,
    /// The number of threads that have promised to take the token and do not have it yet.
    promised: AtomicUsize,
}

#[cfg(not(loom))]
std::thread_local! {
    /// The tokens that this thread holds: one, or a few if the fold of one log calls another log.
    static HELD: RefCell<Vec<TokenId>> = const { RefCell::new(Vec::new()) };
}

// All loom threads share one OS thread.
#[cfg(loom)]
loom::thread_local! {
    static HELD: RefCell<Vec<TokenId>> = RefCell::new(Vec::new());
}

/// Identifies a token by its address. The token exists, and does not move while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenId(usize);

impl TokenId {
    /// The id of no token.
    pub(crate) const NONE: TokenId = TokenId(0);

    /// Whether the calling thread holds this token.
    pub(crate) fn is_held_here(self) -> bool {
        // A thread whose thread-locals are gone is running its last destructors, and counts as holding nothing.
        HELD.try_with(|held| held.borrow().contains(&self)).unwrap_or(false)
    }
}

/// The held token. Release it with [`Token::release`] or [`Token::leave_to_others`]; never just drop it.
pub(crate) struct Held<'a, S> {
    pub(crate) state: MutexGuard<'a, S>,
    _here: HeldHere,
}

/// Records that the calling thread holds a token.
struct HeldHere(TokenId);

impl HeldHere {
    fn note(id: TokenId) -> HeldHere {
        let _ = HELD.try_with(|held| held.borrow_mut().push(id));
        HeldHere(id)
    }
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| held.borrow_mut().retain(|id| *id != self.0));
    }
}

impl<S> Token<S> {
    pub(crate) fn new(state: S) -> Self {
        let hints = Hints {
            held: AtomicBool::new(false),
            tired: AtomicBool::new(false),
            promised: AtomicUsize::new(0),
        };
        Self { hints: CachePadded::new(hints), state: Mutex::new(state) }
    }

    /// The state, through exclusive access to the token.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the token if it is free. The caller must first push and then fence; see the module documentation.
    pub(crate) fn try_take(&self) -> Option<Held<'_, S>> {
        if self.hints.held.load(Ordering::Relaxed) {
            return None;
        }
        // No promise is needed: the rule for holders binds a thread that succeeds, and one that fails owes nothing.
        try_lock(&self.state).map(|state| self.hold(state))
    }

    /// Waits for the token and takes it. Waiting is a promise, which lets the holder leave early.
    pub(crate) fn take(&self) -> Held<'_, S> {
        self.hints.promised.fetch_add(1, Ordering::Relaxed);
        let state = lock(&self.state);
        // Under the lock: a promise that a holder sees has not been kept yet.
        self.hints.promised.fetch_sub(1, Ordering::Relaxed);
        self.hold(state)
    }

    /// Distinguishes this token from all other existing tokens.
    pub(crate) fn id(&self) -> TokenId {
        TokenId(std::ptr::from_ref(self).addr())
    }

    /// Whether the calling thread holds the token, so that [`take`](Self::take) would wait forever.
    pub(crate) fn is_held_here(&self) -> bool {
        self.id().is_held_here()
    }

    fn hold<'a>(&self, state: MutexGuard<'a, S>) -> Held<'a, S> {
        self.hints.held.store(true, Ordering::Relaxed);
        Held { state, _here: HeldHere::note(self.id()) }
    }

    /// Releases the token. The caller checks the log *afterwards*, and tries the token again if the log is not empty.
    pub(crate) fn release(&self, held: Held<'_, S>) {
        self.let_go(held);
        // `Fh` of the module documentation. Pairs with the fence in `after_push`.
        fenced!("token-release-fence");
    }

    /// Releases the token if a thread has promised to take it. Returns the token otherwise.
    pub(crate) fn leave_to_others<'a>(&self, held: Held<'a, S>) -> Option<Held<'a, S>> {
        // Relaxed: a promise that is seen here, under the lock, has not been kept yet. A promise that is missed only
        // makes this holder continue.
        if self.hints.promised.load(Ordering::Relaxed) == 0 {
            return Some(held);
        }
        self.let_go(held);
        None
    }

    fn let_go(&self, held: Held<'_, S>) {
        // Under the lock, so that our late stores cannot overwrite the next holder's.
        self.hints.tired.store(false, Ordering::Relaxed);
        self.hints.held.store(false, Ordering::Relaxed);
        drop(held);
    }

    /// Orders a push before the try that follows.
    pub(crate) fn after_push(&self) {
        // `Fs` of the module documentation. Pairs with the fence in `release`.
        fenced!("token-submit-fence");
    }

    /// Asks other threads to relieve the holder.
    pub(crate) fn tire(&self) {
        self.hints.tired.store(true, Ordering::Relaxed);
    }

    /// Whether the holder asks for relief.
    pub(crate) fn is_tired(&self) -> bool {
        self.hints.tired.load(Ordering::Relaxed) && !mutated!("token-never-relieve")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_one_thread_holds_the_token() {
        let token = Token::new(7);
        let held = token.try_take().expect("it is free");
        assert!(token.try_take().is_none());
        token.release(held);
        assert!(token.try_take().is_some());
    }

    #[test]
    fn a_thread_knows_the_tokens_that_it_holds() {
        let (outer, inner) = (Token::new(0), Token::new(0));
        let held = outer.take();
        let held_too = inner.take();
        assert!(outer.is_held_here() && inner.is_held_here());
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| outer.is_held_here() || inner.is_held_here());
            assert!(!elsewhere.join().expect("it only looks"));
        });
        outer.release(held);
        assert!(!outer.is_held_here() && inner.is_held_here());
        inner.release(held_too);
        assert!(!inner.is_held_here());
    }

    #[test]
    fn a_holder_leaves_only_if_a_thread_has_promised() {
        let token = Token::new(0);
        let held = token.take();
        let mut held = token.leave_to_others(held).expect("nobody has promised to take it");
        token.tire();
        assert!(token.is_tired());
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut held = token.take();
                *held.state += 1;
                token.release(held);
            });
            while let Some(still_held) = token.leave_to_others(held) {
                held = still_held;
                thread::yield_now();
            }
            other.join().expect("it took what it had promised to take");
        });
        assert!(!token.is_tired());
        let held = token.take();
        assert_eq!(*held.state, 1);
        token.release(held);
    }
}

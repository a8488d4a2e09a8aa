//! The writer token: a lock whose holder does the work of all, and the argument that no work is left lying.
//!
//! The pattern is flat combining. A thread with an event puts it in the log and *tries* the token. If it gets it, it
//! does everything in the log; if not, it goes away, because somebody else is doing it. Nobody queues for the lock, and
//! a thread's own event mostly is done on its own core, in its own cache.
//!
//! # Nothing is left lying
//!
//! The danger is the moment of leaving: a holder finds the log empty, another thread puts an event in and fails to
//! get the token, the holder lets go; the event lies there with nobody to do it. So both sides do two things in an
//! order that a fence keeps:
//!
//! - the submitter S: *push*; fence `Fs`; *try the token*;
//! - a holder H: *let go*; fence `Fh`; *look at the log*, and if something is there, try the token again.
//!
//! Suppose S fails to get the token because H has it. All such fences have one order:
//!
//! 1. `Fs` before `Fh`: H's look sees the push. H tries the token. If it fails, a third thread has it, whose letting
//!    go H's try did not see, so that one's fence comes after `Fh` and the argument repeats with it in H's place. Tries
//!    are finitely many, so the last holder sees the push and gets the token.
//! 2. `Fh` before `Fs`: then S's try sees that H let go, and fails only because of somebody who took the token later,
//!    who is H in this argument.
//!
//! A holder may leave without looking in one case: another thread has *promised* to take the token
//! ([`Token::take`]), and waits in the lock that the holder lets go. Its taking happens after that letting go, so it
//! sees what the holder would have seen, and is bound by the same rule when it leaves.
//!
//! # No thread waits for itself
//!
//! A fold, or work that is run on the writer, may call back into the log that it runs under. A thread therefore notes
//! the tokens that it holds ([`Token::is_held_here`]), and the log refuses what would wait for one of them.
//!
//! # Nobody works for ever
//!
//! While others keep putting events in, a holder could go on without end. After [`PATIENCE`] batches it says that it is
//! tired. A submitter that fails to get the token and sees that waits for it after all (a promise), and the holder
//! leaves at the end of its batch. If no submitter comes, nothing more comes into the log either, so what is left is at
//! most a log full.

use std::cell::RefCell;

use crossbeam_utils::CachePadded;

use crate::sync::{
    AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, fenced, lock, mutated, try_lock,
};

/// After how many batches a holder wants to be relieved.
pub(crate) const PATIENCE: u32 = if cfg!(loom) { 1 } else { 4 };

/// A lock over the writer's state, with the hand-over described in the module's text.
pub(crate) struct Token<S> {
    hints: CachePadded<Hints>,
    state: Mutex<S>,
}

/// What threads read without the lock. All of it is relaxed: the fences order what must be ordered.
struct Hints {
    /// Set while somebody holds the token, so that a try mostly is one load of a shared line.
    held: AtomicBool,
    /// Set while the holder wants to be relieved.
    tired: AtomicBool,
    /// How many threads have promised to take the token and have not got it yet.
    promised: AtomicUsize,
}

#[cfg(not(loom))]
std::thread_local! {
    /// The tokens that this thread holds: one, or a few if the fold of one log calls another.
    static HELD: RefCell<Vec<TokenId>> = const { RefCell::new(Vec::new()) };
}

// Loom's threads share one of the system's.
#[cfg(loom)]
loom::thread_local! {
    static HELD: RefCell<Vec<TokenId>> = RefCell::new(Vec::new());
}

/// Which token: the address of one that exists, and that does not move while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenId(usize);

impl TokenId {
    /// Of no token.
    pub(crate) const NONE: TokenId = TokenId(0);

    /// Whether the calling thread holds this token.
    pub(crate) fn is_held_here(self) -> bool {
        // A thread whose locals are gone runs the last of its destructors. It is taken to hold nothing.
        HELD.try_with(|held| held.borrow().contains(&self)).unwrap_or(false)
    }
}

/// The token, held. Let go of with [`Token::release`] or [`Token::leave_to_others`] and never just dropped.
pub(crate) struct Held<'a, S> {
    pub(crate) state: MutexGuard<'a, S>,
    _here: HeldHere,
}

/// The calling thread's note that it holds a token.
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

    /// The state, by the one who owns it all.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The token if it is free. The caller's push, and then a fence, must come first; see the module's text.
    pub(crate) fn try_take(&self) -> Option<Held<'_, S>> {
        if self.hints.held.load(Ordering::Relaxed) {
            return None;
        }
        // No promise is needed: who gets it is bound by the rule for holders, who doesn't has nothing to keep.
        try_lock(&self.state).map(|state| self.hold(state))
    }

    /// The token, after waiting for it: a promise that lets the holder leave early.
    pub(crate) fn take(&self) -> Held<'_, S> {
        self.hints.promised.fetch_add(1, Ordering::Relaxed);
        let state = lock(&self.state);
        // Under the lock: a holder that sees the promise can be sure that it is still to be kept.
        self.hints.promised.fetch_sub(1, Ordering::Relaxed);
        self.hold(state)
    }

    /// Tells this token from others that exist.
    pub(crate) fn id(&self) -> TokenId {
        TokenId(std::ptr::from_ref(self).addr())
    }

    /// Whether the calling thread holds it, so that [`take`](Self::take) would wait for ever.
    pub(crate) fn is_held_here(&self) -> bool {
        self.id().is_held_here()
    }

    fn hold<'a>(&self, state: MutexGuard<'a, S>) -> Held<'a, S> {
        self.hints.held.store(true, Ordering::Relaxed);
        Held { state, _here: HeldHere::note(self.id()) }
    }

    /// Lets go. The caller looks at the log *afterwards*, and tries the token again if something is there.
    pub(crate) fn release(&self, held: Held<'_, S>) {
        self.let_go(held);
        // `Fh` of the module's text; pairs with the fence in `after_push`.
        fenced!("token-release-fence");
    }

    /// Lets go if somebody has promised to take the token, and gives it back if nobody has.
    pub(crate) fn leave_to_others<'a>(&self, held: Held<'a, S>) -> Option<Held<'a, S>> {
        // Relaxed: a promise that is seen here, under the lock, cannot have been kept yet. One that is not seen only
        // makes this holder go on.
        if self.hints.promised.load(Ordering::Relaxed) == 0 {
            return Some(held);
        }
        self.let_go(held);
        None
    }

    fn let_go(&self, held: Held<'_, S>) {
        // Under the lock, so that no late store of ours can cover the next holder's.
        self.hints.tired.store(false, Ordering::Relaxed);
        self.hints.held.store(false, Ordering::Relaxed);
        drop(held);
    }

    /// Orders a push before the try that follows.
    pub(crate) fn after_push(&self) {
        // `Fs` of the module's text; pairs with the fence in `release`, and with those of the attendant and of closing.
        fenced!("token-submit-fence");
    }

    /// Says that the holder wants to be relieved.
    pub(crate) fn tire(&self) {
        self.hints.tired.store(true, Ordering::Relaxed);
    }

    /// Whether the holder wants to be relieved.
    pub(crate) fn is_tired(&self) -> bool {
        self.hints.tired.load(Ordering::Relaxed) && !mutated!("token-never-relieve")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_token_is_held_by_one() {
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
    fn a_holder_leaves_only_to_who_promised() {
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

//! Models of one ticket: its outcome arrives exactly once, in every order of answering and waiting.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bound, explore};
use portolan_publish::__model::ticket;
use portolan_publish::log::TryWaitError;

#[test]
fn an_outcome_reaches_the_thread_that_waits() {
    explore("an_outcome_reaches_the_thread_that_waits", Bound::Exhaustive, || {
        let (ticket, answer) = ticket();
        let waiter = thread::spawn(move || ticket.wait());
        answer.complete(7);
        assert_eq!(waiter.join().unwrap().ok(), Some(7));
    });
}

#[test]
fn an_answer_that_is_dropped_ends_the_wait() {
    explore("an_answer_that_is_dropped_ends_the_wait", Bound::Exhaustive, || {
        let (ticket, answer) = ticket::<u32>();
        let waiter = thread::spawn(move || ticket.wait());
        drop(answer);
        assert!(matches!(waiter.join().unwrap(), Err(TryWaitError::Closed)));
    });
}

#[test]
fn a_look_gives_the_outcome_or_the_ticket_back() {
    explore("a_look_gives_the_outcome_or_the_ticket_back", Bound::Exhaustive, || {
        let (ticket, answer) = ticket();
        let waiter = thread::spawn(move || match ticket.try_outcome() {
            Ok(outcome) => outcome,
            Err(TryWaitError::Pending(ticket)) => ticket.wait().unwrap(),
            Err(other) => panic!("{other}"),
        });
        answer.complete(7);
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

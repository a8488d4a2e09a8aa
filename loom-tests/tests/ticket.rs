//! Models of one ticket: its outcome arrives exactly once, in every order of answering, waiting and polling.
#![cfg(loom)]

use std::pin::Pin;
use std::task::{Context, Waker};

use loom::thread;
use loom_tests::{Bound, block_on, explore};
use portolan_publish::__model::ticket;
use portolan_publish::log::TryWaitError;

#[test]
fn an_outcome_reaches_the_waiting_thread() {
    explore("an_outcome_reaches_the_waiting_thread", Bound::Exhaustive, || {
        let (ticket, answer) = ticket();
        let waiter = thread::spawn(move || ticket.wait());
        answer.complete(7);
        assert_eq!(waiter.join().unwrap().ok(), Some(7));
    });
}

#[test]
fn a_dropped_answer_ends_the_wait() {
    explore("a_dropped_answer_ends_the_wait", Bound::Exhaustive, || {
        let (ticket, answer) = ticket::<u32>();
        let waiter = thread::spawn(move || ticket.wait());
        drop(answer);
        assert!(matches!(waiter.join().unwrap(), Err(TryWaitError::Closed)));
    });
}

#[test]
fn try_outcome_returns_the_outcome_or_the_ticket() {
    explore("try_outcome_returns_the_outcome_or_the_ticket", Bound::Exhaustive, || {
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

#[test]
fn an_outcome_wakes_the_waiting_task() {
    explore("an_outcome_wakes_the_waiting_task", Bound::Exhaustive, || {
        let (ticket, answer) = ticket();
        let task = thread::spawn(move || block_on(ticket));
        answer.complete(7);
        assert_eq!(task.join().unwrap().ok(), Some(7));
    });
}

#[test]
fn a_task_that_moves_is_woken_by_its_latest_waker() {
    explore("a_task_that_moves_is_woken_by_its_latest_waker", Bound::Exhaustive, || {
        let (mut ticket, answer) = ticket();
        let task = thread::spawn(move || {
            // This waker belongs to an executor that has passed the task on.
            let poll = Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop()));
            match poll {
                std::task::Poll::Ready(outcome) => outcome,
                std::task::Poll::Pending => block_on(ticket),
            }
        });
        answer.complete(7);
        assert_eq!(task.join().unwrap().ok(), Some(7));
    });
}

#[test]
fn a_dropped_answer_ends_the_task() {
    explore("a_dropped_answer_ends_the_task", Bound::Exhaustive, || {
        let (ticket, answer) = ticket::<u32>();
        let task = thread::spawn(move || block_on(ticket));
        drop(answer);
        assert!(matches!(task.join().unwrap(), Err(TryWaitError::Closed)));
    });
}

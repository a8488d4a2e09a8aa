//! Tasks that await tickets and generations, without an async runtime.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use portolan::cache::{Config, Engine, Event, Outcome, ReadError, Reader, Ticket, TryWaitError};
use portolan::model::{Generation, node, pod};

/// A waker that unparks the thread of its task, and counts the calls.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

fn unpark() -> Arc<Unpark> {
    Arc::new(Unpark(thread::current(), AtomicUsize::new(0)))
}

fn block_on<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    let waker = Waker::from(unpark());
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn poll(
    ticket: &mut Ticket<Outcome>,
    waker: &Waker,
) -> Poll<Result<Outcome, TryWaitError<Outcome>>> {
    Pin::new(ticket).poll(&mut Context::from_waker(waker))
}

fn add_node(name: &str) -> Event {
    Event::AddNode(Arc::new(node(name).cpu(4_000).build()))
}

/// Places a pod, and returns the number of pods in the version that contains it.
async fn place(engine: &Engine, reader: &Reader, name: String) -> Option<usize> {
    let pod = pod(name).cpu(1).on("n1").build();
    let applied = engine.try_submit(Event::AddPod(Arc::new(pod))).ok()?.await.ok()?.ok()?;
    reader.reached(applied.generation).await.ok()?;
    let snapshot = reader.snapshot();
    (snapshot.generation() >= applied.generation).then(|| snapshot.pod_count())
}

#[test]
fn tasks_read_their_own_writes() {
    let engine = Engine::shared(Config::default());
    engine.submit(add_node("n1")).unwrap().wait().unwrap().unwrap();
    thread::scope(|scope| {
        for task in 0..4 {
            let engine = &engine;
            scope.spawn(move || {
                let reader = engine.reader().unwrap();
                for n in 1..=50 {
                    let placed = block_on(place(engine, &reader, format!("p{task}-{n}")));
                    assert!(placed.is_some_and(|pods| pods >= n));
                }
            });
        }
    });
    assert_eq!(engine.reader().unwrap().snapshot().pod_count(), 200);
}

#[test]
fn a_ticket_polled_by_its_own_writer_is_pending_and_ready_afterwards() {
    let engine = Engine::shared(Config::default());
    let unpark = unpark();
    let waker = Waker::from(Arc::clone(&unpark));
    let mut ticket = engine
        .with_writer(|_| {
            let mut ticket = engine.submit(add_node("n1")).unwrap();
            assert!(poll(&mut ticket, &waker).is_pending());
            ticket
        })
        .unwrap();
    assert_eq!(unpark.1.load(Ordering::Relaxed), 1);
    let Poll::Ready(Ok(Ok(applied))) = poll(&mut ticket, &waker) else {
        panic!("the event was applied")
    };
    assert_eq!(applied.generation, Generation(1));
}

#[test]
fn a_panicking_waker_does_not_affect_the_engine() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker of a test panics");
        }
    }
    let engine = Engine::shared(Config::default());
    let reader = engine.reader().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut reached = reader.reached(Generation(1));
    assert!(Pin::new(&mut reached).poll(&mut Context::from_waker(&waker)).is_pending());
    let ticket = engine.with_writer(|_| {
        let mut ticket = engine.submit(add_node("n1")).unwrap();
        assert!(poll(&mut ticket, &waker).is_pending());
        ticket
    });
    assert!(block_on(ticket.unwrap()).is_ok());
    assert_eq!(block_on(reached), Ok(()));
    assert!(block_on(engine.submit(add_node("n2")).unwrap()).is_ok());
}

#[test]
fn a_generation_of_a_dropped_engine_is_never_reached() {
    let (mut writer, reader) = Engine::inline(Config::default());
    let task = thread::spawn({
        let reached = reader.reached(Generation(2));
        move || block_on(reached)
    });
    writer.add_node(node("n1").build()).unwrap();
    writer.publish();
    drop(writer);
    assert_eq!(task.join().unwrap(), Err(ReadError::Closed));
    assert_eq!(block_on(reader.reached(Generation(1))), Ok(()));
}

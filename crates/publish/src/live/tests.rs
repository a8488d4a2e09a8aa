//! Compares the live index with a plain map, and tests it with readers that come, go and stay.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use portolan_testkit::random::Random;

use super::*;

#[test]
fn equals_a_plain_map_under_random_changes() {
    let mut random = Random::new(7);
    let mut index = LiveIndex::<[u64; 2], u64>::new();
    let reader = index.reader();
    let mut plain = HashMap::new();
    for version in 1..=300 {
        for _ in 0..random.below(40) {
            let key = [random.below(500), 1];
            if random.below(3) == 0 {
                index.remove(key);
                plain.remove(&key);
            } else {
                let value = random.below(1 << 40);
                index.insert(key, value);
                plain.insert(key, value);
            }
        }
        assert!(index.publish(version));
        for number in 0..500 {
            let key = [number, 1];
            assert_eq!(reader.get(&key), Ok(Live { version, value: plain.get(&key).copied() }));
        }
        assert_eq!(reader.len(), Ok(Live { version, value: plain.len() }));
    }
}

#[test]
fn changes_are_invisible_until_published() {
    let mut index = LiveIndex::<u64, u32>::new();
    let reader = index.reader();
    index.insert(1, 10);
    assert!(index.behind);
    assert_eq!(reader.get(&1), Ok(Live { version: 0, value: None }));
    assert!(index.publish(3));
    assert_eq!(reader.get(&1), Ok(Live { version: 3, value: Some(10) }));
}

#[test]
fn a_lower_version_does_not_go_back() {
    let mut index = LiveIndex::<u64, u32>::new();
    let reader = index.reader();
    assert!(index.publish(5));
    index.insert(1, 10);
    assert!(index.publish(4));
    assert_eq!(reader.get(&1), Ok(Live { version: 5, value: Some(10) }));
}

#[test]
fn a_reader_outlives_the_writer_and_gets_an_error() {
    let mut index = LiveIndex::<u64, u32>::new();
    let reader = index.reader();
    index.insert(1, 10);
    index.publish(1);
    drop(index);
    assert_eq!(reader.get(&1), Err(Gone));
    assert_eq!(reader.clone().len(), Err(Gone));
}

#[test]
fn a_reader_inside_a_copy_never_stops_the_writer() {
    let mut index = LiveIndex::<u64, u64>::new();
    let reader = index.reader();
    index.insert(0, 0);
    assert!(index.publish(1));
    reader.copy.look(|_| {
        // The first publish goes to the copy without readers; all later ones find this reader in the way.
        let shown = (2..100).filter(|&version| {
            index.insert(version, version);
            index.publish(version)
        });
        assert_eq!(shown.count(), 1);
    });
    assert!(index.publish(99));
    assert_eq!(reader.len(), Ok(Live { version: 99, value: 99 }));
}

#[test]
fn answers_are_monotone_and_consistent_beside_a_busy_writer() {
    const KEYS: u64 = 64;
    const VERSIONS: u64 = if cfg!(miri) { 200 } else { 50_000 };
    let mut index = LiveIndex::<u64, u64>::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let reader = index.reader();
            let stop = &stop;
            scope.spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Version v sets only key v % KEYS, to v, so each answer can be checked against its version.
                    let another = reader.clone();
                    for key in 0..KEYS {
                        let Live { version, value } = another.get(&key).expect("the writer lives");
                        assert!(version >= last);
                        last = version;
                        let expected = (version >= key).then(|| version - (version - key) % KEYS);
                        assert_eq!(value, expected.filter(|&value| value > 0));
                    }
                }
            });
        }
        for version in 1..=VERSIONS {
            index.insert(version % KEYS, version);
            index.publish(version);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(index.publish(VERSIONS));
    assert_eq!(index.reader().len(), Ok(Live { version: VERSIONS, value: KEYS as usize }));
}

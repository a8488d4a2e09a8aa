//! Replays the committed fuzz corpus of the allocator of devices on stable.

#[path = "../../../fuzz/targets/devices.rs"]
mod devices;

#[test]
fn devices_corpus_finds_nothing() {
    portolan_testkit::corpus::replay("devices", devices::run, devices::run);
}

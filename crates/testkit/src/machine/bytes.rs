//! The fuzzer's format of steps.
//!
//! The types below define how the corpus is decoded: the number and order of their variants give each byte its meaning.
//! They are therefore separate from the generator in [`events`](crate::events) and must never change. A new kind of
//! event needs a second format, for example one that is marked by a prefix that no existing input has.

use arbitrary::{Arbitrary, Result, Unstructured};

use super::Step;
use crate::events::{GodelSeed, MovementSeed, NodeSeed, NominationSeed, Op, PodSeed, Traits};

#[derive(Arbitrary)]
enum Encoded {
    Assume(EncodedPod),
    AssumeAll([EncodedPod; 3]),
    Finish(u8),
    Forget(u8, Option<u8>),
    Add(EncodedPod),
    Update(u8, EncodedPod),
    Remove(u8, Option<u8>),
    PutNode(EncodedNode),
    RemoveNode(u8),
    Expire,
    RelistPods(Vec<EncodedPod>),
    RelistNodes(Vec<EncodedNode>),
    Hold,
    Drop,
    Fork(Vec<EncodedPod>),
    Godel,
    AssumeAnnotated(AnnotatedPod),
    AddAnnotated(AnnotatedPod),
    UpdateAnnotated(u8, AnnotatedPod),
    RelistAnnotated(Vec<AnnotatedPod>),
    PutMovement(EncodedMovement),
    DeleteMovement(u8),
}

#[derive(Arbitrary)]
struct EncodedPod {
    uid: u8,
    node: u8,
    shape: u8,
}

#[derive(Arbitrary)]
struct AnnotatedPod {
    pod: EncodedPod,
    annotations: u8,
}

#[derive(Arbitrary)]
struct EncodedMovement {
    name: u8,
    places: Vec<[u8; 4]>,
}

#[derive(Arbitrary)]
struct EncodedNode {
    name: u8,
    zone: u8,
    shape: u8,
}

impl From<EncodedPod> for PodSeed {
    fn from(EncodedPod { uid, node, shape }: EncodedPod) -> PodSeed {
        PodSeed { uid, node, shape, ..PodSeed::default() }
    }
}

impl From<AnnotatedPod> for PodSeed {
    fn from(AnnotatedPod { pod, annotations }: AnnotatedPod) -> PodSeed {
        let bit = |n: u8| annotations >> n & 1 == 1;
        // The remaining pods have no owner.
        let traits = Traits {
            group: u8::from(annotations % 3 == 0),
            owner: annotations % 3 == 1,
            ..Traits::default()
        };
        let nomination = bit(2).then(|| NominationSeed {
            elsewhere: (!bit(3)).then_some(annotations),
            victims: [annotations, annotations / 16],
        });
        let godel = GodelSeed {
            state: if bit(4) { 2 } else { 0 },
            assumed_on: Some(annotations),
            nomination,
            movement: bit(5).then_some(annotations),
            place: None,
            unknown: 0,
        };
        PodSeed { traits, godel: Some(godel), ..PodSeed::from(pod) }
    }
}

impl From<EncodedMovement> for MovementSeed {
    fn from(EncodedMovement { name, places }: EncodedMovement) -> MovementSeed {
        MovementSeed { name, places, creator: 0, is_repeated: false }
    }
}

impl From<EncodedNode> for NodeSeed {
    fn from(EncodedNode { name, zone, shape }: EncodedNode) -> NodeSeed {
        NodeSeed { name, zone, shape, other_image: false, is_tainted: false, scheduler: None }
    }
}

fn all<T, U: From<T>>(encoded: Vec<T>) -> Vec<U> {
    encoded.into_iter().map(U::from).collect()
}

impl From<Encoded> for Step {
    fn from(encoded: Encoded) -> Step {
        Step::Write(match encoded {
            Encoded::Assume(pod) => Op::Assume(pod.into(), false),
            Encoded::AssumeAll(pods) => Op::AssumeAll(pods.map(Into::into), false),
            Encoded::Finish(uid) => Op::Finish(uid),
            Encoded::Forget(uid, node) => Op::Forget(uid, node),
            Encoded::Add(pod) => Op::Add(pod.into()),
            Encoded::Update(old, pod) => Op::Update(old, pod.into()),
            Encoded::Remove(uid, node) => Op::Remove(uid, node),
            Encoded::PutNode(node) => Op::PutNode(node.into()),
            Encoded::RemoveNode(name) => Op::RemoveNode(name),
            Encoded::Expire => Op::Expire,
            Encoded::RelistPods(pods) => Op::RelistPods(all(pods)),
            Encoded::RelistNodes(nodes) => Op::RelistNodes(all(nodes)),
            Encoded::Hold => return Step::Hold,
            Encoded::Drop => return Step::Drop,
            Encoded::Fork(pods) => return Step::Fork(all(pods)),
            Encoded::Godel => return Step::Godel,
            Encoded::AssumeAnnotated(pod) => Op::Assume(pod.into(), false),
            Encoded::AddAnnotated(pod) => Op::Add(pod.into()),
            Encoded::UpdateAnnotated(old, pod) => Op::Update(old, pod.into()),
            Encoded::RelistAnnotated(pods) => Op::RelistPods(all(pods)),
            Encoded::PutMovement(movement) => Op::PutMovement(movement.into()),
            Encoded::DeleteMovement(name) => Op::DeleteMovement(name),
        })
    }
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Encoded::arbitrary(input).map(Step::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the debug form of the first step.
    fn first(bytes: &[u8]) -> String {
        format!("{:?}", Step::arbitrary(&mut Unstructured::new(bytes)).unwrap())
    }

    #[test]
    fn the_format_of_the_corpus_has_22_steps_of_equal_width() {
        // The variant is the first little-endian number of 32 bits, scaled to the number of variants.
        let nth = |n: u64| {
            let number = ((n << 32) / 22 + 1) as u32;
            first(&[&number.to_le_bytes()[..], &[7, 5, 3, 1, 0, 0]].concat())
        };
        assert!(
            nth(0).starts_with("Write(Assume(PodSeed { uid: 7, node: 5, shape: 3"),
            "{}",
            nth(0)
        );
        assert_eq!(nth(2), "Write(Finish(7))");
        assert_eq!(nth(3), "Write(Forget(7, Some(3)))");
        assert_eq!(nth(8), "Write(RemoveNode(7))");
        assert_eq!([nth(12), nth(13), nth(15)], ["Hold", "Drop", "Godel"]);
        assert!(nth(17).contains("owner: true"), "{}", nth(17));
        assert_eq!(nth(21), "Write(DeleteMovement(7))");
    }
}

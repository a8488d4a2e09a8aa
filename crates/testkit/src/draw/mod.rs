//! Draws clusters and pods from bytes that a fuzzer chose, or from a seed that proptest chose. Names and values come
//! from small sets, so that objects refer to each other, and some of the values are extreme.
//!
//! When the bytes run out, a generator supplies the remaining numbers. A short input therefore gives as complete a
//! cluster as a long one, and each additional byte determines one more choice.

mod pods;
mod storage;

use portolan::model::{
    CustomNodeResource, Labels, Name, NmNode, Node, NodeSelectorTerm, Object, Operator, Quantity,
    Requirement, ResourceList, Taint, TaintEffect, node,
};

/// An amount so large that sums of a few of them approach the limits of the arithmetic.
const LARGE: i64 = 1 << 50;

const IMAGES: [&str; 3] = ["a:1", "b:1", "c:1"];

/// A source of small random numbers.
#[derive(Clone, Debug)]
pub struct Draw<'a> {
    bytes: &'a [u8],
    state: u64,
    /// The number of zones. Many small zones make many chunks.
    pub zones: u64,
}

impl<'a> Draw<'a> {
    /// Draws from bytes. The first eight of them seed the generator.
    pub fn from_bytes(bytes: &'a [u8]) -> Draw<'a> {
        let (seed, bytes) = bytes.split_at(bytes.len().min(8));
        let seed = seed.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        Draw { bytes, state: seed, zones: 3 }
    }

    /// Draws a number below `n`.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if let Some((byte, rest)) = self.bytes.split_first()
            && n <= 256
        {
            self.bytes = rest;
            return u64::from(*byte) % n;
        }
        // This is Knuth's linear congruential generator (MMIX) rather than `Random`. Most inputs of the corpus are
        // shorter than the clusters that they determine, so another generator would change their meaning.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % n
    }

    /// Draws one of the values.
    ///
    /// # Panics
    ///
    /// Panics if there are no values.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// Draws `true` once in `n` times on average.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn taint(&mut self) -> Taint {
        let effect = self.of(&[
            TaintEffect::NoSchedule,
            TaintEffect::PreferNoSchedule,
            TaintEffect::PreferNoSchedule,
            TaintEffect::NoExecute,
        ]);
        Taint::new(self.of(&["a", "b", "c"]), self.of(&["", "v"]), effect)
    }

    /// Draws a node named `n{n}`.
    pub fn node(&mut self, n: usize) -> Node {
        let cpu = self.of(&[0, 1, 4_000, 8_000, 8_000, 64_000, LARGE]);
        let memory = self.of(&[0, 1, 8 << 30, 16 << 30, 16 << 30, 100_000_000_007, LARGE]);
        let zone = self.below(self.zones);
        let mut builder = node(format!("n{n}"))
            .zone(format!("z{zone}"))
            .cpu(cpu)
            .memory(memory)
            .pods(self.of(&[0, 1, 3, 110, 110, 110]));
        if !self.one_in(12) {
            builder = builder.hostname();
        }
        for label in ["disk", "arch"] {
            if !self.one_in(3) {
                builder = builder.label(label, self.of(&["ssd", "hdd", "7", "40"]));
            }
        }
        if self.one_in(3) {
            builder = builder.resource("example.com/gpu", Quantity::whole(self.below(9) as i64));
        }
        if self.one_in(4) {
            builder = builder.resource("hugepages-2Mi", Quantity::whole(self.of(&[0, 1, 1 << 30])));
        }
        for _ in 0..self.of(&[0, 0, 0, 1, 2]) {
            builder = builder.taint(self.taint());
        }
        if self.one_in(3) {
            let name = self.of(&IMAGES);
            builder = builder.image([name], self.of(&[0, 1, 300 << 20, 2 << 30, LARGE]));
        }
        if self.one_in(5) {
            builder = builder.declared_features([self.of(&["f1", "f2"])]);
        }
        builder.unschedulable(self.one_in(8)).build()
    }

    /// Draws an NMNode or a CustomNodeResource for node `n`.
    pub fn part(&mut self, n: usize) -> Object {
        let list = |draw: &mut Draw<'_>| {
            let mut list = ResourceList::new([
                ("cpu", Quantity::milli(draw.of(&[0, 1, 4_000, 9_000, LARGE]))),
                ("memory", Quantity::whole(draw.of(&[0, 8 << 30, 12_345_678_901, LARGE]))),
                ("pods", Quantity::whole(draw.of(&[0, 2, 110, 110]))),
            ]);
            if draw.one_in(2) {
                list.set("example.com/gpu", Quantity::whole(draw.below(9) as i64));
            }
            list
        };
        if self.one_in(2) {
            let custom = CustomNodeResource::new(format!("n{n}"), &list(self));
            return custom.into();
        }
        let mut labels = vec![("kubernetes.io/hostname".to_owned(), format!("n{n}"))];
        labels.push(("disk".to_owned(), self.of(&["ssd", "hdd"]).to_owned()));
        let (capacity, allocatable) = (list(self), list(self));
        let mut nm_node = NmNode::new(format!("n{n}"))
            .with_labels(&Labels::new(labels))
            .with_resources(capacity, allocatable);
        if self.one_in(3) {
            nm_node.taints = Box::new([self.taint()]);
        }
        nm_node.into()
    }

    /// Draws a node selector term over labels and names of nodes.
    fn term(&mut self) -> NodeSelectorTerm {
        let key = self.of(&["disk", "arch", "kubernetes.io/hostname", "none"]);
        let values = [self.of(&["ssd", "hdd", "n3", "n70"]), self.of(&["7", "ssd", "n5"])];
        let requirement = match self.below(6) {
            0 => Requirement::new(key, Operator::NotIn, values),
            1 => Requirement::new::<&str>(key, Operator::Exists, []),
            2 => Requirement::new::<&str>(key, Operator::DoesNotExist, []),
            3 => Requirement::new(key, Operator::Gt, [self.of(&["6", "7", "39"])]),
            _ => Requirement::new(key, Operator::In, values),
        };
        let mut term = NodeSelectorTerm {
            match_expressions: Box::new([requirement]),
            ..NodeSelectorTerm::default()
        };
        if self.one_in(6) {
            let name = self.of(&["n1", "n2", "n20", "nowhere"]);
            term.match_fields = Box::new([Requirement::new("metadata.name", Operator::In, [name])]);
            if self.one_in(2) {
                term.match_expressions = Box::default();
            }
        }
        term
    }

    /// Draws a label key that divides nodes into topology domains.
    fn key(&mut self) -> Name {
        self.of(&["topology.kubernetes.io/zone", "kubernetes.io/hostname", "disk", "none"]).into()
    }
}

impl From<u64> for Draw<'_> {
    fn from(seed: u64) -> Self {
        Draw { bytes: &[], state: seed, zones: 3 }
    }
}

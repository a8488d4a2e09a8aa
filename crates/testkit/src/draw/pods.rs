//! Random pods with all fields that filters and scores read.

use portolan::model::{
    Container, ContainerKind, HostPort, LabelSelector, Labels, Launcher, NodeAffinity,
    NodeSelector, Pod, PodAffinity, PodAffinityTerm, PodClass, PreferredSchedulingTerm, Protocol,
    Quantity, ResourceList, Toleration, TolerationOperator, TopologySpreadConstraint,
    UnsatisfiableAction, WeightedPodAffinityTerm, pod,
};

use super::{Draw, IMAGES, LARGE};

impl Draw<'_> {
    fn selector(&mut self) -> LabelSelector {
        match self.below(8) {
            0 => LabelSelector::everything(),
            1 => LabelSelector::Nothing,
            _ => LabelSelector::from_labels([("app", self.of(&["a", "b", "c"]))]),
        }
    }

    fn pod_term(&mut self) -> PodAffinityTerm {
        PodAffinityTerm {
            topology_key: self.key(),
            selector: self.selector(),
            namespaces: match self.below(5) {
                0 => Box::default(),
                1 => Box::new(["other".into()]),
                _ => Box::new(["default".into()]),
            },
            namespace_selector: match self.below(5) {
                0 => LabelSelector::everything(),
                1 => LabelSelector::from_labels([("team", "red")]),
                _ => LabelSelector::Nothing,
            },
        }
    }

    fn pod_affinity(&mut self) -> PodAffinity {
        PodAffinity {
            required: (0..self.of(&[0, 0, 1])).map(|_| self.pod_term()).collect(),
            preferred: (0..self.of(&[0, 1, 2]))
                .map(|_| WeightedPodAffinityTerm {
                    weight: self.of(&[1, 30, 100]),
                    term: self.pod_term(),
                })
                .collect(),
        }
    }

    fn constraint(&mut self) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: self.of(&[1, 2, 5, i32::MAX]),
            topology_key: self.key(),
            when_unsatisfiable: self
                .of(&[UnsatisfiableAction::DoNotSchedule, UnsatisfiableAction::ScheduleAnyway]),
            selector: self.selector(),
            min_domains: self.of(&[None, Some(2), Some(50)]),
            honor_node_affinity: !self.one_in(4),
            honor_node_taints: self.one_in(2),
            match_label_keys: if self.one_in(6) {
                Box::new(["app".into()])
            } else {
                Box::default()
            },
        }
    }

    fn node_affinity(&mut self) -> NodeAffinity {
        let mut affinity = NodeAffinity::default();
        if self.one_in(2) {
            let terms = (0..self.below(3)).map(|_| self.term()).collect();
            affinity.required = Some(NodeSelector { terms });
        }
        affinity.preferred = (0..self.below(3))
            .map(|_| PreferredSchedulingTerm {
                weight: self.of(&[1, 10, 50, 100]),
                preference: self.term(),
            })
            .collect();
        affinity
    }

    fn toleration(&mut self) -> Toleration {
        let operator = self.of(&[TolerationOperator::Exists, TolerationOperator::Equal]);
        let key = self.of(&[Some("a"), Some("b"), Some("c"), None]);
        Toleration {
            key: key.map(Into::into),
            operator,
            value: self.of(&[None, Some("v")]).map(Into::into),
            ..Toleration::default()
        }
    }

    fn container(&mut self, kind: ContainerKind) -> Container {
        let mut requests = ResourceList::default();
        if !self.one_in(4) {
            requests.set("cpu", Quantity::milli(self.of(&[0, 1, 250, 4_000])));
        }
        if self.one_in(2) {
            requests.set("memory", Quantity::whole(self.of(&[0, 1, 1 << 30])));
        }
        let image = (!self.one_in(3)).then(|| self.of(&IMAGES).into());
        Container { kind, image, requests, ..Container::default() }
    }

    fn host_port(&mut self) -> HostPort {
        HostPort {
            ip: self.of(&["0.0.0.0", "0.0.0.0", "10.0.0.1"]).into(),
            protocol: self.of(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]),
            port: 8000 + self.below(2) as u16,
        }
    }

    /// Draws a pod named `p{n}`, usually without a node.
    pub fn pod(&mut self, n: usize) -> Pod {
        let mut builder = pod(format!("p{n}")).label("app", self.of(&["a", "b", "c"]));
        if self.one_in(6) {
            builder = builder.namespace("other");
        }
        if self.one_in(4) {
            builder = builder.pod_affinity(self.pod_affinity());
        }
        if self.one_in(4) {
            builder = builder.pod_anti_affinity(self.pod_affinity());
        }
        if self.one_in(3) {
            let constraints = (0..2).map(|_| self.constraint()).collect();
            builder = builder.spec(|spec| spec.topology_spread = constraints);
        }
        if self.one_in(4) {
            builder = builder.container(self.container(ContainerKind::Main));
            let kind = self.of(&[ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::Main]);
            builder = builder.container(self.container(kind));
        }
        if !self.one_in(5) {
            builder = builder
                .cpu(self.of(&[0, 1, 100, 500, 1_000, 4_000, LARGE]))
                .memory(self.of(&[0, 1, 1 << 30, 3 << 30, 12_345_678_901, LARGE]));
        }
        if self.one_in(3) {
            builder = builder.request("example.com/gpu", Quantity::whole(self.below(5) as i64));
        }
        if self.one_in(9) {
            let name = self.of(&["example.com/unknown", "hugepages-2Mi", "ephemeral-storage"]);
            builder = builder.request(name, Quantity::whole(1));
        }
        for _ in 0..self.of(&[0, 0, 1, 2]) {
            builder = builder.toleration(self.toleration());
        }
        if self.one_in(3) {
            let ports = (0..self.of(&[1, 1, 2])).map(|_| self.host_port()).collect();
            builder = builder.spec(|spec| spec.host_ports = ports);
        }
        if self.one_in(5) {
            builder = builder.node_selector(Labels::new([("disk", self.of(&["ssd", "hdd"]))]));
        }
        if self.one_in(3) {
            builder = builder.node_affinity(self.node_affinity());
        }
        if self.one_in(10) {
            let features = Box::new([self.of(&["f1", "f2"]).into()]);
            builder = builder.spec(|spec| spec.required_node_features = features);
        }
        for _ in 0..self.of(&[0, 0, 0, 0, 1, 2]) {
            builder = builder.volume(self.volume());
        }
        builder = builder.priority(self.of(&[0, 0, 10, -1]));
        if self.one_in(12) {
            builder = builder.on(format!("n{}", self.below(200)));
        }
        if self.one_in(5) {
            builder = builder.spec(|spec| spec.class = PodClass::BestEffort);
        }
        builder = builder.spec(|spec| {
            spec.launcher = self.of(&[
                Launcher::Kubelet,
                Launcher::Kubelet,
                Launcher::NodeManager,
                Launcher::Unknown,
            ])
        });
        builder.build()
    }
}

//! A plugin that lets pods share GPUs.
//!
//! A node reports an extended resource as one sum, in which two half-free GPUs look like a whole one. This plugin
//! labels each pod with its devices, so that the free capacity of each device follows from the node and its pods alone.
//! The plugin is therefore local, forks and what-if questions work as usual, and no state is kept outside the snapshot.

use portolan::cache::NodeInfo;
use portolan::model::{Labels, Name, Pod, PodSpec, Template};
use portolan::plugin::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Score, Status,
};

/// Thousandths of GPUs. NodeResourcesFit checks their sum.
pub(crate) const GPU_MILLI: &str = "example.com/gpu-milli";
/// The number of GPUs of a node.
pub(crate) const GPU_COUNT: &str = "example.com/gpu-count";
/// The label with the devices of a pod, such as `0` or `0-1-5`.
const DEVICES: &str = "example.com/gpu-devices";

const NAME: &str = "GpuSharing";
const REASON: &str = "node(s) without enough capacity on single GPUs";
const WHOLE: i64 = 1_000;

/// The requests of a kind of pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Demand {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    /// The number of GPUs, and the thousandths of each.
    pub(crate) gpus: i64,
    pub(crate) milli: i64,
}

impl Demand {
    pub(crate) fn of(pod: &PodSpec) -> Demand {
        let resources = &pod.resources.incoming;
        let milli = resources.scalars.get(GPU_MILLI).unwrap_or(0);
        // A pod requests a fraction of one GPU, or whole GPUs.
        let (gpus, milli) = match milli {
            0 => (0, 0),
            ..WHOLE => (1, milli),
            whole => (whole / WHOLE, WHOLE),
        };
        Demand { cpu: resources.cpu.0, memory: resources.memory.0, gpus, milli }
    }
}

/// The free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    cpu: i64,
    memory: i64,
    /// The free thousandths of each GPU.
    devices: Vec<i64>,
}

impl Room {
    pub(crate) fn on(node: NodeInfo<'_>) -> Room {
        let (all, taken) = (node.allocatable(), node.requested());
        let gpus = all.scalars.get(GPU_COUNT).unwrap_or(0);
        let mut devices = vec![WHOLE; usize::try_from(gpus).unwrap_or(0)];
        for pod in node.pods().filter(|_| gpus > 0) {
            let template = pod.template();
            for device in devices_of(template) {
                if let Some(free) = devices.get_mut(device) {
                    *free -= Demand::of(template).milli;
                }
            }
        }
        Room { cpu: all.cpu.0 - taken.cpu.0, memory: all.memory.0 - taken.memory.0, devices }
    }

    /// Returns the devices for a pod, or `None` if there are not enough. Devices on which the pod leaves the least
    /// capacity are chosen first.
    fn choose(&self, demand: &Demand) -> Option<Vec<usize>> {
        let mut fit: Vec<usize> =
            (0..self.devices.len()).filter(|at| self.devices[*at] >= demand.milli).collect();
        fit.sort_by_key(|at| (self.devices[*at], *at));
        fit.truncate(usize::try_from(demand.gpus).unwrap_or(usize::MAX));
        (fit.len() as i64 == demand.gpus).then_some(fit)
    }

    fn without(&self, demand: &Demand) -> Option<Room> {
        let mut left = self.clone();
        for device in self.choose(demand)? {
            left.devices[device] -= demand.milli;
        }
        (left.cpu, left.memory) = (left.cpu - demand.cpu, left.memory - demand.memory);
        (left.cpu >= 0 && left.memory >= 0).then_some(left)
    }

    /// Returns how many of the free thousandths a pod of this kind cannot use: all of them if it does not fit, and
    /// otherwise those on devices with less than it requests.
    fn fragments(&self, demand: &Demand) -> i64 {
        let (mut fit, mut left, mut free) = (0, 0, 0);
        for device in &self.devices {
            free += device;
            match *device >= demand.milli {
                true => fit += 1,
                false => left += device,
            }
        }
        let fits = self.cpu >= demand.cpu && self.memory >= demand.memory && fit >= demand.gpus;
        if fits { left } else { free }
    }
}

fn devices_of(pod: &PodSpec) -> impl Iterator<Item = usize> {
    pod.labels.get(DEVICES).into_iter().flat_map(|text| text.split('-')).flat_map(str::parse)
}

/// Rejects nodes without enough GPU capacity, and prefers nodes on which the pod leaves fewer free thousandths that
/// none of the expected pods can use (fragmentation gradient descent: Weng et al., USENIX ATC 2023).
pub(crate) struct GpuSharing {
    /// The expected kinds of pods, each with its share of all pods.
    expected: Vec<(Demand, f64)>,
}

impl GpuSharing {
    pub(crate) fn new(expected: Vec<(Demand, f64)>) -> GpuSharing {
        GpuSharing { expected }
    }

    /// Returns the expected number of free thousandths on a node that a pod cannot use.
    pub(crate) fn fragmentation(&self, room: &Room) -> f64 {
        let each = self.expected.iter();
        each.map(|(demand, part)| part * room.fragments(demand) as f64).sum()
    }

    /// Returns the pod with a label of the devices that [`Plugin::reserve`] chose.
    pub(crate) fn with_devices(pod: Pod, cycle: Cycle<'_>) -> Pod {
        let Some(devices) = cycle.state.read::<String>(NAME) else { return pod };
        let mut spec = PodSpec::clone(&pod.template);
        let devices = [(DEVICES, devices.as_str())];
        spec.labels = Labels::new(spec.labels.iter().chain(devices));
        Pod { template: Template::new(spec), ..pod }
    }
}

struct Request<'a>(&'a GpuSharing, Demand);

impl Plugin for GpuSharing {
    // Local: the devices of a node's pods are stored in their labels.
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter, Point::Score, Point::Reserve]).local()
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let demand = Demand::of(&cycle.pod.template);
        Ok(match demand.gpus {
            0 => PreFilter::Skip,
            _ => PreFilter::Filter(Box::new(Request(self, demand))),
        })
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(Request(self, Demand::of(&cycle.pod.template)))))
    }

    fn reserve(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let demand = Demand::of(&cycle.pod.template);
        let node = cycle.cluster.node(node);
        let Some(devices) = node.and_then(|node| Room::on(node).choose(&demand)) else {
            return Err(Status::new(Code::Unschedulable, NAME, REASON));
        };
        if !devices.is_empty() {
            let devices: Vec<String> = devices.iter().map(usize::to_string).collect();
            cycle.state.write(NAME, devices.join("-"));
        }
        Ok(())
    }
}

impl Filter for Request<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let fits = Room::on(node).choose(&self.1).is_some();
        (!fits).then(|| Status::new(Code::Unschedulable, NAME, REASON))
    }
}

impl Score for Request<'_> {
    /// Returns a value towards 100 if the pod reduces fragmentation, 50 if nothing changes, and a value towards 0 if it
    /// increases fragmentation.
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let Request(plugin, demand) = self;
        let room = Room::on(node);
        if room.devices.is_empty() {
            return Ok(50);
        }
        let Some(left) = room.without(demand) else { return Ok(0) };
        let more = plugin.fragmentation(&left) - plugin.fragmentation(&room);
        Ok((100.0 / (1.0 + (more / WHOLE as f64).exp())) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::cache::{Config, Engine, Writer};
    use portolan::model::{Quantity, node, pod};
    use portolan::plugin::CycleState;
    use portolan::{Algorithm, AlgorithmConfig, Framework};

    fn gpu_pod(name: &str, milli: i64) -> Pod {
        pod(name).cpu(100).memory(1).request(GPU_MILLI, Quantity::whole(milli)).build()
    }

    fn fleet(gpus: &[i64]) -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for (at, count) in gpus.iter().enumerate() {
            let node = node(format!("n{at}")).cpu(8_000).memory(1 << 30).pods(100);
            let node = node.resource(GPU_COUNT, Quantity::whole(*count));
            writer
                .add_node(node.resource(GPU_MILLI, Quantity::whole(count * WHOLE)).build())
                .unwrap();
        }
        writer
    }

    fn place(writer: &mut Writer, pod: Pod) -> Result<String, String> {
        let whole = |gpus| Demand { cpu: 100, memory: 1, gpus, milli: WHOLE };
        let sharing = GpuSharing::new(vec![(whole(1), 0.5), (whole(2), 0.5)]);
        let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![(Box::new(sharing), 1)];
        let framework = Framework::new(plugins).unwrap();
        let mut scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let state = CycleState::default();
        let version = writer.cluster().fork();
        let cycle = Cycle::new(&version, &pod, &state);
        let decision = scheduler.decide(cycle).map_err(|error| error.to_string())?;
        scheduler.framework().reserve(cycle, &decision.node).map_err(|error| error.to_string())?;
        let pod = GpuSharing::with_devices(pod.clone(), cycle).on(decision.node.clone());
        let devices = devices_of(&pod.template).map(|device| format!("/{device}"));
        let placed = format!("{}{}", decision.node, devices.collect::<String>());
        writer.assume_pod(pod).unwrap();
        Ok(placed)
    }

    #[test]
    fn two_half_free_gpus_are_not_a_whole_gpu() {
        let mut writer = fleet(&[2]);
        assert_eq!(place(&mut writer, gpu_pod("a", 600)).as_deref(), Ok("n0/0"));
        assert_eq!(place(&mut writer, gpu_pod("b", 500)).as_deref(), Ok("n0/1"));
        // 900 thousandths are free, but no device has 700.
        let refused = place(&mut writer, gpu_pod("c", 700)).unwrap_err();
        assert!(refused.contains(REASON), "{refused}");
        assert_eq!(place(&mut writer, gpu_pod("d", 500)).as_deref(), Ok("n0/1"));
        assert_eq!(Room::on(writer.cluster().node("n0").unwrap()).devices, [400, 0]);
    }

    #[test]
    fn pods_are_placed_without_breaking_a_whole_gpu() {
        let mut writer = fleet(&[1, 1, 2]);
        let first = place(&mut writer, gpu_pod("a", 300)).unwrap();
        assert_eq!(place(&mut writer, gpu_pod("b", 300)), Ok(first.clone()));
        assert_eq!(place(&mut writer, gpu_pod("c", 400)), Ok(first));
        assert_eq!(place(&mut writer, gpu_pod("two", 2_000)).as_deref(), Ok("n2/0/1"));
        assert!(place(&mut writer, gpu_pod("three", 3_000)).is_err());
    }
}

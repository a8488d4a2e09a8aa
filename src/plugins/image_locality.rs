//! Images that nodes already have (imagelocality/image_locality.go).

use crate::framework::{Cycle, Feasible, Plugin, PluginInfo, Point, PreScore, Score, Status};
use crate::model::{Pod, VolumeSource};
use crate::snapshot::{Cluster, NodeInfo};

/// Prefers nodes that already have the pod's images, in particular large images that many nodes have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageLocality;

const MIB: i64 = 1024 * 1024;
/// The size below which an image adds no score.
const MIN_SIZE: i64 = 23 * MIB;
/// The largest contribution of one container's image.
const MAX_SIZE: i64 = 1000 * MIB;

/// The contributions of the pod's images on nodes that have them.
struct Worth<'a> {
    names: Vec<(std::borrow::Cow<'a, str>, i64)>,
    max: i64,
}

/// Appends the tag that a reference without one implies.
fn with_tag(image: &str) -> std::borrow::Cow<'_, str> {
    // A colon before the last slash belongs to a port.
    let tagged = match (image.rfind(':'), image.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (colon, _) => colon.is_some(),
    };
    if tagged { image.into() } else { format!("{image}:latest").into() }
}

impl Plugin for ImageLocality {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("ImageLocality", &[Point::Score])
    }

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let template = &pod.template;
        let volumes = template.volumes.iter().filter_map(|volume| match volume {
            VolumeSource::Image { reference } => Some(reference),
            _ => None,
        });
        let nodes = cluster.len() as f64;
        let names = template.images.iter().chain(volumes).filter_map(|image| {
            let name = with_tag(image);
            let state = cluster.image(&name)?;
            // Divides first, as kube-scheduler does, because rounding depends on the order.
            Some((name, (state.size as f64 * (state.nodes as f64 / nodes)) as i64))
        });
        let names: Vec<_> = names.collect();
        let max = MAX_SIZE.saturating_mul(i64::from(template.container_count));
        match names.is_empty() {
            true => Ok(PreScore::All(score(0, max))),
            false => Ok(PreScore::Score(Box::new(Worth { names, max }))),
        }
    }
}

fn score(sum: i64, max: i64) -> i64 {
    let sum = if sum < MIN_SIZE { MIN_SIZE } else { sum.min(max) };
    match max - MIN_SIZE {
        0 => 0,
        range => 100 * (sum - MIN_SIZE) / range,
    }
}

impl Score for Worth<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let Some(node) = node.node() else { return Ok(0) };
        let has = |name: &str| node.images.iter().any(|i| i.names.iter().any(|n| **n == *name));
        let held = self.names.iter().filter(|(name, _)| has(name)).map(|(_, worth)| *worth);
        Ok(score(held.fold(0, i64::saturating_add), self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_without_a_tag_implies_latest() {
        for (image, full) in [
            ("redis", "redis:latest"),
            ("redis:7", "redis:7"),
            ("host:5000/redis", "host:5000/redis:latest"),
            ("host:5000/redis:7", "host:5000/redis:7"),
            ("redis@sha256:ab", "redis@sha256:ab"),
        ] {
            assert_eq!(with_tag(image), full);
        }
    }
}

//! Device taints.

use crate::model::{Device, DeviceTaint, DeviceToleration};

/// Returns whether the tolerations permit the device. The duration of a toleration does not matter here.
#[must_use]
pub fn are_tolerated(device: &Device, tolerations: &[DeviceToleration]) -> bool {
    device.taints.iter().all(|taint| {
        !matches!(&*taint.effect, "NoSchedule" | "NoExecute")
            || tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "Exists" => true,
            "" | "Equal" => toleration.value == taint.value,
            _ => false,
        }
}

//! NUMA nodes: their allocatable resources and the allocations to pods.

use crate::model::{Name, Quantity, QuantityError, ResourceList};

/// A NUMA node of a machine, as reported in a CustomNodeResource (`status.topologyZone`, a zone of type Numa inside one
/// of type Socket).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NumaZone {
    /// The number of the NUMA node on its machine.
    pub id: u32,
    /// The socket that the NUMA node belongs to.
    pub socket: u32,
    /// The allocatable resources.
    pub allocatable: ResourceList,
    /// The resources that the machine's agent has allocated to each pod, identified by `namespace/name/uid`.
    pub allocations: Box<[(Name, ResourceList)]>,
}

/// The resources that a scheduler has allocated to a pod on each NUMA node (annotation
/// `godel.bytedance.com/micro-topology`), sorted by the number of the NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MicroTopology(pub(in crate::model) Box<[(u32, Amounts)]>);

/// The amounts by resource.
type Amounts = Box<[(Name, Quantity)]>;

/// The error for text that is not a [`MicroTopology`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MicroTopologyError {
    /// A part is not of the form `0:cpu=2,memory=4Gi`.
    #[error("{text:?} is not of the form NUMA:RESOURCE=QUANTITY,…")]
    Form {
        /// The rejected part.
        text: String,
    },
    /// An amount is not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

impl MicroTopology {
    /// Parses text such as `0:cpu=2,memory=4Gi;1:cpu=1`. Empty text and `null` denote no allocation. If a resource
    /// occurs twice for one NUMA node, the last amount wins.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a different form or an amount is not a quantity.
    ///
    /// ```
    /// use portolan::model::MicroTopology;
    ///
    /// let topology = MicroTopology::parse("1:cpu=2;0:cpu=1,memory=4Gi")?;
    /// assert_eq!(topology.iter().map(|(numa, _)| numa).collect::<Vec<_>>(), [0, 1]);
    /// assert!(MicroTopology::parse("cpu=2").is_err());
    /// # Ok::<(), portolan::model::MicroTopologyError>(())
    /// ```
    pub fn parse(text: &str) -> Result<MicroTopology, MicroTopologyError> {
        let mut all = std::collections::BTreeMap::<u32, ResourceList>::new();
        if matches!(text, "" | "null") {
            return Ok(MicroTopology::default());
        }
        for part in text.split(';') {
            let malformed = || MicroTopologyError::Form { text: part.to_owned() };
            let (numa, amounts) = part.split_once(':').ok_or_else(malformed)?;
            let list = all.entry(numa.parse().map_err(|_| malformed())?).or_default();
            for amount in amounts.split(',') {
                let (resource, quantity) = amount.split_once('=').ok_or_else(malformed)?;
                list.set(resource, quantity.parse::<Quantity>()?);
            }
        }
        let lists = all.into_iter().map(|(numa, list)| {
            (numa, list.iter().map(|(name, quantity)| (name.clone(), quantity)).collect())
        });
        Ok(MicroTopology(lists.collect()))
    }

    /// Returns an iterator over the NUMA nodes and the amounts allocated on each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[(Name, Quantity)])> {
        self.0.iter().map(|(numa, amounts)| (*numa, &**amounts))
    }

    /// Returns `true` if nothing is allocated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_text_is_refused() {
        for text in ["0", "0:", "x:cpu=1", "0:cpu", "0:cpu=1;", "-1:cpu=1", "0:cpu=y", "0:a=1:b=2"]
        {
            assert!(MicroTopology::parse(text).is_err(), "{text}");
        }
        assert_eq!(MicroTopology::parse("null"), Ok(MicroTopology::default()));
    }
}

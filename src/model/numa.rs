//! NUMA nodes: what a machine's parts have, and who was given what of them.

use super::{Name, Quantity, QuantityError, ResourceList};

/// A NUMA node of a machine, as a CustomNodeResource says (`status.topologyZone`, a
/// zone of type Numa in one of type Socket).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NumaZone {
    /// Its number on the machine.
    pub id: u32,
    /// The socket that it belongs to.
    pub socket: u32,
    /// What may be taken of it.
    pub allocatable: ResourceList,
    /// What the agent on the machine gave away of it: to which pod, as
    /// `namespace/name/uid`, how much.
    pub allocations: Box<[(Name, ResourceList)]>,
}

/// What a scheduler gave a pod of which NUMA nodes (annotation
/// `godel.bytedance.com/micro-topology`), sorted by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MicroTopology(pub(super) Box<[(u32, Amounts)]>);

/// So much of each resource.
type Amounts = Box<[(Name, Quantity)]>;

/// A text is not a [`MicroTopology`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MicroTopologyError {
    /// A part of it is not of the form `0:cpu=2,memory=4Gi`.
    #[error("{text:?} is not of the form NUMA:RESOURCE=QUANTITY,…")]
    Form {
        /// The part.
        text: String,
    },
    /// An amount is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

impl MicroTopology {
    /// Reads `0:cpu=2,memory=4Gi;1:cpu=1`; an empty text and `null` give nothing.
    /// Of a resource that is named twice for one NUMA node the last amount counts.
    ///
    /// # Errors
    ///
    /// The text is of another form, or an amount is no quantity.
    ///
    /// ```
    /// use portolan::model::MicroTopology;
    ///
    /// let given = MicroTopology::parse("1:cpu=2;0:cpu=1,memory=4Gi")?;
    /// assert_eq!(given.iter().map(|(numa, _)| numa).collect::<Vec<_>>(), [0, 1]);
    /// assert!(MicroTopology::parse("cpu=2").is_err());
    /// # Ok::<(), portolan::model::MicroTopologyError>(())
    /// ```
    pub fn parse(text: &str) -> Result<MicroTopology, MicroTopologyError> {
        let mut all = std::collections::BTreeMap::<u32, ResourceList>::new();
        if matches!(text, "" | "null") {
            return Ok(MicroTopology::default());
        }
        for part in text.split(';') {
            let wrong = || MicroTopologyError::Form { text: part.to_owned() };
            let (numa, amounts) = part.split_once(':').ok_or_else(wrong)?;
            let list = all.entry(numa.parse().map_err(|_| wrong())?).or_default();
            for amount in amounts.split(',') {
                let (resource, quantity) = amount.split_once('=').ok_or_else(wrong)?;
                list.set(resource, quantity.parse::<Quantity>()?);
            }
        }
        let lists = all.into_iter().map(|(numa, list)| {
            (numa, list.iter().map(|(name, quantity)| (name.clone(), quantity)).collect())
        });
        Ok(MicroTopology(lists.collect()))
    }

    /// Each NUMA node, with what was given of it.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[(Name, Quantity)])> {
        self.0.iter().map(|(numa, amounts)| (*numa, &**amounts))
    }

    /// Whether nothing was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_another_form_are_refused() {
        for text in ["0", "0:", "x:cpu=1", "0:cpu", "0:cpu=1;", "-1:cpu=1", "0:cpu=y", "0:a=1:b=2"]
        {
            assert!(MicroTopology::parse(text).is_err(), "{text}");
        }
        assert_eq!(MicroTopology::parse("null"), Ok(MicroTopology::default()));
    }
}

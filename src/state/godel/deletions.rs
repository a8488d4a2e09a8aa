//! Marks on pods that are about to be deleted by preemption.

use std::time::Duration;

use crate::model::{EventError, Timestamp, Uid};
use crate::snapshot::DeletionMark;

use crate::state::lifecycle::State;

/// The lifetime of a mark (`PodMarkerExpirationPeriod`).
const MARK_LIFETIME: Duration = Duration::from_secs(600);

impl State {
    /// Implements `MarkPodToDelete`. The victim must be bound. If several preemptors mark it, the last one owns the
    /// mark.
    pub(in crate::state) fn mark_for_deletion(
        &mut self,
        victim: &Uid,
        preemptor: &Uid,
        now: Timestamp,
    ) -> Result<(), EventError> {
        if victim.is_empty() || preemptor.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.draft.check_mark(victim)?;
        let lifetime = i64::try_from(MARK_LIFETIME.as_nanos()).unwrap_or(i64::MAX);
        let until = Timestamp(now.0.saturating_add(lifetime));
        let (victim, preemptor) = (victim.clone(), preemptor.clone());
        self.draft.mark(DeletionMark { victim, preemptor, until });
        self.tick(now);
        Ok(())
    }

    /// Implements `RemoveDeletePodMarker`. Only the preemptor that owns a mark may remove it.
    pub(in crate::state) fn unmark_for_deletion(
        &mut self,
        victim: &Uid,
        preemptor: &Uid,
    ) -> Result<(), EventError> {
        if victim.is_empty() || preemptor.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let Some(marks) = self.cluster().deletion_marks() else {
            return Err(EventError::NotKept {
                store: "deletion marks".into(),
                field: "deletion_marks".into(),
            });
        };
        match marks.get(victim) {
            None => {}
            Some(mark) if mark.preemptor == *preemptor => self.draft.unmark(victim),
            Some(mark) => {
                return Err(EventError::MarkedByAnother {
                    victim: victim.clone(),
                    preemptor: mark.preemptor.clone(),
                });
            }
        }
        Ok(())
    }
}

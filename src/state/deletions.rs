//! Marking pods that are about to be deleted for others.

use std::time::Duration;

use crate::model::{EventError, Timestamp, Uid};
use crate::snapshot::DeletionMark;

use super::lifecycle::State;

/// How long a mark lasts (`PodMarkerExpirationPeriod`).
const LASTS: Duration = Duration::from_secs(600);

impl State {
    /// `MarkPodToDelete`: the pod is bound; the last preemptor that marks it is the one
    /// that it is marked for.
    pub(super) fn mark_for_deletion(
        &mut self,
        victim: &Uid,
        preemptor: &Uid,
        now: Timestamp,
    ) -> Result<(), EventError> {
        if victim.is_empty() || preemptor.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.draft.check_mark(victim)?;
        let lasts = i64::try_from(LASTS.as_nanos()).unwrap_or(i64::MAX);
        let until = Timestamp(now.0.saturating_add(lasts));
        let (victim, preemptor) = (victim.clone(), preemptor.clone());
        self.draft.mark(DeletionMark { victim, preemptor, until });
        self.tick(now);
        Ok(())
    }

    /// `RemoveDeletePodMarker`: only the preemptor that set a mark removes it.
    pub(super) fn unmark_for_deletion(
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

//! Alternating measurements, and quantiles.

/// Measures each of several candidates once per turn, and returns the measurements of each.
///
/// Each turn starts with the next candidate, so that none always benefits from its position. `measure` receives the
/// indices of the candidate and of the turn.
pub fn rotate<T>(
    turns: usize,
    candidates: usize,
    mut measure: impl FnMut(usize, usize) -> T,
) -> Vec<Vec<T>> {
    let mut measured: Vec<Vec<T>> = (0..candidates).map(|_| Vec::with_capacity(turns)).collect();
    for turn in 0..turns {
        for step in 0..candidates {
            let which = (turn + step) % candidates;
            measured[which].push(measure(which, turn));
        }
    }
    measured
}

/// Returns the ratio of `measured` to `base` in each turn, which cancels the drift of the machine between turns. A base
/// of 0 counts as 10⁻¹².
pub fn ratios(measured: &[f64], base: &[f64]) -> Sorted<f64> {
    Sorted::new(measured.iter().zip(base).map(|(measured, base)| measured / base.max(1e-12)))
}

/// Measurements in ascending order.
#[derive(Clone, Debug)]
pub struct Sorted<T>(Vec<T>);

impl<T: Copy + PartialOrd> Sorted<T> {
    /// Sorts the measurements.
    ///
    /// # Panics
    ///
    /// Panics if two values cannot be compared.
    pub fn new(values: impl IntoIterator<Item = T>) -> Sorted<T> {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable_by(|a, b| a.partial_cmp(b).expect("a measurement is a number"));
        Sorted(values)
    }

    /// Returns a quantile without interpolation: 0 gives the smallest value, 0.5 the median, and 1 the largest. A rank
    /// between two values is rounded down.
    ///
    /// # Panics
    ///
    /// Panics if there are no values, or if `share` is not between 0 and 1.
    pub fn quantile(&self, share: f64) -> T {
        assert!((0.0..=1.0).contains(&share), "a quantile is between 0 and 1, not {share}");
        self.0[((self.0.len() - 1) as f64 * share) as usize]
    }

    /// Returns the median, and the quantiles 0.1 and 0.9 as its spread.
    ///
    /// # Panics
    ///
    /// Panics if there are no values.
    pub fn median_and_spread(&self) -> [T; 3] {
        [0.5, 0.1, 0.9].map(|share| self.quantile(share))
    }

    /// Returns the values in ascending order.
    pub fn values(&self) -> &[T] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_at_their_rank() {
        let values = Sorted::new([5, 3, 1, 4, 2]);
        assert_eq!(
            [0.0, 0.25, 0.5, 0.6, 0.75, 1.0].map(|at| values.quantile(at)),
            [1, 2, 3, 3, 4, 5]
        );
        assert_eq!(Sorted::new([2.0, 1.0]).quantile(0.5), 1.0);
        assert_eq!(values.values(), [1, 2, 3, 4, 5]);
        assert_eq!(Sorted::new(0..=10).median_and_spread(), [5, 1, 9]);
    }

    #[test]
    fn each_candidate_starts_in_turn() {
        let mut order = Vec::new();
        let measured = rotate(4, 3, |which, turn| {
            order.push(which);
            10 * which + turn
        });
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
        assert_eq!(measured, [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]);
    }

    #[test]
    fn ratios_compare_measurements_of_the_same_turn() {
        let ratios = ratios(&[2.0, 30.0, 1.0], &[1.0, 10.0, 0.0]);
        assert_eq!(ratios.values(), [2.0, 3.0, 1e12]);
    }
}

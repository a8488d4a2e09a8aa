//! Alternating measurements, and quantiles.

/// Measures `first` and `second` once per turn, and returns the measurements of each.
///
/// `first` runs first in even turns and `second` in odd turns, so that neither always benefits from running second.
/// Both receive the number of the turn.
pub fn alternate(
    turns: usize,
    mut first: impl FnMut(usize) -> f64,
    mut second: impl FnMut(usize) -> f64,
) -> [Vec<f64>; 2] {
    let mut measured = [Vec::with_capacity(turns), Vec::with_capacity(turns)];
    for turn in 0..turns {
        let (one, other) = if turn.is_multiple_of(2) {
            let one = first(turn);
            (one, second(turn))
        } else {
            let other = second(turn);
            (first(turn), other)
        };
        measured[0].push(one);
        measured[1].push(other);
    }
    measured
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
    }

    #[test]
    fn each_turn_reverses_the_order() {
        let order = std::cell::RefCell::new(String::new());
        let note = |name: char| {
            let order = &order;
            move |turn: usize| {
                order.borrow_mut().push(name);
                turn as f64
            }
        };
        let measured = alternate(3, note('a'), note('b'));
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert_eq!(measured, [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]);
    }
}

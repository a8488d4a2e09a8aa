//! Profiles in plain Rust: which plugins run, at which points, with which weights.
//!
//! The builder keeps plugins in a list and applies each call to the plugins given before it. The first call that
//! cannot be applied decides the result of [`FrameworkBuilder::build`], so calls chain without a `?` each.

use super::{Framework, FrameworkError, Handle, Plugin, Point};

/// Puts a [`Framework`] together: plugins in their order, the weights of their scores, and which of them run at which
/// extension point.
///
/// Each call applies to the plugins given before it. A name that no plugin has is an error, so a misspelt name does
/// not go unnoticed.
///
/// ```
/// use portolan::framework::{Framework, Point};
/// use portolan::plugins::{NodeResourcesFit, ScoringStrategy};
///
/// let fullest_first =
///     NodeResourcesFit { strategy: ScoringStrategy::MostAllocated, ..NodeResourcesFit::default() };
/// let framework = Framework::builder()
///     .default_plugins()
///     .replace(Box::new(fullest_first))
///     .weight("NodeResourcesFit", 5)
///     .disable("NodeResourcesBalancedAllocation")
///     .disable_at(Point::Score, "ImageLocality")
///     .build()?;
/// let scores: Vec<_> =
///     framework.plugins_at(Point::Score).map(|(plugin, weight)| (plugin.name(), weight)).collect();
/// assert!(scores.contains(&("NodeResourcesFit", 5)));
/// assert!(!scores.iter().any(|(name, _)| *name == "ImageLocality"));
///
/// let misspelt = Framework::builder().default_plugins().disable("NodeResourceFit").build();
/// assert!(misspelt.err().unwrap().to_string().contains("\"NodeResourceFit\""));
/// # Ok::<(), portolan::framework::FrameworkError>(())
/// ```
pub struct FrameworkBuilder {
    handle: Handle,
    plugins: Vec<(Box<dyn Plugin>, i64)>,
    /// The plugins of a point, by name, for each point that does not run all that extend it.
    points: Vec<(Point, Vec<String>)>,
    failed: Option<FrameworkError>,
}

impl Framework {
    /// A builder without plugins, whose framework has a [default handle](Handle::default).
    #[must_use]
    pub fn builder() -> FrameworkBuilder {
        Framework::builder_with(&Handle::default())
    }

    /// The same with this handle, which must be the one that the plugins were made with.
    #[must_use]
    pub fn builder_with(handle: &Handle) -> FrameworkBuilder {
        let handle = handle.clone();
        FrameworkBuilder { handle, plugins: Vec::new(), points: Vec::new(), failed: None }
    }
}

impl FrameworkBuilder {
    /// The handle that plugins of this framework share.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Adds a plugin after those given so far, at all points that it extends, with the weight of its scores, where
    /// 0 means 1.
    #[must_use]
    pub fn plugin(mut self, plugin: Box<dyn Plugin>, weight: i64) -> FrameworkBuilder {
        let name = plugin.name();
        for (point, names) in &mut self.points {
            if plugin.points().contains(point) {
                names.push(name.to_owned());
            }
        }
        self.plugins.push((plugin, weight));
        self
    }

    /// Replaces the plugin of the same name, and keeps its place and its weight: for a plugin of the default profile
    /// with settings of your own.
    #[must_use]
    pub fn replace(mut self, plugin: Box<dyn Plugin>) -> FrameworkBuilder {
        if let Some(at) = self.position(plugin.name()) {
            self.plugins[at].0 = plugin;
        }
        self
    }

    /// Removes a plugin from all points.
    #[must_use]
    pub fn disable(mut self, name: &str) -> FrameworkBuilder {
        if let Some(at) = self.position(name) {
            self.plugins.remove(at);
            for (_, names) in &mut self.points {
                names.retain(|known| known != name);
            }
        }
        self
    }

    /// Removes a plugin from one point. It stays at the other points that it extends.
    #[must_use]
    pub fn disable_at(mut self, point: Point, name: &str) -> FrameworkBuilder {
        let Some(at) = self.position(name) else { return self };
        if !self.plugins[at].0.points().contains(&point) {
            return self.failing(FrameworkError::DoesNotExtend { plugin: name.to_owned(), point });
        }
        let mut names = self.names_at(point);
        names.retain(|known| known != name);
        self.plugins_at(point, &names)
    }

    /// Runs these plugins at a point, in this order, and no others. The names are checked by
    /// [`FrameworkBuilder::build`].
    #[must_use]
    pub fn plugins_at<N: AsRef<str>>(mut self, point: Point, names: &[N]) -> FrameworkBuilder {
        let names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        self.points.retain(|(known, _)| *known != point);
        self.points.push((point, names));
        self
    }

    /// Sets the weight of a plugin's scores, where 0 means 1.
    #[must_use]
    pub fn weight(mut self, name: &str, weight: i64) -> FrameworkBuilder {
        if let Some(at) = self.position(name) {
            self.plugins[at].1 = weight;
        }
        self
    }

    /// The framework. Unless one plugin extends QueueSort, a queue tries pods in the order in which they arrive.
    ///
    /// # Errors
    ///
    /// A call named a plugin that was not given before it, or a point that the plugin does not extend; a plugin is
    /// given twice, in all or at one point; a weight is negative, or the sum of all scores may leave 64 bits; or
    /// several plugins sort the queue.
    pub fn build(self) -> Result<Framework, FrameworkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let framework = Framework::checked(self.plugins)?.with_handle(self.handle);
        let place = |made: Framework, (point, names): &(Point, Vec<String>)| {
            made.with_plugins_at(*point, names)
        };
        self.points.iter().try_fold(framework, place)?.sorting_once()
    }

    /// Where a plugin is in the list. If it is not, the framework cannot be built.
    fn position(&mut self, name: &str) -> Option<usize> {
        let found = self.plugins.iter().position(|(plugin, _)| plugin.name() == name);
        if found.is_none() {
            self.failed.get_or_insert_with(|| FrameworkError::NotFound(name.to_owned()));
        }
        found
    }

    fn failing(mut self, error: FrameworkError) -> FrameworkBuilder {
        self.failed.get_or_insert(error);
        self
    }

    /// The plugins of a point, as they are now.
    fn names_at(&self, point: Point) -> Vec<String> {
        match self.points.iter().find(|(known, _)| *known == point) {
            Some((_, names)) => names.clone(),
            None => {
                let extend = self.plugins.iter().filter(|(p, _)| p.points().contains(&point));
                extend.map(|(plugin, _)| plugin.name().to_owned()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::{
        ImageLocality, InterPodAffinity, NodeName, PrioritySort, TaintToleration,
    };

    fn at(framework: &Framework, point: Point) -> Vec<(&str, i64)> {
        framework.plugins_at(point).map(|(plugin, weight)| (plugin.name(), weight)).collect()
    }

    fn three() -> FrameworkBuilder {
        Framework::builder()
            .plugin(Box::new(ImageLocality), 2)
            .plugin(Box::new(TaintToleration), 3)
            .plugin(Box::new(InterPodAffinity::default()), 0)
    }

    fn error(builder: FrameworkBuilder) -> FrameworkError {
        builder.build().err().expect("it cannot be built")
    }

    #[test]
    fn default_plugins_are_the_default_profile() {
        let built = Framework::builder().default_plugins().build().unwrap();
        let default = Framework::default_profile();
        for point in Point::ALL {
            assert_eq!(at(&built, point), at(&default, point), "{point}");
        }
    }

    #[test]
    fn a_disabled_plugin_is_at_no_point() {
        let framework = three().disable("TaintToleration").build().unwrap();
        assert_eq!(at(&framework, Point::Filter), [("InterPodAffinity", 1)]);
        assert_eq!(at(&framework, Point::Score), [("ImageLocality", 2), ("InterPodAffinity", 1)]);
    }

    #[test]
    fn a_plugin_disabled_at_one_point_stays_at_the_others() {
        let framework = three().disable_at(Point::Score, "TaintToleration").build().unwrap();
        assert_eq!(at(&framework, Point::Score), [("ImageLocality", 2), ("InterPodAffinity", 1)]);
        let filters = [("TaintToleration", 3), ("InterPodAffinity", 1)];
        assert_eq!(at(&framework, Point::Filter), filters);
    }

    #[test]
    fn plugins_given_after_a_point_was_changed_are_at_it() {
        let builder = three().disable_at(Point::Filter, "TaintToleration");
        let framework = builder.plugin(Box::new(NodeName), 0).build().unwrap();
        let filters = [("InterPodAffinity", 1), ("NodeName", 1)];
        assert_eq!(at(&framework, Point::Filter), filters);
    }

    #[test]
    fn a_point_runs_the_named_plugins_in_their_order() {
        let order = ["InterPodAffinity", "TaintToleration"];
        let framework = three().plugins_at(Point::Score, &order).build().unwrap();
        assert_eq!(at(&framework, Point::Score), [("InterPodAffinity", 1), ("TaintToleration", 3)]);
    }

    #[test]
    fn a_replaced_plugin_keeps_its_place_and_weight() {
        let mine = InterPodAffinity::new(50, true);
        let builder = three().weight("InterPodAffinity", 7).replace(Box::new(mine));
        let framework = builder.plugin(Box::new(NodeName), 0).build().unwrap();
        let scores = [("ImageLocality", 2), ("TaintToleration", 3), ("InterPodAffinity", 7)];
        assert_eq!(at(&framework, Point::Score), scores);
    }

    #[test]
    fn the_first_call_that_cannot_be_applied_is_the_error() {
        let not_found = |name: &str| FrameworkError::NotFound(name.to_owned());
        assert_eq!(error(three().disable("A").weight("B", 1)), not_found("A"));
        assert_eq!(error(three().weight("B", 1)), not_found("B"));
        assert_eq!(error(three().replace(Box::new(NodeName))), not_found("NodeName"));
        assert_eq!(error(three().plugins_at(Point::Filter, &["C"])), not_found("C"));
        let plugin = "ImageLocality".to_owned();
        let extends = FrameworkError::DoesNotExtend { plugin, point: Point::Filter };
        assert_eq!(error(three().disable_at(Point::Filter, "ImageLocality")), extends);
        let plugin = "TaintToleration".to_owned();
        let twice = FrameworkError::Twice { plugin: plugin.clone(), point: Point::Filter };
        let names = ["TaintToleration", "TaintToleration"];
        assert_eq!(error(three().plugins_at(Point::Filter, &names)), twice);
        let again = three().plugin(Box::new(TaintToleration), 1);
        assert_eq!(error(again), FrameworkError::Duplicate(plugin.clone()));
        let negative = FrameworkError::NegativeWeight { plugin, weight: -1 };
        assert_eq!(error(three().weight("TaintToleration", -1)), negative);
    }

    #[test]
    fn one_of_several_plugins_that_sort_can_be_chosen() {
        struct Mine;
        impl Plugin for Mine {
            fn name(&self) -> &'static str {
                "Mine"
            }
            fn points(&self) -> &'static [Point] {
                &[Point::QueueSort]
            }
        }
        let two =
            || Framework::builder().plugin(Box::new(PrioritySort), 0).plugin(Box::new(Mine), 0);
        assert!(matches!(error(two()), FrameworkError::QueueSort { .. }));
        let framework = two().plugins_at(Point::QueueSort, &["Mine"]).build().unwrap();
        assert_eq!(at(&framework, Point::QueueSort), [("Mine", 1)]);
    }
}

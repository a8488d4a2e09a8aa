//! Builds profiles in code: which plugins run, at which points, with which weights.
//!
//! The builder applies each call to the plugins that were added before it. The first call that cannot be applied
//! determines the result of [`FrameworkBuilder::build`], so calls chain without a `?` each.

use super::runtime::Entry;
use super::{Framework, FrameworkError, Handle, Plugin, Point};

/// Builds a [`Framework`]: its plugins in order, the weights of their scores, and the extension points at which each of
/// them is enabled.
///
/// Each call applies to the plugins that were added before it. A name that no plugin has is an error, so misspelled
/// names are found.
///
/// ```
/// use portolan::plugin::{NodeResourcesFit, Point, ScoringStrategy};
/// use portolan::Framework;
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
///     framework.plugins_at(Point::Score).map(|(of, weight)| (of.info().name(), weight)).collect();
/// assert!(scores.contains(&("NodeResourcesFit", 5)));
/// assert!(!scores.iter().any(|(name, _)| *name == "ImageLocality"));
///
/// let misspelled = Framework::builder().default_plugins().disable("NodeResourceFit").build();
/// assert!(misspelled.err().unwrap().to_string().contains("\"NodeResourceFit\""));
/// # Ok::<(), portolan::FrameworkError>(())
/// ```
pub struct FrameworkBuilder {
    handle: Handle,
    plugins: Vec<Entry>,
    /// For each point that was configured, the names of the plugins enabled there. All other points run every plugin
    /// that extends them.
    points: Vec<(Point, Vec<String>)>,
    failed: Option<FrameworkError>,
}

impl Framework {
    /// Creates a builder without plugins, whose framework has a [default handle](Handle::default).
    #[must_use]
    pub fn builder() -> FrameworkBuilder {
        Framework::builder_with(&Handle::default())
    }

    /// Creates a builder without plugins, whose framework has this handle. The plugins must be created with the same
    /// handle.
    #[must_use]
    pub fn builder_with(handle: &Handle) -> FrameworkBuilder {
        let handle = handle.clone();
        FrameworkBuilder { handle, plugins: Vec::new(), points: Vec::new(), failed: None }
    }
}

impl FrameworkBuilder {
    /// Returns the handle that the plugins of the framework share.
    #[must_use]
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Appends a plugin, enabled at all points that it extends. `weight` is the weight of its scores; 0 means 1.
    #[must_use]
    pub fn plugin(mut self, plugin: Box<dyn Plugin>, weight: i64) -> FrameworkBuilder {
        let entry = Entry::new((plugin, weight));
        for (_, names) in self.points.iter_mut().filter(|(point, _)| entry.info.extends(*point)) {
            names.push(entry.info.name.to_owned());
        }
        self.plugins.push(entry);
        self
    }

    /// Replaces the plugin of the same name and keeps its position and weight. Use it to configure a plugin of the
    /// default profile.
    #[must_use]
    pub fn replace(mut self, plugin: Box<dyn Plugin>) -> FrameworkBuilder {
        if let Some(at) = self.position(plugin.info().name) {
            self.plugins[at] = Entry::new((plugin, self.plugins[at].weight));
        }
        self
    }

    /// Disables a plugin at all points.
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

    /// Disables a plugin at one point. It stays enabled at the other points that it extends.
    #[must_use]
    pub fn disable_at(mut self, point: Point, name: &str) -> FrameworkBuilder {
        let Some(at) = self.position(name) else { return self };
        if !self.plugins[at].info.extends(point) {
            return self.failing(FrameworkError::DoesNotExtend { plugin: name.to_owned(), point });
        }
        let mut names = self.names_at(point);
        names.retain(|known| known != name);
        self.plugins_at(point, &names)
    }

    /// Enables exactly these plugins at a point, in this order. [`FrameworkBuilder::build`] checks the names.
    #[must_use]
    pub fn plugins_at<N: AsRef<str>>(mut self, point: Point, names: &[N]) -> FrameworkBuilder {
        let names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        self.points.retain(|(known, _)| *known != point);
        self.points.push((point, names));
        self
    }

    /// Sets the weight of a plugin's scores; 0 means 1.
    #[must_use]
    pub fn weight(mut self, name: &str, weight: i64) -> FrameworkBuilder {
        if let Some(at) = self.position(name) {
            self.plugins[at].weight = weight;
        }
        self
    }

    /// Builds the framework. If no plugin extends QueueSort, the queue schedules pods in order of arrival.
    ///
    /// # Errors
    ///
    /// Returns an error if a call names a plugin that was not added before it or a point that the plugin does not
    /// extend, if a plugin is listed twice in the framework or at one point, if a weight is negative, if the weighted
    /// sum of a node's scores may overflow 64 bits, or if several plugins sort the queue.
    pub fn build(self) -> Result<Framework, FrameworkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let framework = Framework::checked(self.plugins)?.with_handle(self.handle);
        let enable = |made: Framework, (point, names): &(Point, Vec<String>)| {
            made.with_plugins_at(*point, names)
        };
        self.points.iter().try_fold(framework, enable)?.sorting_once()
    }

    /// Returns the position of a plugin. If the plugin is unknown, `build` will fail.
    fn position(&mut self, name: &str) -> Option<usize> {
        let found = self.plugins.iter().position(|entry| entry.info.name == name);
        if found.is_none() {
            self.failed.get_or_insert_with(|| FrameworkError::NotFound(name.to_owned()));
        }
        found
    }

    fn failing(mut self, error: FrameworkError) -> FrameworkBuilder {
        self.failed.get_or_insert(error);
        self
    }

    /// Returns the names of the plugins that are currently enabled at a point.
    fn names_at(&self, point: Point) -> Vec<String> {
        match self.points.iter().find(|(known, _)| *known == point) {
            Some((_, names)) => names.clone(),
            None => {
                let extend = self.plugins.iter().filter(|entry| entry.info.extends(point));
                extend.map(|entry| entry.info.name.to_owned()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::PluginInfo;
    use crate::plugins::{
        ImageLocality, InterPodAffinity, NodeName, PrioritySort, TaintToleration,
    };

    fn at(framework: &Framework, point: Point) -> Vec<(&str, i64)> {
        framework.at(point).map(|entry| (entry.info.name, entry.weight)).collect()
    }

    fn three() -> FrameworkBuilder {
        Framework::builder()
            .plugin(Box::new(ImageLocality), 2)
            .plugin(Box::new(TaintToleration), 3)
            .plugin(Box::new(InterPodAffinity::default()), 0)
    }

    fn error(builder: FrameworkBuilder) -> FrameworkError {
        builder.build().err().expect("the framework cannot be built")
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
    fn disabled_plugin_is_removed_from_all_points() {
        let framework = three().disable("TaintToleration").build().unwrap();
        assert_eq!(at(&framework, Point::Filter), [("InterPodAffinity", 1)]);
        assert_eq!(at(&framework, Point::Score), [("ImageLocality", 2), ("InterPodAffinity", 1)]);
    }

    #[test]
    fn plugin_disabled_at_one_point_stays_enabled_at_others() {
        let framework = three().disable_at(Point::Score, "TaintToleration").build().unwrap();
        assert_eq!(at(&framework, Point::Score), [("ImageLocality", 2), ("InterPodAffinity", 1)]);
        let filters = [("TaintToleration", 3), ("InterPodAffinity", 1)];
        assert_eq!(at(&framework, Point::Filter), filters);
    }

    #[test]
    fn plugins_added_after_a_point_was_configured_are_enabled_there() {
        let builder = three().disable_at(Point::Filter, "TaintToleration");
        let framework = builder.plugin(Box::new(NodeName), 0).build().unwrap();
        let filters = [("InterPodAffinity", 1), ("NodeName", 1)];
        assert_eq!(at(&framework, Point::Filter), filters);
    }

    #[test]
    fn point_runs_the_listed_plugins_in_order() {
        let order = ["InterPodAffinity", "TaintToleration"];
        let framework = three().plugins_at(Point::Score, &order).build().unwrap();
        assert_eq!(at(&framework, Point::Score), [("InterPodAffinity", 1), ("TaintToleration", 3)]);
    }

    #[test]
    fn replaced_plugin_keeps_its_position_and_weight() {
        let mine = InterPodAffinity::new(50, true);
        let builder = three().weight("InterPodAffinity", 7).replace(Box::new(mine));
        let framework = builder.plugin(Box::new(NodeName), 0).build().unwrap();
        let scores = [("ImageLocality", 2), ("TaintToleration", 3), ("InterPodAffinity", 7)];
        assert_eq!(at(&framework, Point::Score), scores);
    }

    #[test]
    fn first_invalid_call_determines_the_error() {
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
    fn one_of_several_queue_sort_plugins_can_be_selected() {
        struct Mine;
        impl Plugin for Mine {
            fn info(&self) -> PluginInfo {
                PluginInfo::new("Mine", &[Point::QueueSort])
            }
        }
        let two =
            || Framework::builder().plugin(Box::new(PrioritySort), 0).plugin(Box::new(Mine), 0);
        assert!(matches!(error(two()), FrameworkError::QueueSort { .. }));
        let framework = two().plugins_at(Point::QueueSort, &["Mine"]).build().unwrap();
        assert_eq!(at(&framework, Point::QueueSort), [("Mine", 1)]);
    }
}

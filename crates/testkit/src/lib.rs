//! Test support that the tests, benches, examples and fuzz targets of this repository share. It is not published.
//!
//! - [`alloc`]: a counting global allocator.
//! - [`corpus`]: the committed inputs of the fuzz targets.
//! - [`measure`]: alternating measurements, and quantiles.
//! - [`random`]: a seeded source of random numbers.
//! - [`sample`]: a selection of expensive checks that an input determines.
//!
//! With the feature `cluster`, which depends on the library:
//!
//! - [`naive`]: the oracle, which folds events over plain maps.
//! - [`events`]: random events.
//! - [`machine`]: an engine next to the oracle, and the fuzzer's format of its steps.
//! - [`draw`]: random clusters and pods with all fields that plugins read.
//! - [`checks`]: invariants of plugins and of the scheduling cycle on such clusters.
//! - [`plugin`]: the name, the extension points and the other constants of a plugin.
//!
//! The feature `proptest` adds strategies to the random events. Without features the crate depends only on the standard
//! library, so that every crate of the workspace can use it as a dev-dependency, `portolan-publish` included.

pub mod alloc;
#[cfg(feature = "cluster")]
pub mod checks;
pub mod corpus;
#[cfg(feature = "cluster")]
pub mod draw;
#[cfg(feature = "cluster")]
pub mod events;
#[cfg(feature = "cluster")]
pub mod machine;
pub mod measure;
#[cfg(feature = "cluster")]
pub mod naive;
pub mod random;
pub mod sample;

/// Returns the plugin of the default profile with this name.
///
/// # Panics
///
/// Panics if there is none.
#[cfg(feature = "cluster")]
#[must_use]
pub fn in_tree(name: &str) -> Box<dyn portolan::plugin::Plugin> {
    portolan::plugin::default_plugin(name, &Default::default()).expect("an in-tree plugin")
}

/// Implements `Plugin::info`, in an `impl` of a plugin: `plugin!("Name", Filter, Score)`. Other constants follow a
/// semicolon: `plugin!("Name", Filter; .local())`. A name that is a field is written `self => self.name`.
#[cfg(feature = "cluster")]
#[macro_export]
macro_rules! plugin {
    ($self:ident => $name:expr $(, $point:ident)* $(; $($further:tt)*)?) => {
        fn info(&$self) -> ::portolan::plugin::PluginInfo {
            let points = &[$(::portolan::plugin::Point::$point),*];
            ::portolan::plugin::PluginInfo::new($name, points) $($($further)*)?
        }
    };
    ($($given:tt)*) => {
        $crate::plugin!(self => $($given)*);
    };
}

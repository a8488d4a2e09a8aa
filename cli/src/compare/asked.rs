//! A comparison that a client of `portolan serve` asks for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use portolan::plugin::Handle;
use portolan_dra::plugin::DryRunBackend;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Map, Value};

use super::prices::{Price, PriceOptions};
use super::report::Report;
use super::shapes::Shapes;
use super::{Entrant, Run, SEEDS, Setting};
use crate::cluster::Godel;
use crate::error::CommandError;
use crate::policy::{Reading, Rules, Text};
use crate::replay::{Pods, Source, Workload};

/// The number of configurations.
const CONFIGS: std::ops::RangeInclusive<usize> = 2..=8;

/// The configurations, and how they are compared. The fields of its JSON form are the options of `portolan compare`,
/// with the texts of the configurations and with the prices themselves.
pub(crate) struct Contest {
    entrants: Vec<Entrant>,
    pub(crate) pods: Pods,
    seeds: u16,
    prices: PriceOptions,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    configs: Vec<String>,
    #[serde(default)]
    pods: Pods,
    #[serde(default)]
    ignore_unknown_plugins: bool,
    #[serde(default)]
    ignore_extenders: bool,
    pool_label: Option<String>,
    price_label: Option<String>,
    prices: Option<HashMap<String, Price>>,
    #[serde(default)]
    seeds: Seeds,
}

/// A number of seeds.
struct Seeds(u16);

impl Default for Seeds {
    fn default() -> Seeds {
        Seeds(1)
    }
}

impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seeds, D::Error> {
        let seeds = Value::deserialize(deserializer)?.as_i64();
        let seeds = seeds.filter(|seeds| SEEDS.contains(seeds)).and_then(|it| it.try_into().ok());
        let what = || format!("pass a number from {} to {}", SEEDS.start(), SEEDS.end());
        seeds.map(Seeds).ok_or_else(|| D::Error::custom(what()))
    }
}

impl Contest {
    /// Reads the fields of a body.
    ///
    /// # Errors
    ///
    /// A field is unknown or of another type, a number is out of its range, or there are two sources of prices.
    pub(crate) fn from_json(fields: Map<String, Value>) -> Result<Contest, String> {
        let fields = serde_path_to_error::deserialize(Value::Object(fields));
        // An error of the whole object has the path `.`.
        let fields = fields.map_err(|error| match error.path().iter().len() {
            0 => error.inner().to_string(),
            _ => error.to_string(),
        });
        let Fields {
            configs,
            pods,
            ignore_unknown_plugins,
            ignore_extenders,
            pool_label,
            price_label,
            prices,
            seeds: Seeds(seeds),
        } = fields?;
        if !CONFIGS.contains(&configs.len()) {
            let (least, most) = CONFIGS.into_inner();
            return Err(format!("configs must have {least} to {most} texts"));
        }
        if price_label.is_some() && prices.is_some() {
            return Err("price_label and prices exclude each other".to_owned());
        }
        let entrants = configs.iter().enumerate().map(|(at, text)| {
            let name = format!("configuration {}", at + 1);
            let reading = Reading::ignoring(ignore_unknown_plugins, ignore_extenders);
            Entrant { config: Text::given(&name, text, reading), name }
        });
        let prices = PriceOptions::given(pool_label, price_label, prices);
        Ok(Contest { entrants: entrants.collect(), pods, seeds, prices })
    }

    /// Compares the configurations, as `portolan compare` does.
    pub(crate) fn answer(
        &self,
        mut workload: Workload,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<Value, CommandError> {
        // An invalid configuration is found before the others are replayed.
        for Entrant { config, .. } in &self.entrants {
            config.policies(&Handle::default(), Arc::new(DryRunBackend))?;
        }
        let source = Source::of_cluster(rules.seed, Godel::clone(&rules.godel));
        let setting = Setting {
            workload: &workload,
            source: &source,
            prices: self.prices.of(&workload.nodes)?,
            pool_label: self.prices.pool_label.as_deref(),
            seeds: self.seeds,
            keeps_samples: false,
            shapes: Shapes::of(&workload),
            bar: ProgressBar::hidden(),
            is_wanted: is_wanted.clone(),
        };
        let runs = self.entrants.iter().map(|entrant| setting.all_seeds(entrant, None));
        let mut runs: Vec<Run> = runs.collect::<Result<_, _>>()?;
        setting.score(&self.entrants, &mut runs)?;
        let Setting { shapes, .. } = setting;
        for warning in runs.iter().filter_map(|run| run.outcome.warning.as_ref()) {
            workload.intake.warn(warning);
        }
        Ok(Report { workload: &workload, shapes: &shapes, runs: &runs }.json(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ConfigFile;
    use crate::replay;
    use serde_json::json;

    fn contest(fields: &Value) -> Result<Contest, String> {
        Contest::from_json(fields.as_object().expect("an object").clone())
    }

    #[test]
    fn a_withdrawn_comparison_ends() {
        let source = Source::of_cluster(1, Godel::default());
        let workload = replay::workload(&source).expect("a synthetic cluster");
        let config = ConfigFile::default().source().read().expect("the default profile");
        let rules = Rules { config: config.into(), godel: Godel::default().into(), seed: 1 };
        let contest = contest(&json!({"configs": ["", ""]})).expect("valid");
        let flag = Arc::new(AtomicBool::new(false));
        let ended = contest.answer(workload, &rules, &flag);
        assert!(matches!(ended, Err(CommandError::Withdrawn)), "{ended:?}");
    }

    #[test]
    fn the_fields_are_checked() {
        for (fields, why) in [
            (json!({}), "missing field `configs`"),
            (json!({"configs": [""]}), "configs must have 2 to 8 texts"),
            (json!({"configs": vec![""; 9]}), "configs must have 2 to 8 texts"),
            (json!({"configs": ["", 1]}), "configs[1]: invalid type: integer"),
            (json!({"configs": ["", ""], "pods": "some"}), "unknown variant `some`"),
            (json!({"configs": ["", ""], "prices": "/etc/passwd"}), "prices: invalid type: string"),
            (json!({"configs": ["", ""], "prices": {"n1": -1}}), "prices.n1: use a price per hour"),
            (json!({"configs": ["", ""], "prices": {}, "price_label": "x"}), "exclude each other"),
            (json!({"configs": ["", ""], "seeds": 0}), "seeds: pass a number from 1 to 1000"),
            (json!({"configs": ["", ""], "seeds": 1001}), "seeds: pass a number from 1 to 1000"),
        ] {
            let error = contest(&fields).err().expect("refused");
            assert!(error.contains(why), "{fields}: {error}");
        }
    }
}

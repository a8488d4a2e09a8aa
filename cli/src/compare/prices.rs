//! Prices of nodes per hour, from a node label, a file or a request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use clap::builder::{PathBufValueParser, TypedValueParser};
use portolan::model::{Name, Node};
use portolan_k8s::yaml::{At, from_str};

use crate::error::CommandError;
use crate::input;

/// The label that names the type of a node.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// The options for pools and prices.
#[derive(clap::Args)]
pub(crate) struct PriceOptions {
    /// Node label whose values are pools, for which nodes and prices are reported apart.
    #[arg(long, value_name = "KEY")]
    pub(super) pool_label: Option<String>,
    /// Node label whose value is the node's price per hour.
    #[arg(long, value_name = "KEY", conflicts_with = "prices")]
    price_label: Option<String>,
    /// File with prices per hour: a CSV file with the columns name and price, or a YAML mapping.
    ///
    /// A name is that of a node, or a value of the label of --pool-label (default: node.kubernetes.io/instance-type).
    #[arg(
        long,
        value_name = "FILE",
        value_parser = PathBufValueParser::new().map(Prices::File),
        value_hint = ValueHint::AnyPath
    )]
    prices: Option<Prices>,
}

/// Prices by the names of nodes or by the values of a label.
#[derive(Clone)]
enum Prices {
    File(PathBuf),
    /// The field `prices` of a request.
    #[cfg(feature = "cluster")]
    Given(HashMap<String, f64>),
}

/// A price in JSON.
#[cfg(feature = "cluster")]
pub(super) struct Price(f64);

#[cfg(feature = "cluster")]
impl<'de> serde::Deserialize<'de> for Price {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
        let price = serde_json::Value::deserialize(deserializer)?.as_f64();
        let price = price.filter(|price| is_price(*price)).map(Price);
        price.ok_or_else(|| serde::de::Error::custom(EXPECTED))
    }
}

/// Returns the price of a node.
type PriceOf<'a> = Box<dyn Fn(&Node) -> Result<f64, CommandError> + 'a>;

impl PriceOptions {
    /// The options of a request, which has at most one source of prices.
    #[cfg(feature = "cluster")]
    pub(super) fn given(
        pool_label: Option<String>,
        price_label: Option<String>,
        prices: Option<HashMap<String, Price>>,
    ) -> PriceOptions {
        let prices = prices.map(|prices| prices.into_iter().map(|(name, Price(it))| (name, it)));
        let prices = prices.map(|prices| Prices::Given(prices.collect()));
        PriceOptions { pool_label, price_label, prices }
    }

    /// The price of each node, or `None` if prices are not asked for.
    pub(super) fn of(&self, nodes: &[Node]) -> Result<Option<HashMap<Name, f64>>, CommandError> {
        let price: PriceOf<'_> = match (&self.price_label, &self.prices) {
            (Some(key), _) => Box::new(move |node| labelled(node, key)),
            (None, Some(prices)) => {
                let (file, prices) = prices.read()?;
                let label = self.pool_label.as_deref().unwrap_or(INSTANCE_TYPE);
                Box::new(move |node| {
                    let by_label = || prices.get(node.labels.get(label)?);
                    let price = prices.get(&*node.name).or_else(by_label);
                    price.copied().ok_or_else(|| CommandError::File {
                        file: file.to_owned(),
                        what: format!(
                            "node {} has no price: add its name, or the value of its label {label}",
                            node.name
                        ),
                    })
                })
            }
            (None, None) => return Ok(None),
        };
        let prices = nodes.iter().map(|node| Ok((node.name.clone(), price(node)?)));
        prices.collect::<Result<_, CommandError>>().map(Some)
    }
}

/// Prices by name, with the name of their file or field for errors.
type Named<'p> = (&'p Path, Cow<'p, HashMap<String, f64>>);

impl Prices {
    fn read(&self) -> Result<Named<'_>, CommandError> {
        match self {
            Prices::File(file) => Ok((file, Cow::Owned(read(file)?))),
            #[cfg(feature = "cluster")]
            Prices::Given(prices) => Ok((Path::new("prices"), Cow::Borrowed(prices))),
        }
    }
}

fn labelled(node: &Node, key: &str) -> Result<f64, CommandError> {
    let refuses = |what: &str| CommandError::Usage(format!("node {}: {what}", node.name));
    let text = node
        .labels
        .get(key)
        .ok_or_else(|| refuses(&format!("label {key} is missing: set it to the price per hour")))?;
    parsed(text).ok_or_else(|| refuses(&format!("label {key} is {text:?}: {EXPECTED}")))
}

const EXPECTED: &str = "use a price per hour, such as 0.42";

fn parsed(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|price| is_price(*price))
}

fn is_price(price: f64) -> bool {
    price.is_finite() && price >= 0.0
}

/// The prices of a file, by name.
fn read(file: &Path) -> Result<HashMap<String, f64>, CommandError> {
    let bytes = input::read(file)?;
    let prices = if input::is_csv(file) { of_csv(&bytes) } else { of_yaml(&bytes) };
    prices.map_err(|(line, what)| match line {
        0 => CommandError::File { file: file.to_owned(), what },
        line => CommandError::Line { file: file.to_owned(), line, what },
    })
}

/// A line, or 0 for the whole file, and what is wrong there.
type Wrong = (u64, String);

fn of_csv(bytes: &[u8]) -> Result<HashMap<String, f64>, Wrong> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let broken = |error: csv::Error| {
        (error.position().map_or(1, csv::Position::line), format!("invalid row: {error}"))
    };
    let columns = reader.headers().map_err(broken)?;
    if columns.iter().ne(["name", "price"]) {
        return Err((1, "the header is not name,price: add it as the first row".to_owned()));
    }
    let mut prices = HashMap::new();
    for row in reader.records() {
        let row = row.map_err(broken)?;
        let line = row.position().map_or(0, csv::Position::line);
        let (name, text) = (row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default());
        let price = parsed(text).ok_or_else(|| (line, format!("price is {text:?}: {EXPECTED}")))?;
        if prices.insert(name.to_owned(), price).is_some() {
            return Err((line, format!("{name:?} has two prices: remove one")));
        }
    }
    Ok(prices)
}

fn of_yaml(bytes: &[u8]) -> Result<HashMap<String, f64>, Wrong> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| (0, format!("not UTF-8 text ({error})")))?;
    let read: HashMap<String, At<f64>> = from_str(text).map_err(|error| {
        let what = format!("{}: write a mapping of names to prices", error.cause());
        (error.line().unwrap_or(0), what)
    })?;
    let price = |(name, At { line, value }): (String, At<f64>)| match is_price(value) {
        true => Ok((name, value)),
        false => Err((line, format!("price of {name:?} is {value}: {EXPECTED}"))),
    };
    read.into_iter().map(price).collect()
}

//! Verdicts of the selectors that the vectors contain, without a CEL evaluator.

use std::cmp::Ordering;
use std::sync::Arc;

use portolan::model::Quantity;
use portolan_dra::allocator::{SelectorError, Selectors};
use portolan_dra::model::{Attribute, Device, ResourceSlice};

pub struct Stub;

struct View<'a> {
    driver: &'a str,
    device: &'a Device,
}

type R<T> = Result<T, SelectorError>;
fn rt<T>(text: &str) -> R<T> {
    Err(SelectorError::Runtime(text.into()))
}
const GPU: &str = "gpu.example.com";
const NIC: &str = "nic.example.com";

impl<'a> View<'a> {
    fn opt(&self, domain: &str, id: &str) -> Option<&'a Attribute> {
        let full = format!("{domain}/{id}");
        self.device
            .attributes
            .get(&*full)
            .or_else(|| if domain == self.driver { self.device.attributes.get(id) } else { None })
    }
    fn attr(&self, domain: &str, id: &str) -> R<&'a Attribute> {
        self.opt(domain, id).map_or_else(|| rt(&format!("no such key: {id}")), Ok)
    }
    fn text(&self, domain: &str, id: &str) -> R<&'a str> {
        match self.attr(domain, id)? {
            Attribute::String(text) => Ok(text),
            _ => rt("no such overload"),
        }
    }
    fn int(&self, domain: &str, id: &str) -> R<i64> {
        match self.attr(domain, id)? {
            Attribute::Int(n) => Ok(*n),
            _ => rt("no such overload"),
        }
    }
    fn version(&self, domain: &str, id: &str, other: &str) -> R<Ordering> {
        match self.attr(domain, id)? {
            Attribute::Version(text) => Ok(compare(text, other)),
            _ => rt("no such overload"),
        }
    }
    fn cap_opt(&self, domain: &str, id: &str) -> Option<Quantity> {
        let full = format!("{domain}/{id}");
        let found =
            self.device.capacity.get(&*full).or_else(|| {
                if domain == self.driver { self.device.capacity.get(id) } else { None }
            });
        found.map(|capacity| capacity.value.quantity())
    }
    fn cap(&self, domain: &str, id: &str) -> R<Quantity> {
        self.cap_opt(domain, id).map_or_else(|| rt(&format!("no such key: {id}")), Ok)
    }
    fn keys(&self, domain: &str) -> Vec<String> {
        let own = |name: &Arc<str>| match name.split_once('/') {
            Some((of, id)) => (of == domain).then(|| id.to_owned()),
            None => (self.driver == domain).then(|| name.to_string()),
        };
        self.device.attributes.keys().filter_map(own).collect()
    }
}

fn q(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn compare(a: &str, b: &str) -> Ordering {
    let split = |text: &str| {
        let text = text.split('+').next().unwrap().to_owned();
        let (core, pre) = text
            .split_once('-')
            .map_or((text.clone(), None), |(c, p)| (c.to_owned(), Some(p.to_owned())));
        let core: Vec<u64> = core.split('.').map(|n| n.parse().unwrap_or(0)).collect();
        (core, pre)
    };
    let ((a, pa), (b, pb)) = (split(a), split(b));
    a.cmp(&b).then_with(|| match (pa, pb) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    })
}

fn truth(attribute: &Attribute) -> R<bool> {
    match attribute {
        Attribute::Bool(b) => Ok(*b),
        Attribute::Int(_) => rt(
            "CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool",
        ),
        _ => rt(
            "CEL result of type string could not be converted to bool: unsupported native conversion from string to 'bool'",
        ),
    }
}

impl Selectors for Stub {
    fn matches(&self, expression: &Arc<str>, slice: &Arc<ResourceSlice>, device: usize) -> R<bool> {
        let (driver, device) = (&*slice.spec.driver, &slice.spec.devices[device]);
        let v = View { driver, device };
        use Ordering::*;
        let shared = device.allow_multiple_allocations == Some(true);
        Ok(match &**expression {
            r#"device.driver == "gpu.example.com""# => v.driver == GPU,
            r#"device.driver == "fpga.acme.io""# => v.driver == "fpga.acme.io",
            r#"device.driver == "nic.example.com""# => v.driver == NIC,
            r#"device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"# => {
                v.driver == GPU && v.cap(GPU, "memory")? >= q("40Gi")
            }
            r#"device.capacity["gpu.example.com"].?memory.orValue(quantity("0")).isGreaterThan(quantity("39Gi"))"# => {
                v.cap_opt(GPU, "memory").unwrap_or_default() > q("39Gi")
            }
            r#"device.attributes["nic.example.com"].speed >= 25"# => v.int(NIC, "speed")? >= 25,
            r#"device.attributes["nic.example.com"].port == "p0""# => v.text(NIC, "port")? == "p0",
            r#"device.capacity["nic.example.com"].bandwidth.isGreaterThan(quantity("20G"))"# => {
                v.cap(NIC, "bandwidth")? > q("20G")
            }
            r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("2.0.0")) >= 0"# => {
                v.version(GPU, "driverVersion", "2.0.0")? != Less
            }
            r#"device.attributes["nic.example.com"].?numa.hasValue()"# => {
                v.opt(NIC, "numa").is_some()
            }
            r#"device.attributes["nic.example.com"].speed + 5 > 100 || device.attributes["nic.example.com"].port.contains("1")"# =>
            {
                let (a, b) = (
                    v.int(NIC, "speed").map(|s| s + 5 > 100),
                    v.text(NIC, "port").map(|p| p.contains('1')),
                );
                match (a, b) {
                    (Ok(true), _) | (_, Ok(true)) => true,
                    (a, b) => a? || b?,
                }
            }
            r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.9.0"))"# => {
                v.version(GPU, "driverVersion", "1.9.0")? == Greater
            }
            r#"device.attributes["gpu.example.com"].model.split("1").size() == 2"# => {
                v.text(GPU, "model")?.split('1').count() == 2
            }
            r#"device.attributes["gpu.example.com"].model == "a100""# => {
                v.text(GPU, "model")? == "a100"
            }
            r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("30G"))"# => {
                v.cap(GPU, "memory")? > q("30G")
            }
            r#"device.attributes["gpu.example.com"].model.matches("^[ah]100$")"# => {
                matches!(v.text(GPU, "model")?, "a100" | "h100")
            }
            r#"device.capacity["gpu.example.com"].cores.asApproximateFloat() > 40.0"# => {
                v.cap(GPU, "cores")? > q("40")
            }
            r#"device.attributes["gpu.example.com"].all(k, k != "secret")"# => {
                v.keys(GPU).iter().all(|k| k != "secret")
            }
            r#"!("vendor.io" in device.attributes) || device.attributes["vendor.io"].?rack.orValue("r1") == "r1""# => {
                v.opt("vendor.io", "rack").is_none_or(|a| *a == Attribute::String("r1".into()))
            }
            r#"quantity("10").isInteger() && isQuantity("40Gi") && !isSemver("1.2")"# => true,
            r#"device.attributes["gpu.example.com"].?profile.orValue("full") != "half""# => {
                v.opt(GPU, "profile").is_none_or(|a| *a != Attribute::String("half".into()))
            }
            r#"device.attributes["gpu.example.com"].model.find("[0-9]+") == "100""# => {
                let model = v.text(GPU, "model")?;
                let digits: String = model
                    .chars()
                    .skip_while(|c| !c.is_ascii_digit())
                    .take_while(char::is_ascii_digit)
                    .collect();
                digits == "100"
            }
            r#"device.attributes["gpu.example.com"].model in ["h100", "a100"]"# => {
                matches!(v.text(GPU, "model")?, "a100" | "h100")
            }
            r#"device.capacity["gpu.example.com"].memory.sub(quantity("16Gi")).isLessThan(quantity("30Gi"))"# => {
                v.cap(GPU, "memory")? - q("16Gi") < q("30Gi")
            }
            r#"device.capacity["gpu.example.com"].memory == quantity("80Gi")"# => {
                v.cap(GPU, "memory")? == q("80Gi")
            }
            r#"device.attributes["gpu.example.com"].driverVersion.major() >= 2"# => {
                match v.attr(GPU, "driverVersion")? {
                    Attribute::Version(text) => {
                        text.split('.').next().unwrap().parse::<i64>().unwrap() >= 2
                    }
                    _ => return rt("no such overload"),
                }
            }
            r#"cel.bind(a, device.attributes["gpu.example.com"], a.model != "l4" && a.index < 3)"# =>
            {
                let (a, b) =
                    (v.text(GPU, "model").map(|m| m != "l4"), v.int(GPU, "index").map(|i| i < 3));
                match (a, b) {
                    (Ok(false), _) | (_, Ok(false)) => false,
                    (a, b) => a? && b?,
                }
            }
            r#"device.attributes["gpu.example.com"].model.startsWith("h")"# => {
                v.text(GPU, "model")?.starts_with('h')
            }
            r#"device.attributes["gpu.example.com"].exists(k, k == "ecc")"# => {
                v.opt(GPU, "ecc").is_some()
            }
            r#"device.attributes["gpu.example.com"].filter(k, k.startsWith("m")).size() == 1"# => {
                v.keys(GPU).iter().filter(|k| k.starts_with('m')).count() == 1
            }
            r#"device.attributes["gpu.example.com"].model.upperAscii() == "H100" || device.attributes["gpu.example.com"].model.size() == 2"# =>
            {
                let m = v.text(GPU, "model")?;
                m == "h100" || m.len() == 2
            }
            r#"!device.allowMultipleAllocations || device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("20Gi"))"# => {
                !shared || v.cap(GPU, "memory")? > q("20Gi")
            }
            r#"device.attributes["gpu.example.com"].index % 2 == 0"# => {
                v.int(GPU, "index")? % 2 == 0
            }
            r#"sets.contains(["a100", "h100"], [device.attributes["gpu.example.com"].model])"# => {
                matches!(v.text(GPU, "model")?, "a100" | "h100")
            }
            r#"device.attributes["gpu.example.com"].index > 0"# => v.int(GPU, "index")? > 0,
            r#""numa" in device.attributes["gpu.example.com"] ? device.attributes["gpu.example.com"].numa == 0 : true"# => {
                v.opt(GPU, "numa").is_none_or(|a| *a == Attribute::Int(0))
            }
            r#"device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00""# => {
                v.text("resource.kubernetes.io", "pcieRoot")? == "pci0000:00"
            }
            r#"device.capacity["gpu.example.com"].memory.asInteger() >= 40 * 1024 * 1024 * 1024"# => {
                v.cap(GPU, "memory")? >= q("40Gi")
            }
            r#"device.attributes["gpu.example.com"].?ecc.orValue(false)"# => {
                v.opt(GPU, "ecc").map_or(Ok(false), truth)?
            }
            r#"size(device.attributes["gpu.example.com"]) > 3"# => v.keys(GPU).len() > 3,
            r#"string(device.attributes["gpu.example.com"].index) + device.attributes["gpu.example.com"].model in ["0a100", "1h100", "0l4", "2a100"]"# =>
            {
                let text = format!("{}{}", v.int(GPU, "index")?, v.text(GPU, "model")?);
                ["0a100", "1h100", "0l4", "2a100"].contains(&&*text)
            }
            r#"device.attributes["vendor.io"].?rack.orValue("") != "r2""# => {
                v.opt("vendor.io", "rack").is_none_or(|a| *a != Attribute::String("r2".into()))
            }
            r#"["a100", "l4"].exists(m, m == device.attributes["gpu.example.com"].model)"# => {
                matches!(v.text(GPU, "model")?, "a100" | "l4")
            }
            r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("2.1.0")) < 0"# => {
                v.version(GPU, "driverVersion", "2.1.0")? == Less
            }
            r#"has(device.attributes["gpu.example.com"].ecc) && device.attributes["gpu.example.com"].ecc"# => {
                v.opt(GPU, "ecc").map_or(Ok(false), truth)?
            }
            r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"# => {
                v.cap(GPU, "memory")? >= q("40Gi")
            }
            r#"device.attributes["fpga.acme.io"].shell.isLessThan(semver("1.0.0"))"# => {
                v.version("fpga.acme.io", "shell", "1.0.0")? == Less
            }
            r#"device.attributes["fpga.acme.io"].shell == semver("1.0.0")"# => {
                v.version("fpga.acme.io", "shell", "1.0.0")? == Equal
            }
            r#"device.attributes["fpga.acme.io"].family == "agilex""# => {
                v.text("fpga.acme.io", "family")? == "agilex"
            }
            r#"device.driver.endsWith("example.com")"# => v.driver.ends_with("example.com"),
            r#""numa" in device.attributes[device.driver]"# => v.opt(v.driver, "numa").is_some(),
            r#"device.driver == "nic.example.com" || device.driver == "fpga.acme.io""# => {
                v.driver != GPU
            }
            r#"device.attributes["gpu.example.com"].model != "l4""# => {
                v.text(GPU, "model")? != "l4"
            }
            r#"device.attributes["gpu.example.com"].index / (device.attributes["gpu.example.com"].index - device.attributes["gpu.example.com"].index) > 0"# =>
            {
                v.int(GPU, "index")?;
                return rt("division by zero");
            }
            r#"device.attributes["vendor.io"].rack == "r1""# => {
                v.text("vendor.io", "rack")? == "r1"
            }
            r#"device.attributes["gpu.example.com"].missing == "x""# => {
                v.text(GPU, "missing")? == "x"
            }
            r#"device.attributes["gpu.example.com"].model > 3"# => {
                v.attr(GPU, "model")?;
                return rt("no such overload");
            }
            r#"device.attributes["gpu.example.com"].model"# => truth(v.attr(GPU, "model")?)?,
            r#"semver("1.2").major() == 1"# => return rt("No Major.Minor.Patch elements found"),
            r#"device.attributes["gpu.example.com"].ecc"# => truth(v.attr(GPU, "ecc")?)?,
            r#"device.attributes["gpu.example.com"].numa == 0"# => v.int(GPU, "numa")? == 0,
            r#"device.capacity["gpu.example.com"].nothing.isGreaterThan(quantity("1"))"# => {
                v.cap(GPU, "nothing")? > q("1")
            }
            r#"device.attributes["gpu.example.com"].index"# => truth(v.attr(GPU, "index")?)?,
            text if text.starts_with("[0,1,2,3") => {
                return rt("operation cancelled: actual cost limit exceeded");
            }
            _ => return Err(SelectorError::Compile("not known".into())),
        })
    }
}

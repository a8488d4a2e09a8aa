//! The metrics of client_golang's process collector on Linux (`process_collector_procfsenabled.go`).
//!
//! A file that cannot be read or understood leaves its metrics out. The files are read with the standard library:
//! crates for `/proc` are much larger than the few fields that are needed.

use std::fmt::Error;
use std::fs::{read_dir, read_to_string};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The unit of processor times in `/proc`, which is the same on all of Linux' architectures that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the figures of this process at each scrape.
#[derive(Debug)]
pub(super) struct Process;

/// The fields of `/proc/self/stat` that are exported.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// Since the machine was booted.
    start_seconds: f64,
    virtual_memory: f64,
}

impl Stat {
    fn read(text: &str) -> Option<Stat> {
        // The name of the program, in parentheses, may contain spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first of these fields is the third of proc(5).
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            start_seconds: field(22)? / TICKS_PER_SECOND,
            virtual_memory: field(23)?,
        })
    }
}

/// Returns the first number of the line that begins with `name`.
fn number(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the soft limit with this name in `/proc/self/limits`. No limit is the largest number, as in client_golang.
fn limit(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// Returns a field of the group `IpExt` in `/proc/self/net/netstat`, whose first line names its fields.
fn octets(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut fields = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    fields.find(|(field, _)| *field == name)?.1.parse().ok()
}

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn write(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> Result<(), Error> {
        let encoder = self.0.encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(encoder)
    }

    /// Writes a counter, whose name gets the suffix `_total`.
    fn counter(&mut self, name: &str, help: &str, value: Option<f64>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.write(name, help, &ConstCounter::new(value)))
    }

    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.write(name, help, &ConstGauge::new(value)))
    }
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let mut writer = Writer(encoder);
        let stat = Stat::read(&read("/proc/self/stat"));
        let cpu = stat.as_ref().map(|stat| stat.cpu_seconds);
        writer.counter(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds.",
            cpu,
        )?;
        let limits = read("/proc/self/limits");
        writer.gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            limit(&limits, "Max open files"),
        )?;
        let netstat = read("/proc/self/net/netstat");
        writer.counter(
            "process_network_receive_bytes",
            "Number of bytes received by the process over the network.",
            octets(&netstat, "InOctets"),
        )?;
        writer.counter(
            "process_network_transmit_bytes",
            "Number of bytes sent by the process over the network.",
            octets(&netstat, "OutOctets"),
        )?;
        // The directory that is being read is open, too.
        let open = read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as f64);
        writer.gauge("process_open_fds", "Number of open file descriptors.", open)?;
        let kibibytes = number(&read("/proc/self/status"), "VmRSS:");
        writer.gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            kibibytes.map(|kibibytes| kibibytes * 1024.0),
        )?;
        let booted = number(&read("/proc/stat"), "btime ");
        writer.gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            booted.zip(stat.as_ref()).map(|(booted, stat)| booted + stat.start_seconds),
        )?;
        let size = stat.as_ref().map(|stat| stat.virtual_memory);
        writer.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", size)?;
        writer.gauge(
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            limit(&limits, "Max address space"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::metrics::encode_classic;
    use prometheus_client::registry::Registry;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_process_has_the_metrics_of_client_golang() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let text = encode_classic(&registry);
        let value = |name: &str, kind: &str| {
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} in {text}");
            number(&text, &format!("{name} ")).unwrap_or_else(|| panic!("{name} in {text}"))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let start = value("process_start_time_seconds", "gauge");
        assert!(start <= now + 2.0 && start > now - 86_400.0, "{start}, now {now}");
        let resident = value("process_resident_memory_bytes", "gauge");
        assert!(resident > 1e6 && resident <= value("process_virtual_memory_bytes", "gauge"));
        let open = value("process_open_fds", "gauge");
        assert!(open >= 3.0 && open <= value("process_max_fds", "gauge"), "{open}");
        assert!(value("process_virtual_memory_max_bytes", "gauge") > resident);
        assert!(value("process_cpu_seconds_total", "counter") < 86_400.0);
        assert!(value("process_network_receive_bytes_total", "counter") >= 0.0);
        assert!(value("process_network_transmit_bytes_total", "counter") >= 0.0);
    }

    #[test]
    fn a_program_with_a_strange_name_is_understood_and_a_cut_file_is_left_out() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 6 7 20 0 9 0 12345 4096 77 0\n";
        let read = Stat { cpu_seconds: 3.0, start_seconds: 123.45, virtual_memory: 4096.0 };
        assert_eq!(Stat::read(stat), Some(read));
        assert_eq!(Stat::read("7 (a) S 1 7"), None);
        assert_eq!(Stat::read(""), None);
        let limits = "Max open files            1024                 4096  files\nMax address space         unlimited";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(u64::MAX as f64));
        assert_eq!(limit(limits, "Max locks"), None);
        let netstat =
            "TcpExt: InOctets\nTcpExt: 1\nIpExt: InPkts InOctets OutOctets\nIpExt: 1 20 300\n";
        assert_eq!(octets(netstat, "OutOctets"), Some(300.0));
        assert_eq!(octets("IpExt: InOctets", "InOctets"), None);
    }
}

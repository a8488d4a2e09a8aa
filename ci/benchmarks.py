"""Runs the benchmarks of ci/benchmarks.sh and writes their tables into docs/benchmarks.md.

`--executable NAME` prints the path of a program that cargo has built, from the JSON on standard input.
`--self-test` checks formats without measuring.
"""

import argparse
import datetime
import json
import mmap
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

import cluster

DOCUMENT = pathlib.Path("docs/benchmarks.md")
QUICK = pathlib.Path("target/benchmarks.md")
SHAPES = "basic,distinct,nodeaffinity,spread,prefspread,affinity,antiaffinity,prefaffinity,gang,preemption"
NOWHERE = "nofit-resources,nofit-taints,nofit-antiaffinity"


def executable(lines, name):
    """Returns the path of an executable in cargo's messages."""
    for line in lines:
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    raise SystemExit(f"cargo built no executable called {name}")


def digits(value):
    """Formats a number with three significant digits, at most two decimals, and separators."""
    if value is None:
        return "-"
    value = float(value)
    size = len(str(int(abs(value))))
    if size > 3:
        return f"{round(value, 3 - size):,.0f}"
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table(header, rows):
    """Returns a Markdown table, the numbers to the right."""
    rule = ["---"] + ["---:" if column not in ("figure", "command", "value") else "---" for column in header[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def busy():
    """Returns the part of the processors' time that was used during five seconds."""
    def times():
        for line in read("/proc/stat"):
            numbers = [int(number) for number in line.split()[1:]]
            return sum(numbers), numbers[3] + numbers[4]
        return 0, 0

    total, idle = times()
    time.sleep(5)
    all_total, all_idle = times()
    spent = all_total - total
    return f"{100 - 100 * (all_idle - idle) / spent:.0f} %" if spent else "unknown"


def machine(quick, revision):
    """Returns rows about the machine and the build."""
    cpu = platform.processor() or platform.machine()
    memory = "unknown"
    for line in read("/proc/cpuinfo"):
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    for line in read("/proc/meminfo"):
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / 2**20:.1f} GiB"
    rows = [
        ["processor", cpu],
        ["cores", str(os.cpu_count())],
        ["memory", memory],
        ["system", f"{platform.system()} {platform.release()}"],
        ["processors in use at the start", busy()],
        ["date", datetime.date.today().isoformat()],
        ["revision", revision],
        ["build", "release" if quick else "release, thin link-time optimization"],
        ["compiler", output(["rustc", "--version"]).strip()],
    ]
    return table(["machine", "value"], rows)


def read(path):
    """Returns the lines of a file, or none if it does not exist."""
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def output(command):
    """Runs a command and returns its output; a failure ends the program."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"failed with {done.returncode}: {' '.join(command)}")
    return done.stdout


class Runner:
    """Runs the program."""

    def __init__(self, program, quick):
        self.program, self.quick = program, quick
        self.repeat = 3 if quick else 7
        self.size = ["--nodes", "300", "--init", "100", "--pods", "150"] if quick else []

    def run(self, arguments):
        print("  portolan", *arguments, file=sys.stderr, flush=True)
        return [json.loads(line) for line in output([self.program, *arguments, "--output", "json"]).splitlines()]

    def sched(self, *arguments):
        """Returns one result per row of perf sched, and the command as people type it."""
        command = ["perf", "sched", *self.size, "--repeat", str(self.repeat), *arguments]
        return self.run(command), "portolan " + " ".join(command)


def rates(results, label):
    """Returns rows with the rates and times of perf sched."""
    rows = []
    for of in results:
        cycle = of.get("cycle_us") or {}
        name = label(of)
        figures = [of["min"], of["cycles_per_second"], of["max"]]
        figures += [cycle.get(key) for key in ("p50", "p99", "max", "max_to_p50")]
        wrong = of["overcommitted"]
        if wrong:
            raise SystemExit(f"{name}: {wrong} nodes are overcommitted")
        rows.append([name, *map(digits, figures), str(of["failed"])])
    return rows


RATES = ["figure", "min/s", "median/s", "max/s", "p50 µs", "p99 µs", "max µs", "max/p50", "failed"]


def scheduling(runner):
    """Returns the tables of perf sched."""
    parts = []

    def add(title, runs):
        rows, commands = [], []
        for prefix, arguments in runs:
            results, command = runner.sched(*arguments)
            rows += rates(results, lambda of: prefix + of["workload"])
            commands.append(f"`{command}`")
        parts.append(f"{title}\n\n{table(RATES, rows)}\n\nCommands: {', '.join(commands)}.")

    add("One scheduler, pods one by one:", [("", ["--workload", SHAPES])])
    add(
        "Other ways to schedule:",
        [
            ("batches of 64: ", ["--workload", "basic,distinct,affinity", "--batch", "64"]),
            ("queue and binding in memory: ", ["--queue"]),
            ("a thread of its own applies events: ", ["--spawned"]),
            ("all nodes evaluated: ", ["--percentage-of-nodes", "100"]),
            ("100,000 nodes: ", ["--workload", "basic,distinct"] + ([] if runner.quick else ["--nodes", "100000"])),
        ],
    )
    # The attempts of these are not limited by the nodes.
    add("Pods that fit nowhere, each attempt after an event:", [("", ["--workload", NOWHERE])])
    return "\n\n".join(parts)


def sharing(runner):
    """Returns the table of one scheduler, two schedulers on one engine, and two processes."""

    def span(ratio):
        return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"

    rows, commands = [], []
    for prefix, more in [("", []), ("batches of 64: ", ["--batch", "64"])]:
        arguments = ["--workload", "basic,distinct,affinity", "--schedulers", "1,2", "--processes", "2", *more]
        results, command = runner.sched(*arguments)
        commands.append(f"`{command}`")
        for one, two, processes in zip(results[::3], results[1::3], results[2::3]):
            rates = [digits(of["cycles_per_second"]) for of in (one, two, processes)]
            ratios = [span(two[key]["ratio"]) for key in ("compared_with", "compared_with_processes")]
            rows.append([prefix + one["workload"], *rates, *ratios, digits(two["conflicts"])])
    header = ["figure", "one/s", "two/s", "two processes/s", "two to one", "two to processes", "conflicts"]
    return f"{table(header, rows)}\n\nCommands: {', '.join(commands)}."


def distribution(prefix, value):
    """Yields the measurements below a JSON value that have percentiles."""
    if isinstance(value, dict) and {"p50", "p99", "max"} <= value.keys():
        yield prefix, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from distribution(f"{prefix}, {key}" if prefix else key, inner)


def cache(runner):
    """Returns the tables of perf cache."""
    arguments = ["perf", "cache", "--nodes", "300" if runner.quick else "5000"]
    result = runner.run(arguments)[0]
    rows, single = [], []
    for name, of in distribution("", result):
        unit = "ns" if name.endswith("_ns") else "µs"
        name = name.removesuffix("_us").removesuffix("_ns").replace("_", " ")
        rows.append([f"{name} ({unit})", *(digits(of[key]) for key in ("p50", "p99", "max"))])
    for key, unit in [
        ("bytes_per_pod", "bytes"),
        ("bytes_per_pod_of_live_index", "bytes"),
        ("bytes_per_node", "bytes"),
        ("load_s", "s"),
        ("longest_step_ms", "ms"),
        ("peak_rss_bytes", "bytes"),
    ]:
        single.append([re.sub("_(s|ms|bytes)$", "", key).replace("_", " "), f"{digits(result[key])} {unit}"])
    command = "portolan " + " ".join(arguments)
    return "\n\n".join(
        [table(["figure", "p50", "p99", "max"], rows), table(["figure", "value"], single), f"Command: `{command}`."]
    )


def noise(runner):
    """Returns the table of the program compared with itself, in alternating runs."""
    turns = 3 if runner.quick else 9
    sched = ["perf", "sched", *runner.size]
    cached = ["perf", "cache", "--nodes", "300" if runner.quick else "5000"]
    kinds = [
        ("cycles/s, basic", sched, lambda of: of["cycles_per_second"]),
        ("assume a pod and publish, p50", cached, lambda of: of["assume_publish_us"]["p50"]),
    ]
    print("  pauses", file=sys.stderr, flush=True)
    longest, long, seconds = pauses(0.5 if runner.quick else 10)
    rows = []
    for name, command, figure in kinds:
        pairs = []
        for turn in range(turns):
            first, second = (figure(runner.run(command)[0]) for _ in range(2))
            pairs.append(first / second if turn % 2 == 0 else second / first)
        command = "portolan " + " ".join(command)
        rows.append([name, f"{median(pairs):.3f}", f"{min(pairs):.3f}", f"{max(pairs):.3f}", f"`{command}`"])
    idle = (
        f"A thread that only read the clock was interrupted for more than 100 µs {long} times in {seconds:g} s, at most "
        f"for {digits(longest)} µs."
    )
    if first := first_uses(64):
        idle += (
            f" The kernel provided 2 MiB of memory, when it was first used, in {digits(median(first))} µs (median of "
            f"{len(first)}) and at most {digits(max(first))} µs."
        )
    idle += " The longest cycles below contain such pauses."
    return table(["the program relative to itself", "median", "min", "max", "command"], rows) + "\n\n" + idle


def pauses(seconds):
    """Reads the clock for a time. Returns the longest pause in microseconds, the number of pauses of more than 100, and
    the time."""
    longest, long = 0, 0
    last = time.perf_counter_ns()
    end = last + int(seconds * 1e9)
    while last < end:
        now = time.perf_counter_ns()
        if now - last > longest:
            longest = now - last
        if now - last > 100_000:
            long += 1
        last = now
    return longest / 1000, long, seconds


def first_uses(pages):
    """Uses new huge pages. Returns how long the kernel took to provide each, in microseconds, or an empty list where
    huge pages cannot be requested."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return []
    size = 2 << 20
    times = []
    with mmap.mmap(-1, pages * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return []
        for page in range(pages):
            start = time.perf_counter_ns()
            memory[page * size] = 1
            times.append((time.perf_counter_ns() - start) / 1000)
    return times


def program(runner):
    """Returns the table of whole runs of the program, from start to exit, on clusters that ci/cluster.py prints."""
    scale = 50 if runner.quick else 1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for nodes, pods, questions in [
            (15_000, 39_000, ["explain --pod d/huge", "what-if --drain n0"]),
            (15_000, 150_000, ["explain --pod d/huge", "what-if --drain n0"]),
            (1_000, 30_000, ["what-if --consolidate"]),
        ]:
            nodes, pods = nodes // scale, pods // scale
            file = pathlib.Path(folder) / "cluster.json"
            with file.open("w") as out:
                cluster.write(out, nodes, pods, pending=["31"])
            size = f"{nodes:,} nodes, {pods:,} pods, {file.stat().st_size / 1e6:.0f} MB"
            for question in questions:
                command, *options = question.split()
                print("  portolan", question, file=sys.stderr, flush=True)
                times = []
                for _ in range(runner.repeat):
                    start = time.monotonic()
                    output([runner.program, command, "--cluster", str(file), *options, "--output", "json"])
                    times.append(time.monotonic() - start)
                figures = [min(times), median(times), max(times)]
                rows.append([size, *map(digits, figures), f"`portolan {command} -f cluster.json {' '.join(options)}`"])
    made = "The files are printed by `python3 ci/cluster.py NODES PODS 31`."
    return table(["cluster", "min s", "median s", "max s", "command"], rows) + f"\n\n{made}"


def rivals(program, quick):
    """Returns the tables of benches/rivals.rs."""
    print("  rivals", file=sys.stderr, flush=True)
    text = output([program, "--quick"] if quick else [program]).strip()
    return f"{text}\n\nCommand: `cargo bench --bench rivals`."


def write(text, sections):
    """Replaces the text between the markers of each section; every marker must have a section, and the reverse."""
    left = dict(sections)

    def replace(match):
        name = match[1]
        if name not in left:
            raise SystemExit(f"{DOCUMENT}: nothing is measured for the section {name}")
        return f"<!-- begin {name} -->\n\n{left.pop(name)}\n\n<!-- end {name} -->"

    text = re.sub(r"<!-- begin ([\w-]+) -->\n.*?<!-- end \1 -->", replace, text, flags=re.DOTALL)
    if left:
        raise SystemExit(f"{DOCUMENT}: no markers for {', '.join(left)}")
    return text


def self_test():
    """Checks formats and the replacement of sections."""
    numbers = [(None, "-"), (0, "0"), (1.234, "1.23"), (9.999, "10"), (52.26, "52.3"), (120.4, "120")]
    numbers += [(100, "100"), (234567, "235,000"), (1234, "1,230"), (0.5, "0.5")]
    for value, expected in numbers:
        assert digits(value) == expected, (value, digits(value))
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"
    once = write(text, {"x": "new\\1", "y": "other"})
    assert once == (
        "a\n<!-- begin x -->\n\nnew\\1\n\n<!-- end x -->\nb\n<!-- begin y -->\n\nother\n\n<!-- end y -->\n"
    ), once
    assert write(once, {"x": "new\\1", "y": "other"}) == once
    for sections in [{"x": "1"}, {"x": "1", "y": "2", "z": "3"}]:
        try:
            write(text, sections)
        except SystemExit:
            continue
        raise AssertionError(f"accepted {sections}")
    assert table(["figure", "p50"], [["a", "1"]]) == "| figure | p50 |\n| --- | ---: |\n| a | 1 |"
    assert median([3, 1, 2]) == 2 and median([4, 1, 2, 3]) == 2.5
    found = dict(distribution("", {"a_us": {"p50": 1, "p99": 2, "max": 3}, "b": {"c": {"p50": 1}}, "d": 1}))
    assert list(found) == ["a_us"], found
    lines = ['{"reason": "x"}', '{"executable": "/t/a-1", "target": {"name": "a"}}']
    assert executable(lines, "a") == "/t/a-1"
    write(DOCUMENT.read_text(), dict.fromkeys(SECTIONS, ""))


SECTIONS = ["machine", "noise", "scheduling", "sharing", "cache", "program", "rivals"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--executable", metavar="NAME")
    parser.add_argument("--program")
    parser.add_argument("--rivals")
    arguments = parser.parse_args()
    if arguments.executable:
        print(executable(sys.stdin, arguments.executable))
        return
    self_test()
    if arguments.self_test:
        return
    revision = output(["git", "describe", "--always", "--dirty"]).strip()
    # Before anything is measured, because it states how busy the machine is.
    found = {"machine": machine(arguments.quick, revision)}
    runner = Runner(arguments.program, arguments.quick)
    found["noise"] = noise(runner)
    found["scheduling"] = scheduling(runner)
    found["sharing"] = sharing(runner)
    found["cache"] = cache(runner)
    found["program"] = program(runner)
    found["rivals"] = rivals(arguments.rivals, arguments.quick)
    target = QUICK if arguments.quick else DOCUMENT
    target.parent.mkdir(exist_ok=True)
    target.write_text(write(DOCUMENT.read_text(), found))
    print(f"wrote {target}")


if __name__ == "__main__":
    main()

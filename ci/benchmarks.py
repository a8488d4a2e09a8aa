"""Runs the benchmarks of ci/benchmarks.sh, and writes their tables into docs/benchmarks.md and docs/throughput.svg.

`--executable NAME` prints the path of a program that cargo has built, from the JSON on standard input.
`--self-test` checks formats without measuring.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
import time

import cluster

DOCUMENT = pathlib.Path("docs/benchmarks.md")
CHART = pathlib.Path("docs/throughput.svg")
QUICK = pathlib.Path("target")
SHAPES = "basic,distinct,nodeaffinity,spread,prefspread,affinity,antiaffinity,prefaffinity,gang,preemption"
# Cycles per second of kube-scheduler 1.36.2 in memory, without an API server, on a machine of the same kind.
KUBE_SCHEDULER = {
    "basic": 935, "distinct": 916, "nodeaffinity": 628, "spread": 468, "prefspread": 561, "affinity": 202,
    "antiaffinity": 290, "prefaffinity": 342,
}  # fmt: skip
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
    rule = "|---|" + "".join("---|" if column in ("figure", "command") else "---:|" for column in header[1:])
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], rule, *lines[1:]])


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
    """Returns a sentence about the machine and the build."""
    cpu = platform.processor() or platform.machine()
    memory = "unknown memory"
    for line in read("/proc/cpuinfo"):
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    for line in read("/proc/meminfo"):
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / 2**20:.1f} GiB"
    compiler = output(["rustc", "--version"]).split(" (")[0].strip()
    build = "release" if quick else "release with thin link-time optimization"
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory}; {platform.system()} {platform.release().split('-')[0]}; {compiler}; "
        f"{build}; revision {revision}, {datetime.date.today().isoformat()}; {busy()} of the processors in use at the start."
    )


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
    """Runs the program and its measurements."""

    def __init__(self, program, bench, quick):
        self.program, self.bench, self.quick = program, bench, quick
        self.repeat = 3 if quick else 7
        self.size = ["--nodes", "300", "--init", "100", "--pods", "150"] if quick else []

    def run(self, arguments):
        print("  portolan-bench", *arguments, file=sys.stderr, flush=True)
        return [json.loads(line) for line in output([self.bench, *arguments, "--output", "json"]).splitlines()]

    def sched(self, *arguments):
        """Returns one result per row of sched, and the command as people type it."""
        command = ["sched", *self.size, "--repeat", str(self.repeat), *arguments]
        return self.run(command), "portolan-bench " + " ".join(command)


def rates(results, options):
    """Returns rows with the rates and times of sched."""
    rows = []
    for of in results:
        name = of["workload"].split(",")[0]
        if of["overcommitted"]:
            raise SystemExit(f"{name}: {of['overcommitted']} nodes are overcommitted")
        cycle = of.get("cycle_us") or {}
        span = f"{digits(of['min'])}–{digits(of['max'])}"
        named = f"{name}, `{options}`" if options else name
        rows.append([named, digits(of["cycles_per_second"]), span, *(digits(cycle.get(key)) for key in ("p50", "p99"))])
    return rows


def scheduling(runner):
    """Returns the table of sched, and the rates of its workloads."""
    rows, measured = [], {}
    for workloads, options in [
        (f"{SHAPES},{NOWHERE}", ""),
        ("basic,distinct", "--batch 64"),
        ("basic", "--queue"),
        ("basic", "--percentage-of-nodes 100"),
        ("basic,distinct", "" if runner.quick else "--nodes 100000"),
    ]:
        results, _ = runner.sched("--workload", workloads, *options.split())
        rows += rates(results, options)
        measured = measured or {of["workload"]: of["cycles_per_second"] for of in results}
    header = ["workload", "cycles/s", "min to max", "p50 µs", "p99 µs"]
    command = f"`portolan-bench sched --repeat {runner.repeat} --workload NAME` with the options of the row"
    return f"{table(header, rows)}\n\nCommand: {command}.", measured


LABELS = {
    "basic": "basic", "nodeaffinity": "node affinity", "spread": "topology spread", "prefspread": "spread, preferred",
    "affinity": "pod affinity", "antiaffinity": "pod anti-affinity", "prefaffinity": "affinity, preferred",
    "distinct": "distinct pods",
}  # fmt: skip


def chart(measured):
    """Returns an SVG with the rates of both schedulers."""
    widest, bars, described, y = max(measured.values()), [], [], 60
    for name, label in LABELS.items():
        ours, theirs = measured[name], KUBE_SCHEDULER[name]
        long, short = (max(500 * rate / widest, 0.5) for rate in (ours, theirs))
        bars += [
            f'  <text class="label" x="140" y="{y + 17}">{label}</text>',
            f'  <rect class="ours" x="150" y="{y}" width="{long:.1f}" height="14"/>'
            f'<text x="{157 + long:.1f}" y="{y + 12}">{digits(ours)}</text>',
            f'  <rect class="theirs" x="150" y="{y + 16}" width="{short:.1f}" height="10"/>'
            f'<text class="small" x="{157 + short:.1f}" y="{y + 26}">{digits(theirs)}</text>',
        ]
        described.append(f"{label}: portolan {digits(ours)}, kube-scheduler {digits(theirs)}")
        y += 38
    return SVG.format(described="; ".join(described), bars="\n".join(bars), end=y - 2, foot=y + 18, height=y + 26)


SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img" aria-labelledby="title description"
     font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">
  <title id="title">Scheduling cycles per second at 5,000 nodes</title>
  <desc id="description">{described}.</desc>
  <style>
    .ours {{ fill: #3b6fb6; }}
    .theirs {{ fill: #c2571a; }}
    .axis {{ stroke: #8a97a8; stroke-width: 1; }}
    text {{ fill: #14263f; font-size: 13px; }}
    .title {{ font-size: 15px; font-weight: 600; }}
    .label {{ text-anchor: end; }}
    .small {{ fill: #4a5a70; font-size: 12px; }}
    @media (prefers-color-scheme: dark) {{
      .ours {{ fill: #6ea3ea; }}
      .theirs {{ fill: #f0955a; }}
      text {{ fill: #e8eef7; }}
      .small {{ fill: #aab8cb; }}
    }}
  </style>
  <text class="title" x="10" y="20">Scheduling cycles per second, 5,000 nodes, one scheduler</text>
  <rect class="ours" x="150" y="33" width="12" height="12"/><text x="168" y="44">portolan</text>
  <rect class="theirs" x="250" y="33" width="12" height="12"/><text x="268" y="44">kube-scheduler 1.36.2</text>

{bars}

  <path class="axis" d="M150 56V{end}"/>
  <text class="small" x="150" y="{foot}">In memory, without an API server, on two cores. Linear scale.</text>
</svg>
"""


def sharing(runner):
    """Returns the table of one scheduler, two schedulers on one engine, and two processes."""

    def span(ratio):
        return f"{ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})"

    rows, commands = [], []
    for prefix, more in [("", []), ("batches of 64: ", ["--batch", "64"])]:
        arguments = ["--workload", "basic,distinct,affinity", "--schedulers", "1,2", "--processes", "2", *more]
        results, command = runner.sched(*arguments)
        commands.append(f"`{command}`")
        for one, two in zip(results[::3], results[1::3]):
            rates = [digits(of["cycles_per_second"]) for of in (one, two)]
            ratios = [span(two[key]["ratio"]) for key in ("compared_with", "compared_with_processes")]
            rows.append([prefix + one["workload"], *rates, *ratios])
    header = ["workload", "one, cycles/s", "two, cycles/s", "two to one", "two to two processes"]
    return f"{table(header, rows)}\n\nCommand: {commands[0]}, and the same with `--batch 64`."


CACHED = {
    "assume_publish_us": "assume a pod and publish, µs",
    "add_pod_us": "add a pod, one publish per 100, µs",
    "node_update_publish_us": "change a node and publish, µs",
    "node_relist_us": "relist all nodes, none changed, µs",
    "fork_us": "fork, add a pod, drop the fork, µs",
    "pin_ns": "pin a version, ns",
    "pin_busy_ns": "pin a version beside a writer that publishes without pause, ns",
}
WHOLE = [("bytes_per_pod", "memory per pod, bytes"), ("bytes_per_node", "memory per node, bytes"), ("load_s", "load, s")]


def cache(runner):
    """Returns the table of cache."""
    arguments = ["cache", "--nodes", "300" if runner.quick else "5000"]
    result = runner.run(arguments)[0]
    rows = [[label, digits(result[key]["p50"]), digits(result[key]["p99"])] for key, label in CACHED.items()]
    rows += [[label, digits(result[key]), ""] for key, label in WHOLE]
    return f"{table(['figure', 'p50', 'p99'], rows)}\n\nCommand: `portolan-bench {' '.join(arguments)}`."


def drains(runner):
    """Returns the table of drains."""
    size = ["--nodes", "300", "--candidates", "20"] if runner.quick else []
    arguments = ["drains", *size, "--repeat", str(runner.repeat)]
    rows = []
    for of in runner.run(arguments):
        span = f"{digits(of['min'])}–{digits(of['max'])}"
        rows.append([str(of["threads"]), digits(of["seconds"]), span, f"{of['speedup']:.2f}"])
    rows = table(["threads", "s", "min to max", "speed-up"], rows)
    return f"{rows}\n\nCommand: `portolan-bench {' '.join(arguments)}`."


def noise(runner):
    """Returns the table of the program compared with itself, in alternating runs."""
    turns = 3 if runner.quick else 9
    sched = ["sched", *runner.size]
    cached = ["cache", "--nodes", "300" if runner.quick else "5000"]
    kinds = [
        ("cycles/s, basic", sched, lambda of: of["cycles_per_second"]),
        ("assume a pod and publish, p50", cached, lambda of: of["assume_publish_us"]["p50"]),
    ]
    rows = []
    for name, command, figure in kinds:
        pairs = []
        for turn in range(turns):
            first, second = (figure(runner.run(command)[0]) for _ in range(2))
            pairs.append(first / second if turn % 2 == 0 else second / first)
        command = "portolan-bench " + " ".join(command)
        rows.append([name, f"{median(pairs):.2f}", f"{min(pairs):.2f}–{max(pairs):.2f}", f"`{command}`"])
    return table(["the program relative to itself", "median", "min to max", "command"], rows)


def program(runner):
    """Returns the table of whole runs of the program, from start to exit, on clusters that ci/cluster.py prints."""
    scale = 50 if runner.quick else 1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for nodes, pods, questions in [
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
                span = f"{digits(min(times))}–{digits(max(times))}"
                rows.append([size, f"`{command} {' '.join(options)}`", digits(median(times)), span])
    made = "`python3 ci/cluster.py NODES PODS 31 > cluster.json` prints the files; `-f cluster.json` is left out above."
    return table(["cluster", "command", "s", "min to max"], rows) + f"\n\n{made}"


def rivals(program, quick):
    """Returns the table of benches/rivals.rs."""
    print("  rivals", file=sys.stderr, flush=True)
    return beside(output([program, "--quick"] if quick else [program])) + "\n\nCommand: `cargo bench --bench rivals`."


def beside(text):
    """Returns one table of the tables that benches/rivals.rs prints: a median and a ratio in each cell."""
    header, rows = ["relative to portolan"], {}
    for block in text.strip().split("\n\n"):
        head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        what, nodes = head[0].rsplit(", ", 1)
        # Taking a state is measured at both sizes; the first shows what grows.
        if what == "take a state" and any(column.startswith(what) for column in header):
            continue
        header.append(f"{what}, {int(nodes.split()[0]):,} nodes, {head[1].split()[1]}")
        for name, p50, _, _, ratio in lines:
            rows.setdefault(name, []).append(f"{digits(p50)} ({digits(ratio.split()[0])}×)")
    return table(header, [[name, *cells] for name, cells in rows.items()])


def wrapped(section):
    """Breaks the long lines of a section that are not rows of a table."""
    def fill(line):
        return textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)

    return "\n".join(line if line.startswith("|") else fill(line) for line in section.splitlines())


def write(text, sections):
    """Replaces the text between the markers of each section; every marker must have a section, and the reverse."""
    left = dict(sections)

    def replace(match):
        name = match[1]
        if name not in left:
            raise SystemExit(f"{DOCUMENT}: nothing is measured for the section {name}")
        return f"<!-- begin {name} -->\n\n{wrapped(left.pop(name))}\n\n<!-- end {name} -->"

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
    row = "| a |" * 40
    assert wrapped(f"{'a-b ' * 40}\n\n{row}") == f"{('a-b ' * 30).strip()}\n{('a-b ' * 10).strip()}\n\n{row}"
    for sections in [{"x": "1"}, {"x": "1", "y": "2", "z": "3"}]:
        try:
            write(text, sections)
        except SystemExit:
            continue
        raise AssertionError(f"accepted {sections}")
    assert table(["figure", "p50"], [["a", "1"]]) == "| figure | p50 |\n|---|---:|\n| a | 1 |"
    assert median([3, 1, 2]) == 2 and median([4, 1, 2, 3]) == 2.5
    rule = "p50 µs | p99 µs | max µs | ratio |\n|---|---:|---:|---:|---:|\n"
    printed = [f"| place, {n}00 nodes | {rule}| a | {n}.27 | 2.00 | 3.00 | {n}.00 (0.50 to 2.00) |" for n in (5, 8)]
    assert beside("\n\n".join(printed)).endswith("| a | 5.27 (5×) | 8.27 (8×) |"), beside("\n\n".join(printed))
    drawn = chart(dict.fromkeys(KUBE_SCHEDULER, 120_000))
    assert drawn.count("<rect") == 2 + 2 * len(KUBE_SCHEDULER) and 'width="500.0"' in drawn, drawn
    lines = ['{"reason": "x"}', '{"executable": "/t/a-1", "target": {"name": "a"}}']
    assert executable(lines, "a") == "/t/a-1"
    write(DOCUMENT.read_text(), dict.fromkeys(SECTIONS, ""))


SECTIONS = ["machine", "noise", "scheduling", "sharing", "cache", "drains", "program", "rivals"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--executable", metavar="NAME")
    parser.add_argument("--program")
    parser.add_argument("--bench")
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
    runner = Runner(arguments.program, arguments.bench, arguments.quick)
    found["noise"] = noise(runner)
    found["scheduling"], measured = scheduling(runner)
    found["sharing"] = sharing(runner)
    found["cache"] = cache(runner)
    found["drains"] = drains(runner)
    found["program"] = program(runner)
    found["rivals"] = rivals(arguments.rivals, arguments.quick)
    for target, text in [(DOCUMENT, write(DOCUMENT.read_text(), found)), (CHART, chart(measured))]:
        target = QUICK / target.name if arguments.quick else target
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        print(f"wrote {target}")


if __name__ == "__main__":
    main()

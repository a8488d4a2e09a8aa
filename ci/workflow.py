"""Checks that every check runs: in .ci/run, in ci/nightly.sh or in the workflow.

Fails if one of these, or a script that they run, names a script that does not exist; if a script in ci/ is run by none
of them; if a document names a script that does not exist; or if the workflow uses an action without a major version,
has a job without a time limit, or has more than read access. YAML is parsed as text, so no library is required.
`python3 ci/workflow.py --self-test` checks a small tree with known faults.
"""

import pathlib
import re
import sys
import tempfile

WORKFLOWS = ".github/workflows"
ROOTS = (".ci/run", "ci/nightly.sh")
RUNS = re.compile(r"(?:^|[\s;&|(])(?:bash|sh|python3)\s+(?:\./)?((?:\.ci|ci)/[\w./-]+)", re.MULTILINE)
IMPORTS = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
NAMES = re.compile(r"(?<![\w./-])(?:\.ci|ci)/[\w-]+(?:\.(?:sh|py))?\b(?![\w/.*-])")


def commands(text):
    """Returns shell text without comments and double-quoted strings."""
    lines = (re.sub(r"(^|\s)#.*", r"\1", line) for line in text.splitlines())
    return "\n".join(re.sub(r'"[^"\n]*"', '""', line) for line in lines)


def steps(text):
    """Returns the shell text of a workflow: the values of all keys `run`."""
    lines, found = text.splitlines(), []
    for at, line in enumerate(lines):
        key = re.match(r"^(\s*(?:- )?)run:\s*(.*)$", line)
        if not key:
            continue
        if not re.fullmatch(r"[|>][+-]?\s*", key[2]):
            found.append(key[2])
            continue
        for inner in lines[at + 1 :]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(key[1]):
                break
            found.append(inner)
    return "\n".join(found)


def workflow_problems(name, text):
    """Returns the problems of a workflow, apart from those of its scripts."""
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        uses = re.match(r"\s*(?:- )?uses:\s*(\S+)", line)
        if uses and not re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", uses[1]) and not uses[1].startswith("./"):
            problems.append(f"{name}:{number}: {uses[1]} is not pinned to a major version, such as @v1")
        if re.match(r"\s*[\w-]+:\s*write(-all)?\s*$", line):
            problems.append(f"{name}:{number}: more than read access: {line.strip()}")
    if not re.search(r"^permissions:\n  contents: read\n(?! )", text, re.MULTILINE):
        problems.append(f"{name}: its permissions are not limited to `contents: read`")
    jobs = re.split(r"^jobs:\n", text, maxsplit=1, flags=re.MULTILINE)
    for job in re.split(r"^  (?=[\w-]+:\n)", jobs[1], flags=re.MULTILINE)[1:] if len(jobs) > 1 else []:
        if not re.search(r"^    timeout-minutes: \d+$", job, re.MULTILINE):
            problems.append(f"{name}: the job {job.split(':')[0]} has no timeout-minutes")
    return problems


def check(root):
    """Returns the problems of the tree at `root`, and the scripts that are run."""
    problems, todo = [], []
    workflows = sorted((root / WORKFLOWS).glob("*.y*ml"))
    if not workflows:
        problems.append(f"{WORKFLOWS}: no workflow exists")
    for path in workflows:
        name, text = path.relative_to(root).as_posix(), path.read_text()
        problems += workflow_problems(name, text)
        todo += [(name, script) for script in RUNS.findall(commands(steps(text)))]
        if not re.search(r"\bbash \.ci/run$", steps(text), re.MULTILINE):
            problems.append(f"{name}: it does not run .ci/run")
    todo += [("the repository", script) for script in ROOTS]
    run = set()
    while todo:
        by, script = todo.pop()
        if script in run:
            continue
        path = root / script
        if not path.is_file():
            problems.append(f"{by}: {script} does not exist")
            continue
        run.add(script)
        text = path.read_text()
        if path.suffix != ".py":
            todo += [(script, other) for other in RUNS.findall(commands(text))]
        # Python code may be in its own file or in a here-document.
        modules = (f"ci/{module}.py" for module in IMPORTS.findall(text))
        todo += [(script, module) for module in modules if (root / module).is_file()]
    for path in sorted((root / "ci").iterdir()):
        script = path.relative_to(root).as_posix()
        if path.suffix in (".sh", ".py") and script not in run:
            problems.append(f"{script}: neither .ci/run nor ci/nightly.sh nor a workflow runs it")
    for path in sorted([*root.glob("*.md"), *(root / "docs").glob("*.md")]):
        for script in sorted(set(NAMES.findall(path.read_text()))):
            if not (root / script).is_file():
                problems.append(f"{path.relative_to(root).as_posix()}: {script} does not exist")
    return problems, run


FIXTURE = {
    ".ci/run": '# step bash ci/gone-1.sh\nstep bash ci/a.sh\nstep bash ci/missing-1.sh 2\necho "bash ci/gone-2.sh"\n',
    "ci/nightly.sh": "    a) bash ci/b.sh && bash ci/missing-2.sh ;;\n",
    "ci/a.sh": "python3 - <<'PY'\nimport helper, re\nPY\n",
    "ci/b.sh": "bash ci/c.sh \"$@\"\n",
    "ci/c.sh": "",
    "ci/d.sh": "",
    "ci/helper.py": "",
    "ci/orphan.sh": "",
    "ci/orphan.py": "",
    "README.md": "run `.ci/run`, `bash ci/a.sh`, `ci/missing-3.sh` or `ci/*.sh`",
    f"{WORKFLOWS}/ci.yml": """on: push
permissions:
  contents: read
jobs:
  one:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@v6
      - uses: someone/something@main
      - name: Several
        run: |
          bash ci/d.sh

          bash ci/missing-4.sh
        env:
          X: bash ci/gone-3.sh
      - run: bash .ci/run
  two:
    permissions:
      contents: write
    steps:
      - run: bash ci/missing-5.sh
""",
}

EXPECTED = [
    ".ci/run: ci/missing-1.sh does not exist",
    "ci/nightly.sh: ci/missing-2.sh does not exist",
    "README.md: ci/missing-3.sh does not exist",
    f"{WORKFLOWS}/ci.yml: ci/missing-4.sh does not exist",
    f"{WORKFLOWS}/ci.yml: ci/missing-5.sh does not exist",
    "ci/orphan.sh: neither .ci/run nor ci/nightly.sh nor a workflow runs it",
    "ci/orphan.py: neither .ci/run nor ci/nightly.sh nor a workflow runs it",
    f"{WORKFLOWS}/ci.yml:9: someone/something@main is not pinned to a major version, such as @v1",
    f"{WORKFLOWS}/ci.yml:20: more than read access: contents: write",
    f"{WORKFLOWS}/ci.yml: the job two has no timeout-minutes",
]


def self_test():
    """Checks that exactly the faults of the fixture are found."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in FIXTURE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = check(root)[0]
    missed, extra = sorted(set(EXPECTED) - set(found)), sorted(set(found) - set(EXPECTED))
    assert not missed and not extra and len(found) == len(EXPECTED), f"not found: {missed}; found: {extra}"


if __name__ == "__main__":
    self_test()
    if "--self-test" in sys.argv[1:]:
        print(f"found the {len(EXPECTED)} faults of the fixture")
        sys.exit()
    problems, run = check(pathlib.Path("."))
    if problems:
        print(*problems, sep="\n")
        sys.exit(1)
    print(f"{len(run)} scripts are run by .ci/run, ci/nightly.sh or the workflow")

"""Checks that every check runs, and that the workflows run only code that is named exactly.

Scripts: fails if .ci/run, ci/nightly.sh, a workflow, or a script that they run names a script that does not exist; if a
script in ci/ is run by none of them; or if a document names a script that does not exist.

Workflows: fails if an action is not pinned to a commit with its version in a comment; if an image, also of a
Containerfile, is not pinned to a digest; if a job has no time limit, or a permission to write that WRITES does not
list; if a script contains an expression, whose value could become code; if a checkout leaves its credentials to later
steps; or if a workflow uses a secret, or a trigger that runs with the rights of this repository for others.

YAML is parsed as text, so no library is required; with PyYAML, it is also parsed as YAML.
`python3 ci/workflow.py --self-test` checks a small tree with known faults.
"""

import pathlib
import re
import sys
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

WORKFLOWS = ".github/workflows"
ROOTS = (".ci/run", "ci/nightly.sh")
RUNS = re.compile(r"(?:^|[\s;&|(])(?:bash|sh|python3)\s+(?:\./)?((?:\.ci|ci)/[\w./-]+)", re.MULTILINE)
IMPORTS = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# The permissions to write: a workflow, a job and a scope.
WRITES = {
    # The image, and the signed statements about it and about the files.
    (f"{WORKFLOWS}/release.yml", "publish", "packages"),
    (f"{WORKFLOWS}/release.yml", "publish", "id-token"),
    (f"{WORKFLOWS}/release.yml", "publish", "attestations"),
    # The draft of the release.
    (f"{WORKFLOWS}/release.yml", "draft", "contents"),
}
# Images without a digest, and the reason of each. They are printed.
UNPINNED = {}
NAMES = re.compile(r"(?<![\w./-])(?:\.ci|ci)/[\w-]+(?:\.(?:sh|py))?\b(?![\w/.*-])")


def commands(text):
    """Returns shell text without comments and double-quoted strings."""
    lines = (re.sub(r"(^|\s)#.*", r"\1", line) for line in text.splitlines())
    return "\n".join(re.sub(r'"[^"\n]*"', '""', line) for line in lines)


def run_lines(text):
    """Returns the lines of the shell text of a workflow, with their numbers: the values of all keys `run`."""
    lines, found = text.splitlines(), []
    for at, line in enumerate(lines):
        key = re.match(r"^(\s*(?:- )?)run:\s*(.*)$", line)
        if not key:
            continue
        if not re.fullmatch(r"[|>][+-]?\s*", key[2]):
            found.append((at + 1, key[2]))
            continue
        for number, inner in enumerate(lines[at + 1 :], at + 2):
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(key[1]):
                break
            found.append((number, inner))
    return found


def steps(text):
    """Returns the shell text of a workflow."""
    return "\n".join(line for _, line in run_lines(text))


def jobs_of(text):
    """Returns the jobs of a workflow: the name, the number of the first line, and the text of each."""
    lines, found = text.splitlines(keepends=True), []
    begin = next((at for at, line in enumerate(lines) if line == "jobs:\n"), len(lines))
    starts = [at for at in range(begin, len(lines)) if re.fullmatch(r"  [\w-]+:\n", lines[at])]
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        found.append((lines[start].strip(" :\n"), start + 1, "".join(lines[start:end])))
    return found


def action_problem(reference, comment):
    """Returns the problem of an action, or None."""
    if reference.startswith("./"):
        return None
    if reference.startswith("docker://"):
        return None if DIGEST.search(reference) else f"{reference} is not pinned to a digest"
    if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", reference):
        return f"{reference} is not pinned to a commit, as 40 hexadecimal digits"
    if not re.fullmatch(r"# v\d+\.\d+\.\d+", comment or ""):
        return f"{reference}: a comment must name its version, such as # v1.2.3"
    return None


def permission_problems(name, text):
    """Returns the problems of the permissions of a workflow."""
    problems, unused = [], {(job, scope) for of, job, scope in WRITES if of == name}
    if not re.search(r"^permissions:\n  contents: read\n(?! )", text, re.MULTILINE):
        problems.append(f"{name}: its permissions are not limited to `contents: read`")
    job = None
    starts = {start: job for job, start, _ in jobs_of(text)}
    for number, line in enumerate(text.splitlines(), 1):
        job = starts.get(number, job)
        if re.match(r"\s*permissions:\s*[^\s#]", line):
            problems.append(f"{name}:{number}: permissions that are not listed one per line: {line.strip()}")
        if written := re.match(r"\s*([\w-]+):\s*write(-all)?\s*(#.*)?$", line):
            unused.discard((job, written[1]))
            if (name, job, written[1]) not in WRITES:
                problems.append(f"{name}:{number}: more than read access: {line.strip()}")
    return problems + [f"{name}: the job {job} does not use the permission {scope}: remove it from ci/workflow.py"
                       for job, scope in sorted(unused)]


def workflow_problems(name, text):
    """Returns the problems of a workflow, apart from those of its scripts."""
    problems, lines = permission_problems(name, text), text.splitlines()
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if uses := re.match(r"\s*(?:- )?uses:\s*(\S+)\s*(#.*?)?\s*$", line):
            if problem := action_problem(uses[1], uses[2]):
                problems.append(f"{where}: {problem}")
            if uses[1].startswith("actions/checkout@"):
                indent = len(line) - len(line.lstrip())
                step = [line for line in lines[number:] if line.strip()]
                ends = next((at for at, line in enumerate(step) if len(line) - len(line.lstrip()) <= indent), len(step))
                if not any(line.strip() == "persist-credentials: false" for line in step[:ends]):
                    problems.append(f"{where}: a checkout without persist-credentials: false")
        image = re.match(r"\s*(?:image|container):\s*([^\s#]+)", line)
        if image and not DIGEST.search(image[1]):
            problems.append(f"{where}: {image[1]} is not pinned to a digest")
        code = re.sub(r"(^|\s)#.*", "", line)
        if trigger := re.search(r"\b(pull_request_target|workflow_run|issue_comment)\b", code):
            problems.append(f"{where}: the trigger {trigger[1]} has this repository's rights")
        if re.search(r"\bsecrets\b", code):
            problems.append(f"{where}: a secret: {line.strip()}")
    for number, line in run_lines(text):
        if "${{" in line:
            problems.append(f"{name}:{number}: an expression in a script: pass it by env: {line.strip()}")
    for job, _, body in jobs_of(text):
        # The jobs of another workflow have their own limits.
        if not re.search(r"^    (timeout-minutes: \d+|uses: \./\S+)$", body, re.MULTILINE):
            problems.append(f"{name}: the job {job} has no timeout-minutes")
    if yaml is not None:
        problems += yaml_problems(name, text)
    return problems


def yaml_problems(name, text):
    """Returns the problems of a workflow as YAML."""
    try:
        jobs = yaml.safe_load(text)["jobs"]
        names = {job: definition.get("needs", []) for job, definition in jobs.items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        return [f"{name}: not the YAML of a workflow: {' '.join(str(error).split())}"]
    return [f"{name}: the job {job} needs {other}, which does not exist" for job, needs in names.items()
            for other in ([needs] if isinstance(needs, str) else needs) if other not in names]


def image_problems(name, text):
    """Returns the problems of the images that a Containerfile uses, and its exceptions."""
    problems, excepted, stages = [], set(), {"scratch"}
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", line, re.IGNORECASE)
        copied = re.match(r"\s*COPY\s+(?:--\S+\s+)*?--from=(\S+)", line, re.IGNORECASE)
        if not (found or copied):
            continue
        image = (found or copied)[1]
        if image in UNPINNED:
            excepted.add(image)
        elif image not in stages and not DIGEST.search(image):
            problems.append(f"{name}:{number}: {image} is not pinned to a digest")
        if found and found[2]:
            stages.add(found[2])
    return problems, excepted


def copy_problems(root, name, text):
    """Returns the members of the workspace that a Containerfile does not copy although it copies the workspace."""
    manifest = root / "Cargo.toml"
    if not manifest.is_file() or not re.search(r"^COPY .*\bCargo\.toml\b", text, re.MULTILINE):
        return []
    members = re.search(r"^members = \[(.*?)\]", manifest.read_text(), re.MULTILINE | re.DOTALL)
    folders = {member.split("/")[0] for member in re.findall(r'"([^"]+)"', members[1] if members else "")}
    copied = set(re.findall(r"^COPY (\S+) \1$", text, re.MULTILINE))
    return [f"{name}: the folder {folder} of the workspace is not copied" for folder in sorted(folders - copied)]


def checks_all(root, text, seen=()):
    """Returns whether a workflow runs .ci/run, itself or by another workflow."""
    if re.search(r"\bbash \.ci/run$", steps(text), re.MULTILINE):
        return True
    others = [root / path for path in re.findall(r"^    uses: \./(\S+)$", text, re.MULTILINE) if path not in seen]
    return any(path.is_file() and checks_all(root, path.read_text(), (*seen, path)) for path in others)


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
        if not checks_all(root, text):
            problems.append(f"{name}: it does not run .ci/run")
    excepted = set()
    for path in sorted([*root.glob("deploy/**/*Containerfile*"), *root.glob("deploy/**/*Dockerfile*")]):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        found, exceptions = image_problems(name, text)
        problems += found + copy_problems(root, name, text)
        excepted |= exceptions
    problems += [f"{image} is not used: remove it from ci/workflow.py" for image in sorted(set(UNPINNED) - excepted)]
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


COMMIT = "0123456789abcdef0123456789abcdef01234567"
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
    "deploy/Containerfile": f"""FROM --platform=linux/amd64 a:1@sha256:{'0' * 64} AS build
FROM build AS again
FROM b:2
COPY --from=build /x /x
COPY --chown=1:1 --from=c:3 /x /x
""",
    f"{WORKFLOWS}/broken.yml": """permissions:
  contents: read
jobs:
  one:
    uses: ./.github/workflows/ci.yml
  one: [
""",
    f"{WORKFLOWS}/ci.yml": f"""on: push
permissions:
  contents: read
jobs:
  one:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@{COMMIT} # v6.1.0
        with:
          persist-credentials: false
      - uses: actions/checkout@{COMMIT} # v6.1.0
      - uses: someone/something@main
      - uses: someone/something@v1.2.3 # v1.2.3
      - uses: someone/something@{COMMIT}
      - name: Several
        run: |
          bash ci/d.sh
          echo ${{{{ github.event.head_commit.message }}}}

          bash ci/missing-4.sh
        env:
          X: bash ci/gone-3.sh
          Y: ${{{{ github.ref }}}}
      - run: bash .ci/run
  two:
    permissions:
      contents: write
    container: d:4
    steps:
      - run: bash ci/missing-5.sh
      - env:
          TOKEN: ${{{{ secrets.TOKEN }}}}
""",
    f"{WORKFLOWS}/release.yml": """on:
  pull_request_target:
permissions: write-all
jobs:
  checks:
    uses: ./.github/workflows/ci.yml
  publish:
    needs: [checks, nothing]
    timeout-minutes: 5
    permissions:
      packages: write
      id-token: write
      attestations: write
      contents: write
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
    "deploy/Containerfile:3: b:2 is not pinned to a digest",
    "deploy/Containerfile:5: c:3 is not pinned to a digest",
    f"{WORKFLOWS}/ci.yml:11: a checkout without persist-credentials: false",
    f"{WORKFLOWS}/ci.yml:12: someone/something@main is not pinned to a commit, as 40 hexadecimal digits",
    f"{WORKFLOWS}/ci.yml:13: someone/something@v1.2.3 is not pinned to a commit, as 40 hexadecimal digits",
    f"{WORKFLOWS}/ci.yml:14: someone/something@{COMMIT}: a comment must name its version, such as # v1.2.3",
    f"{WORKFLOWS}/ci.yml:18: an expression in a script: pass it by env: echo ${{{{ github.event.head_commit.message }}}}",
    f"{WORKFLOWS}/ci.yml:27: more than read access: contents: write",
    f"{WORKFLOWS}/ci.yml:28: d:4 is not pinned to a digest",
    f"{WORKFLOWS}/ci.yml:32: a secret: TOKEN: ${{{{ secrets.TOKEN }}}}",
    f"{WORKFLOWS}/ci.yml: the job two has no timeout-minutes",
    f"{WORKFLOWS}/release.yml: its permissions are not limited to `contents: read`",
    f"{WORKFLOWS}/release.yml:2: the trigger pull_request_target has this repository's rights",
    f"{WORKFLOWS}/release.yml:3: permissions that are not listed one per line: permissions: write-all",
    f"{WORKFLOWS}/release.yml:3: more than read access: permissions: write-all",
    f"{WORKFLOWS}/release.yml:14: more than read access: contents: write",
    f"{WORKFLOWS}/release.yml: the job draft does not use the permission contents: remove it from ci/workflow.py",
]
# Found only with PyYAML.
EXPECTED_YAML = [
    f"{WORKFLOWS}/broken.yml: not the YAML of a workflow",
    f"{WORKFLOWS}/release.yml: the job publish needs nothing, which does not exist",
]


def self_test():
    """Checks that exactly the faults of the fixture are found."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in FIXTURE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = check(root)[0]
    # The parser's own words are left out.
    found = [re.sub(r"(not the YAML of a workflow): .*", r"\1", problem) for problem in found]
    expected = EXPECTED + (EXPECTED_YAML if yaml else [])
    missed, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    assert not missed and not extra and len(found) == len(expected), f"not found: {missed}; found: {extra}"


if __name__ == "__main__":
    self_test()
    if "--self-test" in sys.argv[1:]:
        print(f"found the {len(EXPECTED)} faults of the fixture")
        sys.exit()
    problems, run = check(pathlib.Path("."))
    if problems:
        print(*problems, sep="\n")
        sys.exit(1)
    for image, reason in UNPINNED.items():
        print(f"NOT PINNED: {image}: {reason}")
    if yaml is None:
        print("SKIPPED: PyYAML is not installed here (python3 -m pip install pyyaml); workflows are checked as text only")
    print(f"{len(run)} scripts are run by .ci/run, ci/nightly.sh or a workflow")

#!/usr/bin/env bash
# Compares loom-tests/mutants.txt with the source. Every fence and every ordering stronger than relaxed must have a
# mutant in the list, every listed mutant must exist in the source, and code that loom does not see must be listed with
# a reason. In addition, the writer and forks must not take locks. Only shipped code is scanned (ci/shipped.py, which
# tests itself first). Given the binaries of the models as arguments (from ci/loom.sh), the script also runs each mutant
# against its model, which must fail.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

PYTHONPATH=ci PYTHONDONTWRITEBYTECODE=1 python3 - "$scratch/runs" <<'PY'
import collections, pathlib, re, sys

import shipped

shipped.test()

listed, outside, problems = {}, set(), []
for line in pathlib.Path("loom-tests/mutants.txt").read_text().splitlines():
    fields = [field.strip() for field in line.split("|")]
    if line.startswith("#") or not line.strip():
        continue
    if fields[0] == "outside":
        assert len(fields) == 3 and fields[2], f"no reason: {line}"
        outside.add(fields[1])
        continue
    name, file, becomes, model = fields
    if name in listed:
        problems.append(f"{name} is listed twice")
    listed[name] = (file, becomes, model)

models = {f"{path.stem}::{name}" for path in pathlib.Path("loom-tests").rglob("tests/*.rs")
          for name in re.findall(r"#\[test\]\s*fn (\w+)", path.read_text())}
# The code of forks, and of the writer between two publishes. It must make progress even if all other threads are
# stopped.
UNLOCKED = ("src/snapshot/", "src/state/", "src/engine/writer.rs", "crates/publish/src/freeing/")
# The queue of the reclaiming thread, for owners that drop a version or a fork themselves. Objects dropped by a step of
# the writer go to its backlog instead (Publisher::defer_frees).
LOCKED = "crates/publish/src/freeing/reaper.rs"
LOCKS = r"\b(?:Mutex|RwLock|Condvar)\b"
found, relaxed, unseen = {}, collections.Counter(), set()
for path in sorted([*pathlib.Path("src").rglob("*.rs"), *pathlib.Path("crates/publish/src").rglob("*.rs")]):
    file = path.as_posix()
    # This file defines the macros; models and tests are not shipped.
    if file == "crates/publish/src/sync.rs" or path.stem in ("tests", "model") or path.stem.endswith("_loom"):
        continue
    text = shipped.shipped(path.read_text())
    if re.search(r"#\[cfg\([^\]]*not\(loom\)", text):
        unseen.add(file)
    for strong in re.findall(r"\bOrdering::(Acquire|Release|AcqRel|SeqCst)\b", text):
        problems.append(f"{file}: {strong} has no mutant: use ordering! instead")
    for lock in re.findall(LOCKS, text) if file.startswith(UNLOCKED) and file != LOCKED else []:
        problems.append(f"{file}: {lock} is a lock, but publishing and forking must not block")
    for call in re.findall(r"\b(?:compiler_)?fence\(", text):
        problems.append(f"{file}: a fence has no mutant: use fenced! instead")
    relaxed[file] += len(re.findall(r"\bOrdering::Relaxed\b", text))
    patterns = [(r'ordering!\(\s*"([\w-]+)",\s*(\w+ => \w+)', None), (r'fenced!\(\s*"([\w-]+)"', "no fence, AcqRel"),
                (r'mutated!\(\s*"([\w-]+)"', "other code")]
    for pattern, becomes in patterns:
        for match in re.finditer(pattern, text):
            name = match[1]
            if name in found:
                problems.append(f"{name} occurs twice in the source: give each ordering its own mutant")
            found[name] = (file, becomes or match[2])
for name, (file, becomes) in found.items():
    if name not in listed:
        problems.append(f"{file}: {name} ({becomes}) is not in loom-tests/mutants.txt")
    elif listed[name][:2] != (file, becomes):
        problems.append(f"{name} is {becomes} in {file} but listed as {listed[name][1]} in {listed[name][0]}")
for name, (file, _, model) in listed.items():
    if name not in found:
        problems.append(f"{name} is listed but no longer exists in {file}")
    if model not in models:
        problems.append(f"{name}: model {model} does not exist")
problems += [f"{file}: has code that loom does not see, but is not listed" for file in unseen - outside]
problems += [f"{file} is listed as unseen by loom, but loom sees all of it" for file in outside - unseen]
if not found:
    problems.append("no mutant is named in src: check whether crates/publish/src/sync.rs has changed")
if problems:
    sys.exit("\n".join(problems))
orderings = sum(1 for _, becomes in found.values() if "=>" in becomes)
fences = sum(1 for _, becomes in found.values() if "fence" in becomes)
print(f"{orderings} orderings, {fences} fences and {len(found) - orderings - fences} other steps have a mutant each; "
      f"{sum(relaxed.values())} relaxed accesses need none")
with open(sys.argv[1], "w") as runs:
    for name, (file, becomes, model) in sorted(listed.items()):
        runs.write(f"{name} {model}\n")
        if "fence" in becomes:
            runs.write(f"{name}-acqrel {model}\n")
PY

[ $# -gt 0 ] || exit 0

# Runs a mutant against its model. Arguments: the mutant, the model, and the binaries of the models.
run_mutant() {
    local mutant=$1 model=$2 binary= output status=0 verdict
    shift 2
    for each in "$@"; do
        case "$(basename "$each")" in "${model%%::*}"-*) binary=$each ;; esac
    done
    output=$(PORTOLAN_MUTATION=$mutant timeout 300 "$binary" --exact "${model#*::}" 2>&1) || status=$?
    verdict="is killed by $model"
    if ! grep -q '^running 1 test' <<<"$output"; then
        verdict="did not run: $model"
    elif [ "$status" -eq 0 ]; then
        verdict="survives $model"
    elif [ "$status" -eq 124 ]; then
        # This is not a kill, because a model that neither passes nor fails proves nothing. The limit is generous, for
        # machines with other work.
        verdict="is undecided after 300 s by $model"
    fi
    echo "MUTANT $mutant $verdict"
}
export -f run_mutant
# A model runs on one thread, so as many run at once as there are cores.
cores=$(getconf _NPROCESSORS_ONLN)
xargs -P "$cores" -L 1 bash -c 'run_mutant "${@:$#-1}" "${@:1:$#-2}"' _ "$@" <"$scratch/runs" | tee "$scratch/verdicts"
killed=$(grep -c ' is killed by ' "$scratch/verdicts" || true)
survivors=$(($(wc -l <"$scratch/runs") - killed))
if [ "$survivors" -ne 0 ]; then
    echo "$survivors mutants are not killed: list a model that detects them, or weaken the orderings"
    exit 1
fi
echo "$killed mutants killed"

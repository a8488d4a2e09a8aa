"""Compares the imports of the library with the table of modules in docs/design.md.

A room is a row of that table: a top-level module of the library, or a crate. The last cell names the rooms that it may
import. An exception is a line that begins with `except FILE -> ROOM` in backquotes and gives the reason.

The check covers paths that begin with `crate`, `super`, `self` or the name of one of the library's crates, in shipped
code: comments, strings and test-only code are ignored (ci/shipped.py). File paths in the document must also exist.
`python3 ci/rooms.py --self-test` runs the check on a small tree with known faults.
"""

import collections
import pathlib
import re
import sys
import tempfile

import shipped

# The crates of the library: the name, the source directory, and the room of modules that are not rooms themselves.
CRATES = {
    "portolan": ("src", None),
    "portolan_publish": ("crates/publish/src", "publish"),
    "portolan_k8s": ("crates/k8s/src", "k8s"),
    "portolan_dra": ("crates/dra/src", "dra"),
    "portolan_kube": ("crates/kube/src", "kube"),
    "portolan_apiserver": ("crates/apiserver/src", "apiserver"),
}
DESIGN = "docs/design.md"
# Paths in the document that must exist.
NAMED = re.compile(
    r"`((?:src|crates|ci|\.ci|\.github|cli|tests|examples|benches|fuzz|loom-tests|docs)/[\w./-]*|[\w-]+\.(?:md|toml))`"
)

HEAD = re.compile(r"(?<![\w:$])(?:::\s*)?\$?(crate|super|self|" + "|".join(CRATES) + r")\s*::")
NAME = re.compile(r"\s*(?:r#)?(\w+|\*)")
BLOCK = re.compile(r"\b(?:pub(?:\s*\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])")
PATH = re.compile(r'#\s*\[\s*path\s*=\s*"([^"]+)"\s*\][^;{}]*$')


def design(text):
    """Returns the rooms with their allowed imports, the exceptions with their lines, and the problems of the table."""
    problems, rooms, exceptions = [], {}, {}
    for exception in re.finditer(r"^`except (\S+) -> (\w+)`: .+$", text, re.MULTILINE):
        exceptions[exception[1], exception[2]] = exception[0]
    table = re.search(r"^\| module \| path \| contents \| may import \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    if not table:
        return rooms, exceptions, [f"{DESIGN}: has no table of modules"]
    for line in table[1].splitlines():
        row = re.fullmatch(r"\| `(\w+)` \|.*\| (\w+(?:, \w+)*) \|", line)
        if not row:
            problems.append(f"{DESIGN}: invalid row of the table of modules: {line}")
            continue
        if row[1] in rooms:
            problems.append(f"{DESIGN}: {row[1]} has two rows")
        rooms[row[1]] = [] if row[2] == "nothing" else row[2].split(", ")
    for room, imports in rooms.items():
        unknown = [other for other in imports if other not in rooms]
        problems += [f"{DESIGN}: {room} may import {other}, which is not a room" for other in unknown]
    rest = dict(rooms)
    while free := [room for room, imports in rest.items() if not any(other in rest for other in imports)]:
        for room in free:
            del rest[room]
    if rest:
        problems.append(f"{DESIGN}: the arrows of {', '.join(sorted(rest))} form a cycle")
    return rooms, exceptions, problems


class File:
    """A source file: its crate, its module, its code and its inline modules."""

    def __init__(self, crate, path, module, shown):
        self.crate, self.path, self.module, self.shown = crate, path, module, shown
        self.code, self.shape = shipped.split(shipped.shipped(path.read_text()))
        self.inner = []
        for match in BLOCK.finditer(self.shape):
            if match[2] == "{":
                self.inner.append((match.start(), shipped.close(self.shape, match.end() - 1), match[1]))

    def at(self, offset):
        """Returns the module that contains an offset."""
        return self.module + [name for start, end, name in self.inner if start < offset < end]

    def modules(self):
        """Yields the modules declared here that have their own files: name, module, path."""
        for match in BLOCK.finditer(self.shape):
            if match[2] != ";":
                continue
            within = [name for start, end, name in self.inner if start < match.start() < end]
            folder = self.path.parent
            if self.path.stem not in ("mod", "lib"):
                folder = folder / self.path.stem
            before = self.code[: match.start()]
            named = PATH.search(before[max(before.rfind(mark) for mark in ";{}") + 1 :])
            if named and not within:
                candidates = [self.path.parent / named[1]]
            else:
                folder = folder.joinpath(*within)
                candidates = [folder / f"{match[1]}.rs", folder / match[1] / "mod.rs"]
            for path in filter(pathlib.Path.exists, candidates):
                yield match[1], [*self.module, *within, match[1]], path

    def paths(self):
        """Yields the paths that begin with a head: the enclosing module, the head, the names after it, the line."""
        end = 0
        for match in HEAD.finditer(self.shape):
            if match.start() < end:
                continue
            leaves, end = tree(self.shape, match.end())
            line = lambda offset: self.shape.count("\n", 0, offset) + 1
            for names, offset in leaves:
                yield self.at(match.start()), match[1], names, line(offset)


def tree(shape, at):
    """Returns the paths, with their offsets, of the path or use tree whose names begin at `at`, and its end."""
    opens = re.compile(r"\s*\{").match(shape, at)
    if opens:
        leaves, at = [], opens.end()
        while at < len(shape) and not (close := re.compile(r"\s*\}").match(shape, at)):
            inner, after = tree(shape, at)
            leaves += inner
            comma = re.compile(r"\s*(?:as\s+\w+\s*)?,?").match(shape, after)
            if comma.end() == at:
                return leaves, at
            at = comma.end()
        return leaves, close.end() if close else at
    name = NAME.match(shape, at)
    if not name:
        return [], at
    follows = re.compile(r"\s*::(?!\s*<)").match(shape, name.end())
    if not follows:
        return [([name[1]], name.start(1))], name.end()
    leaves, end = tree(shape, follows.end())
    if not leaves:
        return [([name[1]], name.start(1))], end
    return [([name[1], *names], offset) for names, offset in leaves], end


class Library:
    def __init__(self, root, rooms, text):
        self.root, self.rooms, self.text = root, rooms, text
        self.files, self.tops, self.exports = [], {}, {}
        for crate, (source, _) in CRATES.items():
            lib = root / source / "lib.rs"
            if lib.exists():
                self.read(crate, lib)

    def read(self, crate, lib):
        top = File(crate, lib, [], lib.relative_to(self.root).as_posix())
        self.tops[crate] = {name for name, module, _ in top.modules() if len(module) == 1}
        self.exports[crate] = self.exported(top)
        todo = [top]
        while todo:
            file = todo.pop()
            self.files.append(file)
            for _, module, path in file.modules():
                todo.append(File(crate, path, module, path.relative_to(self.root).as_posix()))

    def exported(self, top):
        """Returns the names that the crate's root re-exports, with their sources."""
        names = {}
        for match in re.finditer(r"\buse\s+(?:::\s*)?", top.shape):
            if any(start < match.start() < end for start, end, _ in top.inner):
                continue
            end = top.shape.find(";", match.end())
            text = top.shape[match.end() : end]
            if renamed := re.fullmatch(r"([\w:\s]+?)\s+as\s+(\w+)\s*", text):
                names[renamed[2]] = re.split(r"\s*::\s*", renamed[1])
                continue
            for path, _ in tree(top.shape, match.end())[0]:
                names[path[-1]] = path
        return names

    def room(self, crate, path, depth=0):
        """Returns the room of a path from a crate's root, or None if the path names no room."""
        if not path:
            return None
        first, of_others = path[0], CRATES[crate][1]
        if first in self.tops.get(crate, ()):
            # Another crate may have a module of the same name.
            is_room = first in self.rooms and (not of_others or f"`{CRATES[crate][0]}/{first}" in self.text)
            return first if is_room or not of_others else of_others
        if first in self.exports.get(crate, {}) and depth < 8:
            target = self.exports[crate][first]
            while target and target[0] in ("crate", "self"):
                target = target[1:]
            if target and target[0] in CRATES:
                rest = [*target[1:], *path[1:]]
                return self.room(target[0], rest, depth + 1) or CRATES[target[0]][1]
            if target != path[:1]:
                return self.room(crate, [*target, *path[1:]], depth + 1)
        return of_others

    def imports(self):
        """Yields each import from another room: file, line, importing room, imported room, path."""
        for file in self.files:
            # A crate's root may name all rooms.
            if not file.module:
                continue
            here = self.room(file.crate, file.module)
            for module, head, names, line in file.paths():
                crate, path = file.crate, list(module)
                if head == "crate":
                    path = []
                elif head in CRATES:
                    crate, path = head, []
                elif head == "super":
                    path = path[:-1]
                written = "::".join([head, *names])
                while names and names[0] in ("super", "self"):
                    path = path[:-1] if names[0] == "super" else path
                    names = names[1:]
                there = self.room(crate, [*path, *names])
                if there != here:
                    yield file.shown, line, here, there, written


def check(root):
    """Returns the problems of the tree at `root`, the number of imports between rooms, and notes."""
    text = (root / DESIGN).read_text()
    rooms, exceptions, problems = design(text)
    library = Library(root, rooms, text)
    modules = {name for crate, tops in library.tops.items() for name in tops if not CRATES[crate][1]}
    everywhere = set().union(*library.tops.values()) | {room for _, room in CRATES.values()}
    problems += [f"{DESIGN}: the module {name} is missing from the table" for name in sorted(modules - rooms.keys())]
    problems += [f"{DESIGN}: {name} is not a module" for name in sorted(rooms.keys() - everywhere)
                 if name not in library.exports.get("portolan", {})]
    used, count = set(), collections.Counter()
    for file, line, here, there, written in library.imports():
        count[here, there] += 1
        if there is None:
            problems.append(f"{file}:{line}: {written} refers to no room")
        elif (file, there) in exceptions:
            used.add((file, there))
        elif there not in rooms.get(here, ()):
            problems.append(f"{file}:{line}: {written}: {here} may not import {there}")
    problems += [f"{DESIGN}: unused exception: {exceptions[key]}" for key in sorted(exceptions.keys() - used)]
    absent = [source for source, _ in CRATES.values() if not (root / source).exists()]
    for path in sorted(set(NAMED.findall(text))):
        if not (root / path).exists() and not any(path.startswith(source.split("/src")[0]) for source in absent):
            problems.append(f"{DESIGN}: {path} does not exist")
    notes = [f"{source} does not exist yet: paths in it are not checked" for source in absent]
    return problems, count, notes


FIXTURE = {
    DESIGN: """
| module | path | contents | may import |
|---|---|---|---|
| `low` | `src/low.rs` | | nothing |
| `mid` | `src/mid/` | | low, publish |
| `high` | `src/high.rs` | | mid |
| high | `src/high.rs` | | low |
| `publish` | `crates/publish/src/` | | nothing |
| `beside` | `crates/publish/src/beside.rs`, `src/gone.rs` | | publish |

`except src/high.rs -> low`: it is shown that one may
`except src/mid/mod.rs -> high`: nobody needs this
""",
    "src/lib.rs": "mod low; pub mod mid; mod high; mod unlisted;\npub use portolan_publish as publish;\n"
    "pub use mid::{Made, deep::Thing};\n#[cfg(loom)] pub mod all { pub use crate::high::*; }",
    "src/low.rs": """//! A link to [`crate::high::Gone`].
use crate::mid::Bad1;
// use crate::mid::Gone;
const TEXT: &str = "crate::mid::Gone";
fn f() { super::mid::bad2(); let made: crate::Made = crate::Thing::bad4(); let c = 'c'; }
mod inner { use super::super::mid::Bad5; use super::f; }
#[cfg(test)]
mod tests { use crate::mid::Gone; }
use crate::{low, mid::{self, Bad7 as Other}, high};
pub(in crate::low) fn g() -> crate::publish::Bad8 { crate::publish::beside::bad9() }
use super::*;
""",
    "src/mid/mod.rs": "mod deep; #[cfg(test)] mod tests; use crate::{low::Good, publish::Good2}; use deep::Thing;\n"
    "#[path = \"elsewhere.rs\"] mod named;",
    "src/mid/deep.rs": "use super::super::low; use super::Made;\nuse super::super::high::Bad10;",
    "src/mid/elsewhere.rs": "\n\nuse ::portolan_publish::beside::Bad11;",
    "src/mid/tests.rs": "use crate::high::Gone;",
    "src/high.rs": "use crate::low::Allowed; use crate::mid::Good;",
    "src/unlisted.rs": "",
    "crates/publish/src/lib.rs": "mod beside; mod cell; pub use cell::Cell;",
    "crates/publish/src/cell.rs": "use crate::beside::Bad12; use super::Cell;",
    "crates/publish/src/beside.rs": "use crate::cell::Good; use crate::Cell;",
}

EXPECTED = [
    f"{DESIGN}: invalid row of the table of modules: | high | `src/high.rs` | | low |",
    f"{DESIGN}: the module unlisted is missing from the table",
    "src/low.rs:2: crate::mid::Bad1: low may not import mid",
    "src/low.rs:5: super::mid::bad2: low may not import mid",
    "src/low.rs:5: crate::Made: low may not import mid",
    "src/low.rs:5: crate::Thing::bad4: low may not import mid",
    "src/low.rs:6: super::super::mid::Bad5: low may not import mid",
    "src/low.rs:9: crate::mid::self: low may not import mid",
    "src/low.rs:9: crate::mid::Bad7: low may not import mid",
    "src/low.rs:9: crate::high: low may not import high",
    "src/low.rs:10: crate::publish::Bad8: low may not import publish",
    "src/low.rs:10: crate::publish::beside::bad9: low may not import beside",
    "src/low.rs:11: super::* refers to no room",
    "src/mid/deep.rs:2: super::super::high::Bad10: mid may not import high",
    "src/mid/elsewhere.rs:3: portolan_publish::beside::Bad11: mid may not import beside",
    "crates/publish/src/cell.rs:1: crate::beside::Bad12: publish may not import beside",
    f"{DESIGN}: unused exception: `except src/mid/mod.rs -> high`: nobody needs this",
    f"{DESIGN}: src/gone.rs does not exist",
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
    head = "| module | path | contents | may import |\n|---|---|---|---|\n"
    cycle = design(head + "| `a` | | | b |\n| `b` | | | c |\n| `c` | | | b |\n| `d` | | | e |\n")[2]
    assert len(cycle) == 2 and "a, b, c form a cycle" in cycle[1], cycle


if __name__ == "__main__":
    self_test()
    if "--self-test" in sys.argv[1:]:
        print(f"found the {len(EXPECTED)} faults of the fixture")
        sys.exit()
    problems, count, notes = check(pathlib.Path("."))
    print(*problems, *notes, sep="\n", end="\n" if problems or notes else "")
    if "--arrows" in sys.argv[1:]:
        for (here, there), uses in sorted(count.items()):
            print(f"{here} -> {there}: {uses} imports")
    if problems:
        sys.exit(1)
    print(f"{sum(count.values())} imports between rooms run along {len(count)} arrows of {DESIGN}")

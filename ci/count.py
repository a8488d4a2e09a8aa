"""Prints the size of the workspace: lines by crate, words by document, the public surface of the library, long functions.

Lines of a file count as tests if the file is in a folder `tests`, ends with `tests.rs`, or if they are test-only items
(ci/shipped.py). Public items are those that rustdoc shows (ci/surface.py).
"""

import collections
import pathlib
import re

import shipped
import surface

LONGEST = 80
CRATES = ["src", "crates/publish", "crates/k8s", "crates/dra", "crates/kube", "cli", "crates/apiserver", "crates/testkit", "bench",
          "tests", "benches", "examples", "loom-tests", "fuzz"]
ANY_FUNCTION = re.compile(r"\bfn\s+(\w+)")


def files():
    for path in sorted(pathlib.Path().rglob("*.rs")):
        parts = path.parts
        if "target" not in parts and not any(part.startswith(".") for part in parts):
            yield path


def is_test_file(path):
    return "tests" in path.parts or path.stem.endswith("tests") or path.parts[0] in ("benches", "fuzz", "loom-tests")


def long_functions(shape):
    """Yields the names and lines of the functions that are too long."""
    for match in ANY_FUNCTION.finditer(shape):
        opens = re.compile(r"[{;]").search(shape, match.end())
        if not opens or opens[0] == ";":
            continue
        lines = shape.count("\n", match.start(), shipped.close(shape, opens.start())) + 1
        if lines > LONGEST:
            yield match[1], lines


def main():
    lines, tests, long = collections.Counter(), collections.Counter(), []
    for path in files():
        text = path.read_text()
        crate = next((crate for crate in CRATES if path.as_posix().startswith(crate + "/")), "others")
        lines[crate] += text.count("\n")
        if is_test_file(path):
            tests[crate] += text.count("\n")
            continue
        code = shipped.shipped(text)
        _, shape = shipped.split(code)
        # Lines that are blank in the shipped code and not in the text belong to comments or to tests.
        pairs = zip(text.splitlines(), code.splitlines())
        tests[crate] += sum(1 for before, after in pairs if before.strip() and not after.strip()
                            and not before.strip().startswith("//"))
        long += [(count, f"{path}: {name}") for name, count in long_functions(shape)]
    print(f"{'lines of Rust':<24}{'all':>9}{'tests':>9}")
    for crate in sorted(lines, key=lines.get, reverse=True):
        print(f"{crate:<24}{lines[crate]:>9,}{tests[crate]:>9,}")
    print(f"{'sum':<24}{sum(lines.values()):>9,}{sum(tests.values()):>9,}\n")
    documents = sorted([*pathlib.Path().glob("*.md"), *pathlib.Path().glob("docs/*.md"), *pathlib.Path().glob("deploy/*.md"),
                        *pathlib.Path().glob("crates/*/README.md")])
    words = {path: len(path.read_text().split()) for path in documents}
    print(f"{'words':<24}{'all':>9}")
    for path in sorted(words, key=words.get, reverse=True):
        print(f"{path.as_posix():<24}{words[path]:>9,}")
    print(f"{'sum':<24}{sum(words.values()):>9,}\n")
    types, functions, hidden = surface.counts()
    print(f"public in the library: {types} types, {functions} functions; {hidden} more items are hidden")
    print(f"functions over {LONGEST} lines in shipped code: {len(long)}")
    for count, name in sorted(long, reverse=True):
        print(f"  {count:>4} {name}")


if __name__ == "__main__":
    main()

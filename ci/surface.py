"""Lists the public items of the library: of the crates `portolan` and `portolan-publish`, as rustdoc shows them.

Rustdoc shows an item that is declared `pub` if its modules are public, or if a public `pub use` names it; the items of
a trait or of an `impl` are shown with the trait or type. It does not show what is `#[doc(hidden)]`, or is in a module,
trait or `impl` that is. Test code and loom's models do not count.

`ci/surface.sh` compares the list with `ci/surface.txt`.
"""

import pathlib
import re
import sys

import shipped

CRATES = {"portolan": pathlib.Path("src"), "portolan_publish": pathlib.Path("crates/publish/src")}
TYPES = ("struct", "enum", "trait", "type", "union")
ITEM = re.compile(r"(?<!')(?P<pub>\bpub\s+)?\b(?:(?:const|async|unsafe)\s+)*"
                  r"(?<!')\b(?P<kind>fn|struct|enum|union|trait|type|const|static|mod)\s+(?P<name>(?!fn\b)[A-Za-z_]\w*)")
HIDDEN = re.compile(r"#\s*\[\s*doc\s*\(\s*hidden\s*\)\s*\]")
LOOM = re.compile(r"#\s*!?\s*\[\s*cfg\s*\(\s*loom\s*\)\s*\]")


def scopes(shape, code):
    """Yields the start, end, header and attributes of each block."""
    opens = []
    for at, letter in enumerate(shape):
        if letter == "{":
            opens.append(at)
        elif letter == "}" and opens:
            start = opens.pop()
            head = header(shape, start)
            yield start, at, shape[head:start], code[head:start]


def header(shape, at):
    """Returns the start of the item whose text includes `at`: the end of the item or the block before it."""
    return max(shape.rfind(letter, 0, at) for letter in "{};") + 1


def implemented(head):
    """Returns the name of the type of an inherent `impl`, or None."""
    match = re.search(r"\bimpl\b", head)
    if not match:
        return None
    text, rest = head[match.end():], ""
    depth = 0
    for before, letter in zip(" " + text, text):
        depth += (letter == "<") - (letter == ">" and before != "-")
        if depth == 0 and letter != ">":
            rest += letter
    rest = re.split(r"\bwhere\b", rest)[0]
    return None if re.search(r"\bfor\b", rest) else rest.strip().split("::")[-1].lstrip("&").strip()


def parse(path):
    """Returns the code of a file that ships, and its shape."""
    return shipped.split(shipped.shipped(path.read_text()))


def modules(root):
    """Yields the code and the shape of each file of a crate, the path of its module, and whether that is public and
    whether it is hidden."""
    pending = [(root / "lib.rs", (), True, False)]
    while pending:
        path, module, is_public, is_hidden = pending.pop()
        code, shape = parse(path)
        yield code, shape, module, is_public, is_hidden
        folder = path.parent if path.name in ("lib.rs", "mod.rs") else path.with_suffix("")
        for match in re.finditer(r"(\bpub\s+)?\bmod\s+(\w+)\s*;", shape):
            attributes = code[header(shape, match.start()):match.start()]
            if LOOM.search(attributes):
                continue
            found = next(file for file in [folder / f"{match[2]}.rs", folder / match[2] / "mod.rs"] if file.exists())
            hidden = is_hidden or bool(HIDDEN.search(attributes))
            pending.append((found, (*module, match[2]), is_public and bool(match[1]), hidden))


def reexported(files):
    """Returns the names in the `pub use` of public modules, except hidden ones, each with the module."""
    names = {}
    for code, shape, module, is_public, is_hidden in files:
        for match in re.finditer(r"\bpub\s+use\s+([^;]*);", shape):
            if is_public and not is_hidden and not HIDDEN.search(code[header(shape, match.start()):match.start()]):
                listed = re.search(r"\{([^}]*)\}|\w+\s*$", match[1])
                names.update((name, module) for name in re.findall(r"\w+", listed[0] if listed else ""))
    return names


def declared(files, names):
    """Yields the kind, the owner, the path and whether it is hidden, of each item that is declared public."""
    for code, shape, module, is_reachable, is_hidden in files:
        blocks = list(scopes(shape, code))
        for match in ITEM.finditer(shape):
            around = [block for block in blocks if block[0] < match.start() < block[1]]
            own = code[header(shape, match.start()):match.start()]
            inside = [head for _, _, head, _ in around]
            attributes = [own, *(text for _, _, _, text in around)]
            if any(re.search(r"\bfn\s+\w+", head) for head in inside) or any(map(LOOM.search, attributes)):
                continue
            kind, name, owner, is_public = match["kind"], match["name"], None, bool(match["pub"])
            if around:
                _, _, head, _ = max(around)
                owner = implemented(head)
                if trait := re.search(r"\btrait\s+(\w+)", head):
                    owner, is_public, kind = trait[1], True, f"{kind} of a trait"
            if not is_public or owner is None and not is_reachable and name not in names:
                continue
            path = "::".join(filter(None, [*names.get(owner or name, module), owner, name]))
            yield kind, owner, path, is_hidden or any(map(HIDDEN.search, attributes))


def items():
    """Yields the kind, the path and whether it is hidden, of each public item."""
    for crate, root in CRATES.items():
        files = list(modules(root))
        found = list(declared(files, reexported(files)))
        owners = {path.split("::")[-1]: hidden for kind, owner, path, hidden in found if kind in TYPES and not owner}
        for kind, owner, path, hidden in found:
            # A type of another crate, such as `str`, has no methods here, except those of a trait.
            if owner is None or owner in owners:
                yield kind, f"{crate}::{path}", hidden or owners.get(owner, False)


def counts():
    """Returns the numbers of shown types, shown functions and hidden items."""
    found = list(items())
    types = sum(kind in TYPES and not hidden for kind, _, hidden in found)
    functions = sum(kind == "fn" and not hidden for kind, _, hidden in found)
    return types, functions, sum(hidden for _, _, hidden in found)


def main():
    """Prints the surface."""
    lines = sorted({f"{path} ({kind})" for kind, path, hidden in items() if not hidden})
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()

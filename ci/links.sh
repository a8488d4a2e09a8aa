#!/usr/bin/env bash
# Checks the Markdown files in the root, docs/, crates/ and deploy/: every relative link must lead to a file or heading
# of this repository, and the README must have at most 150 lines.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 - <<'PY'
import pathlib, re, sys, urllib.parse

LONGEST_README = 150
ROOT = pathlib.Path.cwd().resolve()
LINK = re.compile(r"\]\(\s*<?([^\s)>]+)|^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)|\b(?:href|src|srcset)=[\"']([^\"']+)", re.MULTILINE)
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


def blank(match):
    """Returns a match without its text but with its line breaks, so that line numbers are preserved."""
    return re.sub(r"[^\n]", " ", match[0])


def anchors(path):
    """Returns the anchors that GitHub generates for the headings of a Markdown file."""
    found, count = set(), {}
    for heading in re.findall(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$", FENCE.sub(blank, path.read_text()), re.MULTILINE):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = count.get(slug, 0)
        count[slug] = again + 1
        found.add(f"{slug}-{again}" if again else slug)
    return found


problems, checked = [], 0
files = [path for pattern in ("*.md", "docs/*.md", "crates/*/README.md", "deploy/*.md") for path in sorted(pathlib.Path().glob(pattern))]
for file in files:
    text = CODE.sub(blank, FENCE.sub(blank, file.read_text()))
    for match in LINK.finditer(text):
        link = next(group for group in match.groups() if group)
        if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
            continue
        checked += 1
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = (file.parent / path).resolve() if path else file.resolve()
        where = f"{file}:{text.count(chr(10), 0, match.start()) + 1}: {link}"
        if not target.is_relative_to(ROOT) or not target.exists():
            problems.append(f"{where}: no such file")
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            problems.append(f"{where}: no such heading")
lines = len(pathlib.Path("README.md").read_text().splitlines())
if lines > LONGEST_README:
    problems.append(f"README.md: {lines} lines, limit {LONGEST_README}: move a section to docs/")
if not checked:
    problems.append("no link was found: has the pattern changed?")
if problems:
    sys.exit("\n".join(problems))
print(f"{checked} relative links checked, README.md has {lines} lines")
PY

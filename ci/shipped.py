"""Extracts the shipped code of a Rust file: its text without comments and without test-only items.

`shipped(text)` removes each item, statement, field or expression under `#[test]` or under a `#[cfg(...)]` that only a
test build satisfies, and keeps everything after it. If the end of such an item is uncertain, an early end is assumed,
so that too much is scanned rather than too little. `python3 ci/shipped.py` tests this file, and so does ci/mutants.sh.
"""

import re

TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\b(?:r|br|cr)(?P<hashes>\#*)".*?"(?P=hashes))
    | (?P<string>\b[bc]?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*")
    | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^'\\\n])')
    """,
    re.VERBOSE | re.DOTALL,
)


def blank(text):
    """Replaces every character except line breaks by a space."""
    return re.sub(r"[^\n]", " ", text)


def split(text):
    """Returns the text without comments, and also without the content of literals; both keep the length of the text."""
    code, shape, at = [], [], 0
    while match := TOKEN.search(text, at):
        between, found, end = text[at : match.start()], match[0], match.end()
        if match["block"]:
            depth, end = 1, match.end()
            while depth and (edge := re.compile(r"/\*|\*/").search(text, end)):
                depth, end = depth + (1 if edge[0] == "/*" else -1), edge.end()
            end = len(text) if depth else end
            found = text[match.start() : end]
        is_comment = match["line"] or match["block"]
        code += [between, blank(found) if is_comment else found]
        shape += [between, blank(found) if is_comment else '"' + blank(found)[1:-1] + '"']
        at = end
    return "".join([*code, text[at:]]), "".join([*shape, text[at:]])


def close(shape, at):
    """Returns the end of the group that opens at `at`."""
    depth = 0
    for end in range(at, len(shape)):
        depth += (shape[end] in "([{") - (shape[end] in ")]}")
        if depth == 0:
            return end + 1
    return len(shape)


def is_for_tests(predicate):
    """Returns whether only a test build satisfies the predicate of a cfg."""
    predicate = predicate.strip()
    if predicate == "test":
        return True
    group = re.fullmatch(r"(all|any)\s*\((.*)\)", predicate, re.DOTALL)
    if not group:
        return False
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(group[2]):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(group[2][start:at])
            start = at + 1
    parts = [part for part in [*parts, group[2][start:]] if part.strip()]
    return (any if group[1] == "all" else all)(map(is_for_tests, parts)) and bool(parts)


BY_BLOCK = re.compile(r"(?:pub(?:\s*\([^)]*\))?\s+)?(?:(?:default|async|unsafe|const|extern(?:\s*\"[^\"]*\")?)\s+)*"
                      r"(?:fn|mod|impl|trait|enum|union|struct|extern|macro_rules!)(?![\w])")
BY_SEMICOLON = re.compile(r"(?:pub(?:\s*\([^)]*\))?\s+)?(?:const|static|use|type|let)\b(?!\s*\{)")
ATTRIBUTE = re.compile(r"#\s*(!?)\s*\[")
CONTINUES = re.compile(r"\s*(?:else\b|\.|\?|=)")


def end_of_item(shape, at):
    """Returns the end of the item, statement, field, arm or expression that begins at `at`."""
    while spaces := re.compile(r"\s+").match(shape, at):
        at = spaces.end()
    while (attribute := ATTRIBUTE.match(shape, at)) and not attribute[1]:
        at = re.compile(r"\s*").match(shape, close(shape, attribute.end() - 1)).end()
    ends_by_block = BY_BLOCK.match(shape, at) is not None
    ends_by_semicolon = not ends_by_block and BY_SEMICOLON.match(shape, at) is not None
    while at < len(shape):
        letter = shape[at]
        if letter in ")]}":
            return at
        if letter == ";" or letter == "," and not ends_by_block and not ends_by_semicolon:
            return at + 1
        if letter in "([":
            at = close(shape, at)
        elif letter == "{":
            at = close(shape, at)
            if ends_by_block:
                return at
            if not ends_by_semicolon and not CONTINUES.match(shape, at):
                follows = re.compile(r"\s*[,;]").match(shape, at)
                return follows.end() if follows else at
        else:
            at += 1
    return at


def enclosing(shape, at):
    """Returns the block that contains an inner attribute at `at`."""
    depth = 0
    for start in range(at - 1, -1, -1):
        depth += (shape[start] in ")]}") - (shape[start] in "([{")
        if depth < 0:
            return start + 1, close(shape, start) - 1
    return 0, len(shape)


def shipped(text):
    """Returns the text without comments and test-only code; line numbers are preserved."""
    code, shape = split(text)
    at = 0
    while attribute := ATTRIBUTE.search(shape, at):
        end = close(shape, attribute.end() - 1)
        content = code[attribute.end() : end - 1].strip()
        cfg = re.fullmatch(r"cfg\s*\((.*)\)", content, re.DOTALL)
        at = end
        if content == "test" or cfg and is_for_tests(cfg[1].strip().rstrip(",")):
            first, last = attribute.start(), end_of_item(shape, end)
            if attribute[1]:
                first, last = enclosing(shape, attribute.start())
            code = code[:first] + blank(code[first:last]) + code[last:]
            shape = shape[:first] + blank(shape[first:last]) + shape[last:]
            at = first
    return "\n".join(line.rstrip() for line in code.splitlines())


FIXTURE = r"""
//! Ordering::GONE_1 in a comment, /* and " are nothing here
use a::{b, c}; // KEPT in no comment: Ordering::GONE_2
fn first() { x.load(Ordering::KEPT_1); }
#[cfg(test)]
use d::{e, GONE_3};
fn second() { x.load(Ordering::KEPT_2); }
#[cfg(test)]
mod early { #[test] fn t() { let s = "}"; let c = '}'; let l: &'static str = r#"}"#; GONE_4 } }
fn third() { let brace = '{'; let text = "#[cfg(test)] {"; x.store(1, Ordering::KEPT_3); }
#[cfg(all(test, not(loom)))] #[allow(unused)] /* nested /* GONE_5 */ } */ fn helper<T>(a: [u8; 4]) -> T where T: D, { GONE_6 }
impl<'a> S<'a> {
    #[cfg(all(not(loom), any(test)))]
    pub(crate) fn only(&self) -> u8 { GONE_7 }
    fn also(&self) { fence(Ordering::KEPT_4) }
}
struct F { #[cfg(test)] gone: GONE_8, kept: KEPT_5 }
enum E { #[cfg(test)] A { gone: GONE_9 }, B(KEPT_6) }
fn fourth() {
    #[cfg(test)]
    let at = if GONE_10 { 1 } else { GONE_11 };
    #[cfg(test)]
    if GONE_12 { } else { GONE_13 }
    KEPT_7;
    #[cfg(test)]
    GONE_14.hook(|| { GONE_15 });
    let s = S { #[cfg(test)] seen: GONE_16, kept: KEPT_8 };
    match s { #[cfg(test)] S { .. } => { GONE_17 } _ => KEPT_9 }
    call(#[cfg(test)] GONE_18, KEPT_10);
}
#[cfg(any(test, feature = "x"))] fn kept_11() { KEPT_11 }
#[cfg(not(test))] fn kept_12() { KEPT_12 }
#[cfg_attr(test, derive(D))] struct K { k: KEPT_13 }
#[cfg(test)] const GONE_19: [u8; 2] = [1, 2]; const L: u8 = KEPT_14;
#[test] fn gone_20() { GONE_20 }
mod inner { #![cfg(test)] GONE_21 }
#[cfg(test)] mod tests;
const BEHIND: Ordering = ordering!("behind", Acquire => Relaxed); static S: &str = "KEPT_15";
"""


def test():
    """Checks that exactly the names that start with GONE are removed from the fixture."""
    text = shipped(FIXTURE)
    gone = re.findall(r"GONE_\d+", text)
    kept = re.findall(r"KEPT_\d+", text)
    assert not gone, f"test-only code is treated as shipped: {gone}"
    missing = [f"KEPT_{n}" for n in range(1, 16) if f"KEPT_{n}" not in kept]
    assert not missing, f"shipped code is missing: {missing}"
    assert 'ordering!("behind", Acquire => Relaxed)' in text, "an ordering after test-only items is missing"
    assert len(text.splitlines()) == len(FIXTURE.splitlines()), "lines moved"


if __name__ == "__main__":
    test()

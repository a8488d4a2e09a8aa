//! Joins modules of the page to one script, in which each module is a function that returns its exports.
//!
//! This is not a parser: it relies on the form of the page's modules, and refuses other forms. An import begins a line
//! and ends with `;` at the end of a line; it names the imported values, and a file of the same folder. An export is a
//! function, a class or a constant that is declared at the beginning of a line. No module imports itself through others.

use std::fmt::Write;

use crate::page::FILES;

/// The beginnings of an export, without the name that follows.
const EXPORTS: [&str; 5] =
    ["default function ", "async function ", "function ", "class ", "const "];

/// Texts that end or change a script element, and expressions that need a module.
const REFUSED: [&str; 4] = ["</script", "<!--", "import(", "import.meta"];

/// The names of a module and its imports and exports.
struct Module<'a> {
    body: String,
    /// The files that it imports, each with the names there and here.
    imports: Vec<(&'a str, Vec<(&'a str, &'a str)>)>,
    /// The exported names, each with its name in the module.
    exports: Vec<(&'a str, &'a str)>,
}

/// Joins the modules and all that they import, each after its imports. Returns the script, in which [`constant`] is the
/// name of a module's exports.
///
/// # Errors
///
/// A module has another form. The text names the module and the line.
pub(super) fn join(names: &[&str]) -> Result<String, String> {
    let (mut script, mut joined) = (String::new(), Vec::new());
    for name in names {
        add(name, &mut Vec::new(), &mut joined, &mut script)?;
    }
    Ok(script)
}

/// The name of the constant with the exports of a module.
pub(super) fn constant(file: &str) -> String {
    format!("${}", file.trim_end_matches(".js").replace('-', "_"))
}

fn add<'a>(
    name: &'a str,
    importers: &mut Vec<&'a str>,
    joined: &mut Vec<&'a str>,
    script: &mut String,
) -> Result<(), String> {
    if joined.contains(&name) {
        return Ok(());
    }
    if importers.contains(&name) {
        return Err(format!("{name} imports itself through {}", importers.join(", ")));
    }
    let text = FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text);
    let text = text.ok_or_else(|| format!("{name} is no file of the page"))?;
    let module = parsed(text).map_err(|what| format!("{name}: {what}"))?;
    importers.push(name);
    for (file, _) in &module.imports {
        add(file, importers, joined, script)?;
    }
    importers.pop();
    // Writing to a string does not fail.
    let _ = writeln!(script, "const {} = (() => {{", constant(name));
    for (file, names) in &module.imports {
        let _ = writeln!(script, "const {{ {} }} = {};", pairs(names), constant(file));
    }
    script.push_str(&module.body);
    let _ = writeln!(script, "return {{ {} }};\n}})();", pairs(&module.exports));
    joined.push(name);
    Ok(())
}

/// The properties of an object or of its pattern.
fn pairs(names: &[(&str, &str)]) -> String {
    let pairs = names.iter().map(|(there, here)| format!("{there}: {here}"));
    pairs.collect::<Vec<_>>().join(", ")
}

fn parsed(text: &str) -> Result<Module<'_>, String> {
    if let Some(refused) = REFUSED.iter().find(|it| text.contains(*it)) {
        return Err(format!("contains {refused}"));
    }
    let mut module = Module { body: String::new(), imports: Vec::new(), exports: Vec::new() };
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.split_inclusive('\n').next().unwrap_or(rest);
        if let Some(import) = rest.strip_prefix("import ") {
            let (import, after) = import.split_once(";\n").ok_or("an import has no end")?;
            module.imports.push(imported(import).ok_or_else(|| format!("import {import}"))?);
            rest = after;
            continue;
        }
        match line.strip_prefix("export ") {
            Some(export) => {
                let (kept, name) = exported(export).ok_or_else(|| line.trim_end().to_owned())?;
                module.exports.push(name);
                module.body.push_str(kept);
            }
            None => module.body.push_str(line),
        }
        rest = &rest[line.len()..];
    }
    Ok(module)
}

/// The file of an import, and the imported names.
fn imported(text: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (names, file) = text.split_once(" from './")?;
    let file = file.strip_suffix('\'')?;
    let list = names.strip_prefix('{').and_then(|names| names.strip_suffix('}'));
    let Some(list) = list else {
        return is_name(names).then(|| (file, vec![("default", names)]));
    };
    let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let pairs = list.map(|name| name.split_once(" as ").unwrap_or((name, name)));
    let pairs: Vec<(&str, &str)> = pairs.collect();
    pairs.iter().all(|(there, here)| is_name(there) && is_name(here)).then_some((file, pairs))
}

/// The declaration without `export`, and its names outside and inside of the module.
fn exported(text: &str) -> Option<(&str, (&str, &str))> {
    let start = EXPORTS.into_iter().find(|start| text.starts_with(start))?;
    let rest = &text[start.len()..];
    let end = rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
    let name = Some(&rest[..end]).filter(|name| is_name(name))?;
    Some(match text.strip_prefix("default ") {
        Some(kept) => (kept, ("default", name)),
        None => (text, (name, name)),
    })
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_the_page_can_be_joined() {
        let modules: Vec<&str> =
            FILES.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".js")).collect();
        assert!(modules.len() > 20, "{modules:?}");
        let script = join(&modules).expect("modules as they must be");
        for name in modules {
            assert_eq!(script.matches(&format!("const {} = (", constant(name))).count(), 1);
        }
    }

    #[test]
    fn modules_come_after_their_imports() {
        let script = join(&["explain.js"]).expect("modules as they must be");
        let place = |name: &str| script.find(&format!("const {} = (", constant(name)));
        assert!(place("dom.js") < place("heat.js") && place("heat.js") < place("explain.js"));
        assert_eq!(place("fleet.js"), None);
    }

    #[test]
    fn imports_and_exports_become_objects() {
        let text = "import a from './a.js';\nimport { b, c as d } from './b-c.js';\n\
                    import {\n  e,\n} from './e.js';\nexport const x = a;\n  export y\n\
                    export async function z() {}\nexport default function w() {}\n";
        let module = parsed(text).expect("a module");
        let imports = [
            ("a.js", vec![("default", "a")]),
            ("b-c.js", vec![("b", "b"), ("c", "d")]),
            ("e.js", vec![("e", "e")]),
        ];
        assert_eq!(module.imports, imports);
        assert_eq!(module.exports, [("x", "x"), ("z", "z"), ("default", "w")]);
        let body = "const x = a;\n  export y\nasync function z() {}\nfunction w() {}\n";
        assert_eq!(module.body, body);
        assert_eq!(constant("b-c.js"), "$b_c");
    }

    #[test]
    fn other_modules_are_refused() {
        for text in [
            "import * as a from './a.js';\n",
            "import a from 'a';\n",
            "import a, { b } from './a.js';\n",
            "import './a.js';\n",
            "import a from './a.js'",
            "export let a = 1;\n",
            "export { a };\n",
            "export const { a } = b;\n",
            "export default class {}\n",
            "export * from './a.js';\n",
            "const a = '</script>';\n",
            "const a = await import('./a.js');\n",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}

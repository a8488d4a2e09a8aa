//! `--html`: an answer as a page in one file, with the view of `portolan serve`.
//!
//! The file has the modules of the page that its view needs, joined to one script, and the answers to the questions of
//! this view, mostly those of the API. It loads nothing: a policy excludes all but its own script and style, which a
//! random number marks. Texts of an input are in the answers and in the title only; `<` is escaped in both.

mod modules;

use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::CommandError;
use crate::output;
use crate::page::{FILE, STYLE};
use crate::text::{line, shortened};

/// The longest command line that is shown, in characters: a shell may insert thousands of files.
const LONGEST: usize = 2000;

/// The file for a page.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HtmlFile {
    /// Output file for the answer as an HTML page, which loads nothing and needs no server.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A view of a page: a module whose default export creates it.
pub(crate) struct View {
    pub(crate) id: &'static str,
    pub(crate) module: &'static str,
    /// Its name for screen readers.
    pub(crate) name: &'static str,
}

/// A page before it is written.
pub(crate) struct Page {
    /// The first line of the answer.
    pub(crate) headline: String,
    pub(crate) view: View,
    /// The body of the question that the view asks.
    pub(crate) question: Value,
    /// Answers in JSON, by the question: method, path and body.
    pub(crate) answers: Vec<(String, String)>,
}

/// The key of an answer without a body.
pub(crate) fn asked(path: &str) -> String {
    format!("GET api/v1/{path}")
}

/// The key of an answer with a body.
pub(crate) fn posted(path: &str, body: &Value) -> String {
    format!("POST api/v1/{path} {body}")
}

impl HtmlFile {
    pub(crate) fn is_wanted(&self) -> bool {
        self.html.is_some()
    }

    /// Checks before a run that the file can be written.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        let Some(file) = &self.html else { return Ok(()) };
        // Opening a pipe would block.
        if file.is_file() && !output::is_free_for_page(file) {
            let what = "exists and is no HTML page: choose another file for --html, or remove it";
            return Err(CommandError::File { file: file.clone(), what: what.to_owned() });
        }
        output::check_replace(file)
    }

    /// Writes the page, if it is wanted.
    pub(crate) fn write(&self, page: Option<Page>) -> Result<(), CommandError> {
        let (Some(file), Some(page)) = (&self.html, page) else { return Ok(()) };
        let command = std::env::args_os().skip(1).map(|word| quoted(&word)).collect::<Vec<_>>();
        let text = page.text(&format!("portolan {}", command.join(" ")));
        let text = text.map_err(|what| CommandError::Output(std::io::Error::other(what)))?;
        output::replace(file, text)
    }
}

impl Page {
    /// The file. `command` is the command line that gave the answer.
    fn text(&self, command: &str) -> Result<String, String> {
        let module = self.view.module;
        let mut script = modules::join(&["file.js", module])?;
        let [frame, view] = ["file.js", module].map(modules::constant);
        script.push_str(&format!("{frame}.open({view}.default);\n"));
        let headline = line(&self.headline);
        let nonce = nonce();
        let values = [
            ("nonce", &*nonce),
            ("headline", &*escaped(&headline)),
            ("style", STYLE),
            ("recorded", &*self.recorded(command)),
            ("script", &*script),
        ];
        filled(FILE, &values)
    }

    /// The data of the script: the answers, and the texts around them.
    fn recorded(&self, command: &str) -> String {
        let about = json!({
            "headline": self.headline,
            "question": self.question,
            "command": shortened(command, LONGEST),
            "version": env!("CARGO_PKG_VERSION"),
            "view": self.view.id,
            "name": self.view.name,
        });
        let answers = self.answers.iter().map(|(key, text)| format!("{}:{text}", json!(key)));
        let answers = answers.collect::<Vec<_>>().join(",");
        // Only texts contain it, in which the escape is equal.
        format!("{{\"about\":{about},\"answers\":{{{answers}}}}}").replace('<', "\\u003c")
    }
}

/// A word of a command line, as a POSIX shell reads it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number that nobody knows before the file is written.
fn nonce() -> String {
    let [a, b] = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    format!("{a:016x}{b:016x}")
}

/// The template with its values, in which no further ones are replaced.
fn filled(template: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").ok_or("a value of the template has no end")?;
        let value = values.iter().find(|(known, _)| *known == name);
        let (_, value) = value.ok_or_else(|| format!("the template has no value {name}"))?;
        text.push_str(value);
        text.push_str(rest);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_an_input_cannot_end_their_elements() {
        let hostile = "</script><!-- <script>\u{202e}{{nonce}}&\"";
        let page = Page {
            headline: hostile.to_owned(),
            view: View { id: "audit", module: "findings.js", name: "Audit" },
            question: Value::Null,
            answers: vec![(asked("audit"), json!({ "summary": hostile }).to_string())],
        };
        let text = page.text(hostile).expect("a page");
        assert_eq!(text.matches("</script").count(), 2, "one for the data, one for the script");
        assert_eq!(text.matches("<!--").count(), 0);
        let (_, data) = text.split_once("id=\"recorded\">").expect("data");
        let (data, _) = data.split_once("</script>").expect("data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["about"]["headline"], hostile);
        assert_eq!(data["about"]["command"], hostile);
        assert_eq!(data["answers"]["GET api/v1/audit"]["summary"], hostile);
        let (_, title) = text.split_once("<title>").expect("a title");
        assert!(title.starts_with("&lt;/script&gt;&lt;!-- &lt;script&gt;"), "{}", &title[..99]);
        assert!(!title[..200].contains('\u{202e}'));
    }

    #[test]
    fn words_of_a_command_line_can_be_pasted() {
        for (word, text) in [("-f", "-f"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''")] {
            assert_eq!(quoted(OsStr::new(word)), text);
        }
    }
}

//! The files that a workload refers to: templates of objects and scheduler configurations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use portolan_cli::CommandError;
use portolan_cli::read;

use super::template::{Place, Template};

/// A template of an object, and its file.
#[derive(Debug)]
pub(super) struct Document {
    file: PathBuf,
    template: Template,
    /// The object, if it is the same at all places.
    constant: Option<Value>,
}

/// The templates of a file of workloads, by their paths as written.
#[derive(Debug)]
pub(super) struct Sources {
    folders: Vec<PathBuf>,
    documents: HashMap<String, Document>,
}

impl Sources {
    /// Templates of a file of workloads. Relative paths begin at the folder of that file, as in scheduler_perf, or
    /// else at the folder above, as before Kubernetes 1.33.
    pub(super) fn of(file: &Path) -> Sources {
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let above = folder.join("..");
        Sources { folders: vec![folder, above], documents: HashMap::new() }
    }

    /// The file that a path refers to.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        let mut candidates = self.folders.iter().map(|folder| folder.join(path));
        // If no candidate exists, the error names the first.
        let found = candidates.clone().find(|file| file.exists());
        found.or_else(|| candidates.next()).unwrap_or_else(|| path.into())
    }

    /// Reads a template, unless it is known.
    pub(super) fn load(&mut self, path: &str) -> Result<(), CommandError> {
        if !self.documents.contains_key(path) {
            let document = Document::read(self.file(path))?;
            self.documents.insert(path.to_owned(), document);
        }
        Ok(())
    }

    /// A template that was loaded.
    pub(super) fn get(&self, path: &str) -> Result<&Document, CommandError> {
        let unknown = || CommandError::Usage(format!("{path}: the template was not loaded"));
        self.documents.get(path).ok_or_else(unknown)
    }
}

impl Document {
    fn read(file: PathBuf) -> Result<Document, CommandError> {
        let text = String::from_utf8(read(&file)?);
        let text = text.map_err(|_| CommandError::File {
            file: file.clone(),
            what: "the text is not valid UTF-8".to_owned(),
        })?;
        let template = Template::parse(&text).map_err(|error| CommandError::Line {
            file: file.clone(),
            line: error.line,
            what: error.to_string(),
        })?;
        let mut document = Document { file, template, constant: None };
        // Invalid YAML is found before anything runs.
        let first = document.render(Place { index: 0, count: 1 })?;
        document.constant = document.template.is_constant().then_some(first);
        Ok(document)
    }

    /// The object at a place.
    pub(super) fn object(&self, place: Place) -> Result<Value, CommandError> {
        match &self.constant {
            Some(object) => Ok(object.clone()),
            None => self.render(place),
        }
    }

    fn render(&self, place: Place) -> Result<Value, CommandError> {
        let text = self.template.render(place).map_err(|error| CommandError::Line {
            file: self.file.clone(),
            line: error.line,
            what: error.to_string(),
        })?;
        let object: Map<String, Value> = portolan_k8s::yaml::from_str(&text).map_err(|error| {
            let (file, what) = (self.file.clone(), error.cause().to_string());
            match error.line() {
                Some(line) => CommandError::Line { file, line, what },
                None => CommandError::File { file, what },
            }
        })?;
        Ok(Value::Object(object))
    }
}

//! The OpenAPI document: the operations of the routes and the fields of a change, with the schemas of `openapi.json`.

use serde_json::{Value, json};

use crate::what_if::Change;

/// The schemas of the other bodies, and how clients authenticate.
const REST: &str = include_str!("openapi.json");

/// A method of a path, as the document describes it.
pub(super) struct Operation {
    method: &'static str,
    fields: Value,
}

/// A parameter of a query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) is_required: bool,
    pub(super) description: &'static str,
}

/// The paths with their operations as a document.
pub(super) fn document<'o>(paths: impl Iterator<Item = (&'static str, &'o [Operation])>) -> Value {
    let paths = paths.map(|(path, operations)| {
        let operations = operations.iter().map(|it| (it.method.to_owned(), it.json_of(path)));
        (path.to_owned(), Value::Object(operations.collect()))
    });
    let mut document: Value = serde_json::from_str(REST).unwrap_or_default();
    document["paths"] = Value::Object(paths.collect());
    let change = Change::schema();
    let mut session = change.clone();
    session["properties"]["parent"] = json!({
        "type": ["string", "null"],
        "description": "The session that this one begins with (default: the newest reading).",
    });
    session["properties"]["generation"] = json!({
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "The reading that this session begins with. Not with parent.",
    });
    document["components"]["schemas"]["Change"] = change;
    document["components"]["schemas"]["SessionRequest"] = session;
    document
}

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Operation {
    fn new(method: &'static str, summary: &str) -> Operation {
        let problem = json!({ "application/problem+json": { "schema": schema("Problem") } });
        let responses = json!({ "default": { "description": "An error.", "content": problem } });
        Operation { method, fields: json!({ "summary": summary, "responses": responses }) }
    }

    pub(super) fn get(summary: &str) -> Operation {
        Operation::new("get", summary)
    }

    /// With the name of the schema of its body.
    pub(super) fn post(summary: &str, body: &str) -> Operation {
        let mut operation = Operation::new("post", summary);
        let content = json!({ "application/json": { "schema": schema(body) } });
        operation.fields["requestBody"] = json!({ "required": true, "content": content });
        operation
    }

    pub(super) fn delete(summary: &str) -> Operation {
        Operation::new("delete", summary)
    }

    pub(super) fn with(mut self, parameters: &[Parameter]) -> Operation {
        let parameters = parameters.iter().map(|it| {
            let mut schema = json!({ "type": it.kind });
            if it.kind == "integer" {
                schema["minimum"] = json!(0);
            }
            json!({
                "name": it.name,
                "in": "query",
                "required": it.is_required,
                "schema": schema,
                "description": it.description,
            })
        });
        self.fields["parameters"] = parameters.collect();
        self
    }

    fn content(mut self, status: &str, kind: &str, schema: &Value) -> Operation {
        let answer = &mut self.fields["responses"][status];
        answer["description"] = json!("The answer.");
        answer["content"][kind] = json!({ "schema": schema });
        self
    }

    /// With the name of the schema of its answer.
    pub(super) fn json(self, of: &str) -> Operation {
        self.content("200", "application/json", &schema(of))
    }

    pub(super) fn lines(self, of: &str) -> Operation {
        self.content("200", "application/x-ndjson", &schema(of))
    }

    pub(super) fn created(self, of: &str) -> Operation {
        self.content("201", "application/json", &schema(of))
    }

    pub(super) fn text(self, kind: &str) -> Operation {
        self.content("200", kind, &json!({ "type": "string" }))
    }

    /// Without a body in its answer.
    pub(super) fn done(mut self, description: &str) -> Operation {
        self.fields["responses"]["204"] = json!({ "description": description });
        self
    }

    pub(super) fn described(mut self, description: &str) -> Operation {
        self.fields["description"] = json!(description);
        self
    }

    /// Without a token.
    pub(super) fn public(mut self) -> Operation {
        self.fields["security"] = json!([]);
        self
    }

    /// The operation of this path, with the parameters in it.
    fn json_of(&self, path: &str) -> Value {
        let mut fields = self.fields.clone();
        let words = path.trim_start_matches("/api/v1").split(|of: char| !of.is_alphanumeric());
        let capitalized = words.flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        });
        let id: String = self.method.chars().chain(capitalized).collect();
        fields["operationId"] = json!(id);
        let named = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let mut parameters: Vec<Value> = named
            .map(|name| {
                let schema = json!({ "type": "string" });
                json!({ "name": name, "in": "path", "required": true, "schema": schema })
            })
            .collect();
        if let Some(Value::Array(of_query)) = fields.get("parameters") {
            parameters.extend(of_query.iter().cloned());
        }
        if !parameters.is_empty() {
            fields["parameters"] = Value::Array(parameters);
        }
        fields
    }
}

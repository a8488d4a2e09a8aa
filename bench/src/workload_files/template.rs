//! The part of Go's text templates that workloads use: fields, constants and calls of the functions that scheduler_perf
//! defines. Control structures, variables and pipelines are refused, with the expression that contains them.

use std::fmt;

/// The values that a template may name: `.Index` and `.Count`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The number of the object, from 0.
    pub(super) index: usize,
    /// The number of objects.
    pub(super) count: usize,
}

/// An expression that is not supported, or that has no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateError {
    /// The line of the expression, from 1.
    pub(super) line: u64,
    /// The expression between its braces.
    pub(super) expression: String,
    why: &'static str,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the template expression {{{{{}}}}} {}", self.expression, self.why)
    }
}

/// A parsed template.
#[derive(Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Value { line: u64, expression: String, value: Expression },
}

#[derive(Debug)]
enum Expression {
    Index,
    Count,
    Text(String),
    Number(f64),
    Call(Function, Vec<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Add(Kind),
    Subtract(Kind),
    Multiply(Kind),
    Divide(Kind),
    Mod,
}

/// The type of a function's result. An integer is truncated, as Go converts floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Float,
}

const FUNCTIONS: [(&str, Function); 9] = [
    ("AddFloat", Function::Add(Kind::Float)),
    ("AddInt", Function::Add(Kind::Int)),
    ("DivideFloat", Function::Divide(Kind::Float)),
    ("DivideInt", Function::Divide(Kind::Int)),
    ("Mod", Function::Mod),
    ("MultiplyFloat", Function::Multiply(Kind::Float)),
    ("MultiplyInt", Function::Multiply(Kind::Int)),
    ("SubtractFloat", Function::Subtract(Kind::Float)),
    ("SubtractInt", Function::Subtract(Kind::Int)),
];

impl Template {
    /// Parses a text. O(length).
    pub(super) fn parse(text: &str) -> Result<Template, TemplateError> {
        let mut pieces = Vec::new();
        let (mut rest, mut line) = (text, 1);
        while let Some(open) = rest.find("{{") {
            let (before, after) = (&rest[..open], &rest[open + 2..]);
            line += lines(before);
            let failed = |expression: &str, why| {
                Err(TemplateError { line, expression: expression.trim().to_owned(), why })
            };
            let Some(close) = after.find("}}") else {
                return failed(after.lines().next().unwrap_or_default(), "is not closed");
            };
            let inner = &after[..close];
            rest = &after[close + 2..];
            // `{{- ` and ` -}}` trim the text beside them.
            let (trims_before, inner_text) = match inner.strip_prefix("- ") {
                Some(inner) => (true, inner),
                None => (false, inner),
            };
            let (trims_after, inner_text) = match inner_text.strip_suffix(" -") {
                Some(inner) => (true, inner),
                None => (false, inner_text),
            };
            let before = if trims_before { before.trim_end() } else { before };
            pieces.push(Piece::Text(before.to_owned()));
            let expression = inner_text.trim();
            if !(expression.starts_with("/*") && expression.ends_with("*/")) {
                let value = match Parser(expression).whole() {
                    Ok(value) => value,
                    Err(why) => return failed(inner, why),
                };
                pieces.push(Piece::Value { line, expression: expression.to_owned(), value });
            }
            line += lines(inner);
            if trims_after {
                let trimmed = rest.trim_start();
                line += lines(&rest[..rest.len() - trimmed.len()]);
                rest = trimmed;
            }
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }

    /// Whether all places yield the same text.
    pub(super) fn is_constant(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The text for one object.
    pub(super) fn render(&self, place: Place) -> Result<String, TemplateError> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value { line, expression, value } => {
                    let value = value.evaluate(place).map_err(|why| TemplateError {
                        line: *line,
                        expression: expression.clone(),
                        why,
                    })?;
                    out.push_str(&value.to_string());
                }
            }
        }
        Ok(out)
    }
}

fn lines(text: &str) -> u64 {
    text.matches('\n').count() as u64
}

enum Value<'e> {
    Text(&'e str),
    Number(f64),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => number.fmt(f),
        }
    }
}

impl Expression {
    fn evaluate(&self, place: Place) -> Result<Value<'_>, &'static str> {
        match self {
            Expression::Index => Ok(Value::Number(place.index as f64)),
            Expression::Count => Ok(Value::Number(place.count as f64)),
            Expression::Number(number) => Ok(Value::Number(*number)),
            Expression::Text(text) => Ok(Value::Text(text)),
            Expression::Call(function, arguments) => {
                let number = |argument: &Expression| match argument.evaluate(place)? {
                    Value::Number(number) => Ok(number),
                    Value::Text(text) => {
                        text.parse().map_err(|_| "has an argument that is not a number")
                    }
                };
                let numbers: Result<Vec<f64>, _> = arguments.iter().map(number).collect();
                function.of(&numbers?).map(Value::Number)
            }
        }
    }
}

impl Function {
    fn of(self, numbers: &[f64]) -> Result<f64, &'static str> {
        let (value, kind) = match (self, numbers) {
            (Function::Add(kind), numbers) => (numbers.iter().sum(), kind),
            (Function::Multiply(kind), numbers) => (numbers.iter().product(), kind),
            (Function::Subtract(kind), [a, b]) => (a - b, kind),
            (Function::Divide(kind), [a, b]) if *b != 0.0 => (a / b, kind),
            (Function::Mod, [a, b]) if b.trunc() != 0.0 => (a.trunc() % b.trunc(), Kind::Int),
            (Function::Divide(_) | Function::Mod, [_, _]) => return Err("divides by zero"),
            _ => return Err("has the wrong number of arguments: two are needed"),
        };
        Ok(if kind == Kind::Int { value.trunc() } else { value })
    }
}

/// The unread rest of an expression.
struct Parser<'e>(&'e str);

const UNSUPPORTED: &str = "is not supported: only .Index, .Count, constants, and calls of AddFloat, AddInt, \
    DivideFloat, DivideInt, Mod, MultiplyFloat, MultiplyInt, SubtractFloat and SubtractInt are";

impl Parser<'_> {
    fn whole(mut self) -> Result<Expression, &'static str> {
        let value = self.call()?;
        if self.0.trim().is_empty() { Ok(value) } else { Err(UNSUPPORTED) }
    }

    /// A call with its arguments, or a single operand.
    fn call(&mut self) -> Result<Expression, &'static str> {
        self.0 = self.0.trim_start();
        let name = self.0.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let Some((_, function)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
            return self.operand();
        };
        self.0 = &self.0[name.len()..];
        let mut arguments = Vec::new();
        loop {
            self.0 = self.0.trim_start();
            if self.0.is_empty() || self.0.starts_with(')') {
                return Ok(Expression::Call(*function, arguments));
            }
            arguments.push(self.operand()?);
        }
    }

    fn operand(&mut self) -> Result<Expression, &'static str> {
        if let Some(rest) = self.0.strip_prefix('(') {
            self.0 = rest;
            let value = self.call()?;
            self.0 = self.0.trim_start().strip_prefix(')').ok_or("lacks a closing parenthesis")?;
            return Ok(value);
        }
        if let Some(rest) = self.0.strip_prefix('"') {
            let (text, rest) = rest.split_once('"').ok_or("lacks a closing quotation mark")?;
            if text.contains('\\') {
                return Err("is not supported: constants with escapes are not");
            }
            self.0 = rest;
            return Ok(Expression::Text(text.to_owned()));
        }
        let end = self.0.find(|c: char| c.is_whitespace() || c == ')').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        match word {
            ".Index" => Ok(Expression::Index),
            ".Count" => Ok(Expression::Count),
            word => match word.parse() {
                Ok(number) if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                    Ok(Expression::Number(number))
                }
                _ => Err(UNSUPPORTED),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, index: usize, count: usize) -> Result<String, String> {
        let render = |template: Template| template.render(Place { index, count });
        Template::parse(text).and_then(render).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_and_functions_have_the_values_of_go() {
        for (text, expected) in [
            ("pod-{{.Index}} of {{ .Count }}", "pod-7 of 30"),
            ("8{{ Mod .Index 4 }}", "83"),
            ("{{ DivideInt 30000 .Count }}Mi", "1000Mi"),
            ("{{DivideInt .Index 2}} {{DivideFloat .Index 2}}", "3 3.5"),
            ("{{ AddInt .Index 1.9 }} {{ AddFloat 0.5 0.25 .Index }}", "8 7.75"),
            ("{{ SubtractInt 1 .Index }} {{ SubtractFloat 1 0.5 }}", "-6 0.5"),
            ("{{ MultiplyInt (AddInt .Index 1) \"2\" }}", "16"),
            ("{{ MultiplyFloat .Index 0.5 }}", "3.5"),
            ("{{ Mod (SubtractInt 0 .Index) 4 }}", "-3"),
            ("a \n{{- /* a comment */ -}}\n b{{ \"c d\" }}", "ab".replace('b', "bc d").as_str()),
        ] {
            assert_eq!(rendered(text, 7, 30).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_expression_that_is_not_supported_is_named() {
        for (text, expression, why) in [
            ("{{ if .Index }}a{{ end }}", "{{if .Index}}", "is not supported"),
            ("{{ range $i := .Items }}", "{{range $i := .Items}}", "is not supported"),
            ("{{ .Index | printf \"%d\" }}", "{{.Index | printf \"%d\"}}", "is not supported"),
            ("{{ .Name }}", "{{.Name}}", "is not supported"),
            ("{{ Modulo .Index 2 }}", "{{Modulo .Index 2}}", "is not supported"),
            ("{{ .Index", "{{.Index}}", "is not closed"),
            ("{{ AddInt (AddInt 1 2 }}", "{{AddInt (AddInt 1 2}}", "parenthesis"),
            ("{{ Mod .Index 0 }}", "{{Mod .Index 0}}", "divides by zero"),
            ("{{ DivideInt .Index }}", "{{DivideInt .Index}}", "wrong number of arguments"),
            ("{{ AddInt \"x\" }}", "{{AddInt \"x\"}}", "not a number"),
        ] {
            let error = rendered(text, 0, 1).expect_err(text);
            assert!(error.contains(expression) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn errors_have_the_line_of_their_expression() {
        let line = |text: &str| Template::parse(text).expect_err(text).line;
        assert_eq!(line("a\nb: {{ if }}"), 2);
        assert_eq!(line("{{ .Index -}}\n\n{{ if }}"), 3);
    }
}

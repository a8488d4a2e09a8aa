//! The part of Go's text templates that the files of scheduler_perf use: `.Index`, `.Count`, and one call of a function
//! of whole numbers, such as `Mod .Index 4`. Other expressions are refused, with the expression.

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

/// A text with expressions.
#[derive(Debug)]
pub(super) struct Template {
    /// Each expression, its line, and the text before it.
    expressions: Vec<(String, u64, String)>,
    /// The text after the last expression.
    end: String,
}

impl Template {
    /// Finds the expressions of a text, without evaluating them. O(length).
    pub(super) fn parse(text: &str) -> Result<Template, TemplateError> {
        let lines = |text: &str| text.matches('\n').count() as u64;
        let mut expressions = Vec::new();
        let (mut rest, mut line) = (text, 1);
        while let Some((before, after)) = rest.split_once("{{") {
            line += lines(before);
            let Some((expression, after)) = after.split_once("}}") else {
                let expression = after.lines().next().unwrap_or_default().trim().to_owned();
                return Err(TemplateError { line, expression, why: "is not closed" });
            };
            expressions.push((expression.trim().to_owned(), line, before.to_owned()));
            line += lines(expression);
            rest = after;
        }
        Ok(Template { expressions, end: rest.to_owned() })
    }

    /// Whether all places yield the same text.
    pub(super) fn is_constant(&self) -> bool {
        self.expressions.is_empty()
    }

    /// The text for one object.
    pub(super) fn render(&self, place: Place) -> Result<String, TemplateError> {
        let mut out = String::new();
        for (expression, line, before) in &self.expressions {
            let value = evaluate(expression, place).map_err(|why| TemplateError {
                line: *line,
                expression: expression.clone(),
                why,
            })?;
            out.push_str(before);
            out.push_str(&value.to_string());
        }
        out.push_str(&self.end);
        Ok(out)
    }
}

const UNSUPPORTED: &str = "is not supported: only .Index, .Count, whole numbers, and calls of AddInt, DivideInt, Mod, \
    MultiplyInt and SubtractInt with two of them are";

fn evaluate(expression: &str, place: Place) -> Result<i64, &'static str> {
    let operand = |word: &str| match word {
        ".Index" => Ok(place.index as i64),
        ".Count" => Ok(place.count as i64),
        number => number.parse().map_err(|_| UNSUPPORTED),
    };
    let words: Vec<&str> = expression.split_whitespace().collect();
    let (function, a, b) = match words[..] {
        [word] => return operand(word),
        [function, a, b] => (function, operand(a)?, operand(b)?),
        _ => return Err(UNSUPPORTED),
    };
    let value = match function {
        "AddInt" => a.checked_add(b),
        "SubtractInt" => a.checked_sub(b),
        "MultiplyInt" => a.checked_mul(b),
        "DivideInt" => a.checked_div(b),
        "Mod" => a.checked_rem(b),
        _ => return Err(UNSUPPORTED),
    };
    value.ok_or("divides by zero, or its value is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Result<String, String> {
        let render = |template: Template| template.render(Place { index: 7, count: 30 });
        Template::parse(text).and_then(render).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_and_functions_have_the_values_of_go() {
        for (text, expected) in [
            ("pod-{{.Index}} of {{ .Count }}.", "pod-7 of 30."),
            ("8{{ Mod .Index 4 }}", "83"),
            ("{{ DivideInt 30000 .Count }}Mi", "1000Mi"),
            ("{{DivideInt .Index 2}} {{AddInt .Index -1}} {{ SubtractInt 1 .Index }}", "3 6 -6"),
            ("{{ Mod -7 4 }} {{ MultiplyInt .Index 2 }}", "-3 14"),
        ] {
            assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_expression_that_is_not_supported_is_named() {
        for (expression, why) in [
            ("if .Index", "is not supported"),
            (".Index | printf \"%d\"", "is not supported"),
            (".Name", "is not supported"),
            ("Modulo .Index 2", "is not supported"),
            ("AddInt (AddInt 1 2) 3", "is not supported"),
            ("DivideInt .Index", "is not supported"),
            ("DivideFloat .Index 0.5", "is not supported"),
            ("- .Index -", "is not supported"),
            ("Mod .Index 0", "divides by zero"),
        ] {
            let error = rendered(&format!("a: {{{{ {expression} }}}}")).expect_err(expression);
            let expected = format!("the template expression {{{{{expression}}}}} {why}");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(
            rendered("{{ .Index").is_err_and(|error| error.ends_with("{{.Index}} is not closed"))
        );
    }

    #[test]
    fn errors_have_the_line_of_their_expression() {
        let template = Template::parse("a\nb: {{ .Index }}\n\n{{ if }}").expect("closed");
        let line = template.render(Place { index: 0, count: 1 }).expect_err("not supported").line;
        assert_eq!(line, 4);
        assert_eq!(Template::parse("a\n{{ .Index").expect_err("not closed").line, 2);
    }
}

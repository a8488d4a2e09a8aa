//! Parses an expression into a syntax tree, expanding macros on the way.
//!
//! The grammar is the language definition's with optional syntax (`a.?b`, `a[?b]`, `[?a]`, `{?a: b}`). Message literals
//! are refused: selectors have no messages to build. Chains of `&&` and `||` become balanced trees, as in cel-go, which
//! decides how errors and costs combine.

use super::ast::{Entry, Expr, Fold, Item, Kind, MAX_DEPTH, MAX_NODES};
use super::error::Fail;
use super::lexer::{Token, tokens};
use super::macros;
use super::value::Value;

/// How deep brackets and prefix operators nest in source text.
const MAX_NESTING: u32 = 100;
/// The longest expression, in bytes: ten times the limit of the Kubernetes API.
const MAX_LENGTH: usize = 102_400;

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A parsed expression. Its nodes are numbered below `ids`.
pub(super) struct Parsed {
    pub(super) root: Expr,
    pub(super) ids: usize,
}

pub(super) fn parse(text: &str) -> Result<Parsed, Fail> {
    if text.len() > MAX_LENGTH {
        return Err(Fail::at(0, format!("expression is longer than {MAX_LENGTH} bytes")));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, nesting: 0, nodes: Nodes { ids: 0 } };
    let root = parser.expression()?;
    if *parser.peek() != Token::End {
        return Err(parser.unexpected("<EOF>"));
    }
    Ok(Parsed { root, ids: parser.nodes.ids })
}

/// Makes and numbers the nodes, for the parser and the macros.
pub(super) struct Nodes {
    ids: usize,
}

impl Nodes {
    pub(super) fn make(&mut self, at: usize, kind: Kind) -> Result<Expr, Fail> {
        let id = self.ids;
        self.ids += 1;
        let mut expr = Expr { id, at, depth: 0, kind };
        let mut depth = 0;
        expr.children(&mut |child| depth = depth.max(child.depth));
        expr.depth = depth + 1;
        if expr.depth > MAX_DEPTH {
            return Err(Fail::at(at, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        Ok(expr)
    }

    pub(super) fn constant(&mut self, at: usize, value: Value<'static>) -> Result<Expr, Fail> {
        self.make(at, Kind::Const(value))
    }

    pub(super) fn ident(&mut self, at: usize, name: &str) -> Result<Expr, Fail> {
        self.make(at, Kind::Ident(name.to_owned()))
    }

    pub(super) fn call(&mut self, at: usize, name: &str, args: Vec<Expr>) -> Result<Expr, Fail> {
        self.make(at, Kind::Call { target: None, name: name.to_owned(), args })
    }

    pub(super) fn method(
        &mut self,
        at: usize,
        target: Expr,
        name: &str,
        args: Vec<Expr>,
    ) -> Result<Expr, Fail> {
        let target = Some(Box::new(target));
        self.make(at, Kind::Call { target, name: name.to_owned(), args })
    }

    /// Copies a tree under new numbers. An expression of copies of copies would grow without bound.
    pub(super) fn copy(&mut self, expr: &Expr) -> Result<Expr, Fail> {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        match self.ids > MAX_NODES {
            true => Err(Fail::at(expr.at, format!("expression has more than {MAX_NODES} nodes"))),
            false => Ok(copy),
        }
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.ids;
        self.ids += 1;
        match &mut expr.kind {
            Kind::Const(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| self.renumber(target));
                args.iter_mut().for_each(|arg| self.renumber(arg));
            }
            Kind::List(items) => items.iter_mut().for_each(|item| self.renumber(&mut item.value)),
            Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
                self.renumber(&mut entry.key);
                self.renumber(&mut entry.value);
            }),
            Kind::Fold(fold) => {
                let Fold { range, init, cond, step, result, .. } = &mut **fold;
                [range, init, cond, step, result].into_iter().for_each(|part| self.renumber(part));
            }
        }
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    nesting: u32,
    nodes: Nodes,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    /// Takes the next token; the last one is taken any number of times.
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn accept(&mut self, sign: &'static str) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        if found {
            self.take();
        }
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Fail> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn unexpected(&self, expected: &str) -> Fail {
        let found = match self.peek() {
            Token::End => "<EOF>".to_owned(),
            Token::Int(text) | Token::Uint(text) | Token::Double(text) | Token::Ident(text) => {
                text.clone()
            }
            Token::Str(text) => format!("{text:?}"),
            Token::Bytes(_) => "bytes".to_owned(),
            Token::Sign(sign) => (*sign).to_owned(),
        };
        Fail::at(
            self.at(),
            format!("Syntax error: mismatched input '{found}' expecting {expected}"),
        )
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Parser) -> Result<T, Fail>) -> Result<T, Fail> {
        if self.nesting >= MAX_NESTING {
            return Err(Fail::at(
                self.at(),
                format!("expression recursion limit exceeded: {MAX_NESTING}"),
            ));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    /// `condition ? a : b`, or a condition alone.
    fn expression(&mut self) -> Result<Expr, Fail> {
        self.nested(|parser| {
            let condition = parser.logic("||", "_||_")?;
            let at = parser.at();
            if !parser.accept("?") {
                return Ok(condition);
            }
            let then = parser.logic("||", "_||_")?;
            parser.expect(":")?;
            let otherwise = parser.expression()?;
            parser.nodes.call(at, "_?_:_", vec![condition, then, otherwise])
        })
    }

    fn logic(&mut self, sign: &'static str, name: &str) -> Result<Expr, Fail> {
        let mut terms = Vec::new();
        let mut signs = Vec::new();
        loop {
            terms.push(if sign == "||" { self.logic("&&", "_&&_")? } else { self.binary(0)? });
            signs.push(self.at());
            if !self.accept(sign) {
                signs.pop();
                return self.balance(name, &mut terms.into_iter(), &signs);
            }
        }
    }

    /// Makes a tree of the terms between the signs, cut at the middle sign as cel-go does.
    fn balance(
        &mut self,
        name: &str,
        terms: &mut std::vec::IntoIter<Expr>,
        signs: &[usize],
    ) -> Result<Expr, Fail> {
        let middle = signs.len() / 2;
        let Some(at) = signs.get(middle) else {
            return terms.next().ok_or_else(|| self.unexpected("an operand"));
        };
        let left = self.balance(name, terms, &signs[..middle])?;
        let right = self.balance(name, terms, &signs[middle + 1..])?;
        self.nodes.call(*at, name, vec![left, right])
    }

    /// Comparisons, sums and products, which associate to the left.
    fn binary(&mut self, weakest: u8) -> Result<Expr, Fail> {
        let mut left = self.unary()?;
        loop {
            let (strength, name) = match self.peek() {
                Token::Sign("<") => (0, "_<_"),
                Token::Sign("<=") => (0, "_<=_"),
                Token::Sign(">") => (0, "_>_"),
                Token::Sign(">=") => (0, "_>=_"),
                Token::Sign("==") => (0, "_==_"),
                Token::Sign("!=") => (0, "_!=_"),
                Token::Sign("in") => (0, "@in"),
                Token::Sign("+") => (1, "_+_"),
                Token::Sign("-") => (1, "_-_"),
                Token::Sign("*") => (2, "_*_"),
                Token::Sign("/") => (2, "_/_"),
                Token::Sign("%") => (2, "_%_"),
                _ => return Ok(left),
            };
            if strength < weakest {
                return Ok(left);
            }
            let at = self.at();
            self.take();
            let right = self.binary(strength + 1)?;
            left = self.nodes.call(at, name, vec![left, right])?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Fail> {
        let at = self.at();
        for (sign, name) in [("!", "!_"), ("-", "-_")] {
            let mut odd = false;
            let mut any = false;
            while *self.peek() == Token::Sign(sign) && !self.at_negative_number() {
                self.take();
                odd = !odd;
                any = true;
            }
            if any {
                let operand = self.member()?;
                return if odd { self.nodes.call(at, name, vec![operand]) } else { Ok(operand) };
            }
        }
        self.member()
    }

    fn at_negative_number(&self) -> bool {
        *self.peek() == Token::Sign("-")
            && matches!(self.tokens.get(self.next + 1), Some((Token::Int(_) | Token::Double(_), _)))
    }

    /// A primary expression with its selections, calls and indexes.
    fn member(&mut self) -> Result<Expr, Fail> {
        let mut operand = self.primary()?;
        loop {
            let at = self.at();
            if self.accept(".") {
                let optional = self.accept("?");
                let name_at = self.at();
                let Token::Ident(name) = self.peek().clone() else {
                    return Err(self.unexpected("IDENTIFIER"));
                };
                self.take();
                let call_at = self.at();
                operand = if optional {
                    let field = self.nodes.constant(name_at, Value::Str(name.into()))?;
                    self.nodes.call(at, "_?._", vec![operand, field])?
                } else if self.accept("(") {
                    let args = self.arguments()?;
                    macros::method(&mut self.nodes, call_at, operand, &name, args)?
                } else {
                    let operand = Box::new(operand);
                    self.nodes.make(at, Kind::Select { operand, field: name, test: false })?
                };
            } else if self.accept("[") {
                let name = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                operand = self.nodes.call(at, name, vec![operand, index])?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// The arguments up to the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expr>, Fail> {
        let mut args = Vec::new();
        if self.accept(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if !self.accept(",") {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Fail> {
        let at = self.at();
        if self.accept("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.accept("[") {
            return self.list(at);
        }
        if self.accept("{") {
            return self.map(at);
        }
        let dot = self.accept(".");
        if let Token::Ident(name) = self.peek().clone() {
            self.take();
            if RESERVED.contains(&name.as_str()) {
                return Err(Fail::at(at, format!("reserved identifier: {name}")));
            }
            let call_at = self.at();
            if self.accept("(") {
                let args = self.arguments()?;
                return macros::function(&mut self.nodes, call_at, &name, args);
            }
            if *self.peek() == Token::Sign("{") {
                return Err(Fail::at(self.at(), "message literals are not supported"));
            }
            return self.nodes.ident(at, &name);
        }
        if dot {
            return Err(self.unexpected("IDENTIFIER"));
        }
        let value = self.literal()?;
        self.nodes.constant(at, value)
    }

    fn literal(&mut self) -> Result<Value<'static>, Fail> {
        let at = self.at();
        let sign = if self.at_negative_number() {
            self.take();
            "-"
        } else {
            ""
        };
        let radix = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => (format!("{sign}{digits}"), 16),
            None => (format!("{sign}{text}"), 10),
        };
        let value = match self.peek() {
            Token::Int(text) => {
                let (digits, radix) = radix(text);
                i64::from_str_radix(&digits, radix).map(Value::Int).map_err(|_| "int")
            }
            Token::Uint(text) => {
                let (digits, radix) = radix(text);
                u64::from_str_radix(&digits, radix).map(Value::Uint).map_err(|_| "uint")
            }
            Token::Double(text) => match format!("{sign}{text}").parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Value::Double(number)),
                _ => Err("double"),
            },
            Token::Str(text) => Ok(Value::Str(text.clone().into())),
            Token::Bytes(bytes) => Ok(Value::Bytes(bytes.clone().into())),
            Token::Sign("true") => Ok(Value::Bool(true)),
            Token::Sign("false") => Ok(Value::Bool(false)),
            Token::Sign("null") => Ok(Value::Null),
            _ => return Err(self.unexpected("an operand")),
        };
        self.take();
        value.map_err(|kind| Fail::at(at, format!("invalid {kind} literal")))
    }

    /// The rest of a list literal, which may end with a comma.
    fn list(&mut self, at: usize) -> Result<Expr, Fail> {
        let mut items = Vec::new();
        while !self.accept("]") {
            let optional = self.accept("?");
            items.push(Item { value: self.expression()?, optional });
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        self.nodes.make(at, Kind::List(items))
    }

    /// The rest of a map literal, which may end with a comma.
    fn map(&mut self, at: usize) -> Result<Expr, Fail> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expression()?, optional });
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        self.nodes.make(at, Kind::Map(entries))
    }
}

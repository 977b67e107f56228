//! A syntax check for CEL, the Common Expression Language, with its standard macros. Types and names are left to the evaluator.
//!
//! No crate fits. `cel` (MIT; formerly `cel-parser` and `cel-interpreter`) is the one that is maintained. Its parser, of
//! ANTLR, can overflow the stack on nested input before its own limit of depth ends it (cel-rust issues 212 and 305), which
//! would end the process; the right to write a Telemetry would be enough for that. Besides, it comes with an evaluator
//! that has no use here.

mod lexer;

use super::check::Checked;
use lexer::Token;

/// Maximum nesting, as in Istio's parser.
const DEEPEST: usize = 250;

/// Reserved words, which cannot be identifiers.
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

/// The shape of an expression, as far as macros depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Name,
    Field,
    Other,
}

type Parsed = Result<Shape, String>;

/// A call of a function in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The name of the function.
    pub name: String,
    /// It is called on a value.
    pub is_method: bool,
    /// It binds a name and evaluates an expression for each element of a list.
    pub is_comprehension: bool,
    /// The number of arguments.
    pub arguments: usize,
    /// The last argument, where it is a text without escapes of characters.
    pub text: Option<String>,
}

/// The parts of an expression that not every evaluator has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// The calls, in the order of their ends.
    pub calls: Vec<Call>,
    /// It has the syntax of optional values (`a.?b`).
    pub has_optionals: bool,
    /// It makes messages (`Name{field: 1}`).
    pub makes_messages: bool,
}

/// Checks that the text is an expression.
pub(super) fn parse(text: &str) -> Checked {
    outline(text).map(drop)
}

/// The parts of an expression that not every evaluator has.
///
/// # Errors
/// The text is no expression.
pub fn outline(text: &str) -> Result<Outline, String> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, found: Outline::default() };
    parser.expression().map_err(|e| format!("not a CEL expression: {e}"))?;
    match parser.peek() {
        None => Ok(parser.found),
        Some(token) => Err(format!("not a CEL expression: {token} is too much")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    found: Outline,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol);
        self.at += usize::from(found);
        found
    }

    fn optional(&mut self) -> bool {
        let found = self.take("?");
        self.found.has_optionals |= found;
        found
    }

    /// Notes a call whose closing bracket was just taken.
    fn note(&mut self, name: &str, is_method: bool, arguments: &[Shape]) {
        let last = self.tokens.get(..self.at).unwrap_or_default();
        let text = match last {
            [.., Token::Symbol("(" | ","), Token::Literal(text), Token::Symbol(")")] => text.clone(),
            _ => None,
        };
        let is_comprehension = is_method && is_macro(name, arguments.len());
        let arguments = arguments.len();
        self.found.calls.push(Call { name: name.to_string(), is_method, is_comprehension, arguments, text });
    }

    fn need(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(self.wanted(symbol)) }
    }

    fn wanted(&self, what: &str) -> String {
        match self.peek() {
            Some(token) => format!("{what} is wanted where {token} stands"),
            None => format!("it ends where {what} is wanted"),
        }
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("it is nested too deeply".to_string());
        }
        let mut shape = self.binary(0)?;
        if self.take("?") {
            self.binary(0)?;
            self.need(":")?;
            self.expression()?;
            shape = Shape::Other;
        }
        self.depth -= 1;
        Ok(shape)
    }

    /// Parses binary operators, from the loosest to the tightest.
    fn binary(&mut self, level: usize) -> Parsed {
        const LEVELS: [&[&str]; 5] =
            [&["||"], &["&&"], &["<=", "<", ">=", ">", "==", "!=", "in"], &["+", "-"], &["*", "/", "%"]];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut shape = self.binary(level + 1)?;
        while operators.iter().any(|o| self.take(o)) {
            self.binary(level + 1)?;
            shape = Shape::Other;
        }
        Ok(shape)
    }

    fn unary(&mut self) -> Parsed {
        let signed = match self.peek() {
            Some(Token::Symbol(sign @ ("!" | "-"))) => {
                let sign = *sign;
                while self.take(sign) {}
                true
            }
            _ => false,
        };
        let shape = self.member()?;
        Ok(if signed { Shape::Other } else { shape })
    }

    fn member(&mut self) -> Parsed {
        let mut shape = self.primary()?;
        loop {
            if self.take(".") {
                let optional = self.optional();
                let name = self.name("a field")?;
                shape = if !optional && self.take("(") {
                    let arguments = self.arguments(")")?;
                    comprehension(&name, &arguments)?;
                    self.note(&name, true, &arguments);
                    Shape::Other
                } else {
                    Shape::Field
                };
            } else if self.take("[") {
                self.optional();
                self.expression()?;
                self.need("]")?;
                shape = Shape::Other;
            } else if matches!(shape, Shape::Name | Shape::Field) && self.take("{") {
                self.found.makes_messages = true;
                self.entries(true)?;
                shape = Shape::Other;
            } else {
                return Ok(shape);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        if self.take("(") {
            let shape = self.expression()?;
            self.need(")")?;
            return Ok(shape);
        }
        if self.take("[") {
            self.arguments("]")?;
            return Ok(Shape::Other);
        }
        if self.take("{") {
            self.entries(false)?;
            return Ok(Shape::Other);
        }
        if matches!(self.peek(), Some(Token::Literal(_))) {
            self.at += 1;
            return Ok(Shape::Other);
        }
        let rooted = self.take(".");
        let name = self.name("a value")?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("{name} is a reserved word"));
        }
        if self.take("(") {
            let arguments = self.arguments(")")?;
            if name == "has" && !rooted && arguments.len() == 1 && arguments != [Shape::Field] {
                return Err("has() takes a field".to_string());
            }
            self.note(&name, false, &arguments);
            return Ok(Shape::Other);
        }
        Ok(if rooted { Shape::Other } else { Shape::Name })
    }

    fn name(&mut self, what: &str) -> Result<String, String> {
        let Some(Token::Name(name)) = self.peek() else { return Err(self.wanted(what)) };
        let name = name.clone();
        self.at += 1;
        Ok(name)
    }

    /// A list of expressions up to its closing bracket; one in square brackets may end with a comma.
    fn arguments(&mut self, close: &str) -> Result<Vec<Shape>, String> {
        let mut shapes = Vec::new();
        while !self.take(close) {
            if !shapes.is_empty() {
                self.need(",")?;
                if close == "]" && self.take(close) {
                    break;
                }
            }
            if close == "]" {
                self.optional();
            }
            shapes.push(self.expression()?);
        }
        Ok(shapes)
    }

    /// The entries of a map, or the fields of a message.
    fn entries(&mut self, fields: bool) -> Result<(), String> {
        let mut first = true;
        while !self.take("}") {
            if !first {
                self.need(",")?;
                if self.take("}") {
                    break;
                }
            }
            first = false;
            self.optional();
            if fields {
                self.name("a field")?;
            } else {
                self.expression()?;
            }
            self.need(":")?;
            self.expression()?;
        }
        Ok(())
    }
}

/// Macros over lists.
fn is_macro(name: &str, arguments: usize) -> bool {
    match name {
        "all" | "exists" | "exists_one" | "existsOne" | "filter" => arguments == 2,
        "map" => matches!(arguments, 2 | 3),
        _ => false,
    }
}

/// The first argument of a macro over lists has to be a name.
fn comprehension(name: &str, arguments: &[Shape]) -> Result<(), String> {
    if is_macro(name, arguments.len()) && arguments.first() != Some(&Shape::Name) {
        return Err(format!("{name}() binds a name, which is wanted first"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_with_their_last_text() {
        let found =
            outline("a.matches(r'\\d') && size(b) == 1 || f(1, 'it\\'s') && [1].all(x, g('\\n'))").unwrap_or_default();
        let calls: Vec<_> =
            found.calls.iter().map(|c| (&*c.name, c.is_method, c.arguments, c.text.as_deref())).collect();
        let of = |name, method, arguments, text| (name, method, arguments, text);
        assert_eq!(
            calls,
            [
                of("matches", true, 1, Some("\\d")),
                of("size", false, 1, None),
                of("f", false, 2, Some("it's")),
                of("g", false, 1, None),
                of("all", true, 2, None),
            ]
        );
        assert!(found.calls.iter().map(|c| c.is_comprehension).eq([false, false, false, false, true]));
        assert!(!found.has_optionals && !found.makes_messages);
        let found = outline("a.?b == M{c: 1} && a.matches('x' + 'y')").unwrap_or_default();
        assert!(found.has_optionals && found.makes_messages && found.calls.iter().all(|c| c.text.is_none()));
    }

    #[test]
    fn expressions_and_other_texts() {
        for good in [
            "true",
            "response.code >= 400 && !(request.url_path in ['/a', r\"\\d\", b'x'])",
            "has(request.headers['a'].b) ? 1u : -0x1F",
            "xds.cluster_name.contains(\"\"\"a\nb\"\"\") || size([1, 2,]) == 2.5e3",
            "a.map(x, x > 1, x + 1).all(y, y != null)",
            "Message{field: {'k': 1}} // the end",
            "connection.mtls",
        ] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a b",
            "(a",
            "a &&",
            "'a",
            "a == = b",
            "has(a)",
            "a.all(1, b)",
            "if",
            "1 +",
            "a.1",
            "'\\q'",
            "f(a,)",
            "@",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&"(".repeat(100_000)).is_err());
    }
}

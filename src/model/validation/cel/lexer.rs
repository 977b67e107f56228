//! The lexer of CEL.

use std::fmt;

/// A token of CEL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An identifier or the name of a field.
    Name(String),
    /// A number, text, bytes, `true`, `false` or `null`; the text of one that is a text without escapes but of quotes and
    /// backslashes.
    Literal(Option<String>),
    /// An operator, a bracket, a separator, or `in`.
    Symbol(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Literal(_) => f.write_str("a literal"),
            Self::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

/// Symbols, longer ones before their prefixes.
const SYMBOLS: [&str; 25] = [
    "||", "&&", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "in",
];

/// Splits a text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if matches!(first, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
            rest = &rest[1..];
        } else if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some(length) = string(rest)? {
            tokens.push(Token::Literal(plain(&rest[..length])));
            rest = &rest[length..];
        } else if let Some(length) = number(rest) {
            tokens.push(Token::Literal(None));
            rest = &rest[length..];
        } else if first == '_' || first.is_ascii_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            tokens.push(match &rest[..end] {
                "in" => Token::Symbol("in"),
                "true" | "false" | "null" => Token::Literal(None),
                name => Token::Name(name.to_string()),
            });
            rest = &rest[end..];
        } else if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            return Err(format!("not a CEL expression: {first:?} means nothing"));
        }
    }
    Ok(tokens)
}

/// Length of the text or bytes literal at the start; `None` when another token starts here.
fn string(text: &str) -> Result<Option<usize>, String> {
    // Only the length of a prefix is searched: searching the whole rest for every token would take quadratic time.
    let prefix = text.bytes().take(3).position(|b| matches!(b, b'"' | b'\'')).map(|at| &text[..at]);
    let Some(prefix) = prefix.filter(|p| matches!(p.to_ascii_lowercase().as_str(), "" | "r" | "b" | "rb" | "br"))
    else {
        return Ok(None);
    };
    let raw = prefix.contains(['r', 'R']);
    let body = &text[prefix.len()..];
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|q| body.starts_with(q)).unwrap_or("\"");
    let mut at = quote.len();
    loop {
        let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) else {
            return Err("not a CEL expression: a text has no end".to_string());
        };
        if rest.starts_with(quote) {
            return Ok(Some(prefix.len() + at + quote.len()));
        }
        let c = rest.chars().next().unwrap_or_default();
        if quote.len() == 1 && matches!(c, '\n' | '\r') {
            return Err("not a CEL expression: a text goes over the end of its line".to_string());
        }
        at += match c {
            '\\' if !raw => escape(&rest[1..]).ok_or("not a CEL expression: a text holds an unknown escape")? + 1,
            c => c.len_utf8(),
        };
    }
}

/// The text of a literal in quotes; `None` for bytes, and for texts with escapes of characters.
fn plain(literal: &str) -> Option<String> {
    let at = literal.find(['"', '\''])?;
    let (prefix, body) = literal.split_at(at);
    if prefix.contains(['b', 'B']) {
        return None;
    }
    let quote = ["\"\"\"", "'''"].into_iter().find(|q| body.starts_with(q)).map_or(1, str::len);
    let inner = body.get(quote..body.len().checked_sub(quote)?)?;
    if prefix.contains(['r', 'R']) {
        return Some(inner.to_string());
    }
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => chars.next().filter(|escaped| matches!(escaped, '\\' | '\'' | '"'))?,
            c => c,
        });
    }
    Some(text)
}

/// Length of the escape after a backslash.
fn escape(text: &str) -> Option<usize> {
    let digits = |count: usize, radix: u32| {
        let all = text.get(1..=count)?.chars().all(|c| c.is_digit(radix));
        all.then_some(count + 1)
    };
    match text.chars().next()? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '\'' | '"' | '`' | '?' => Some(1),
        'x' | 'X' => digits(2, 16),
        'u' => digits(4, 16),
        'U' => digits(8, 16),
        '0'..='3' => text.get(..3)?.chars().all(|c| c.is_digit(8)).then_some(3),
        _ => None,
    }
}

/// Length of the number at the start; `None` when another token starts here.
fn number(text: &str) -> Option<usize> {
    let run = |from: usize, radix: u32| text[from..].chars().take_while(|c| c.is_digit(radix)).count();
    if let Some(start) = ["0x", "0X"].iter().find(|p| text.starts_with(**p)).map(|p| p.len()) {
        let digits = run(start, 16);
        let end = start + digits;
        return (digits > 0).then(|| end + usize::from(text[end..].starts_with(['u', 'U'])));
    }
    let whole = run(0, 10);
    let mut end = whole;
    if text[end..].starts_with('.') && run(end + 1, 10) > 0 {
        end += 1 + run(end + 1, 10);
    } else if whole == 0 {
        return None;
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let digits = run(end + 1 + sign, 10);
        if digits > 0 {
            return Some(end + 1 + sign + digits);
        }
    }
    Some(end + usize::from(end == whole && text[end..].starts_with(['u', 'U'])))
}

//! The syntax of RE2, which Envoy's regular expressions have to be in.
//!
//! RE2 and Rust's `regex` differ in both directions (`\Q…\E`, a literal `{`, escapes, repetitions above 1,000), so neither
//! can judge for the other. Follows RE2's own parser with its default options. Where a doubt is left (names of Unicode
//! scripts, the exact size of a program) the expression is taken: Envoy has the last word.

/// Most repetitions, those within each other multiplied.
const MOST_REPEATS: u64 = 1000;
/// Deepest nesting of groups.
const DEEPEST: usize = 1000;
/// Envoy matches bytes: there is no character above.
const MOST_CHARACTER: u32 = 0xFF;
/// `re2.max_program_size.error_level` of our bootstrap and of Istio's.
const MOST_INSTRUCTIONS: u64 = 32_768;

/// Whether Envoy takes the expression.
///
/// # Errors
/// The reason it would not.
pub fn check(pattern: &str) -> Result<(), String> {
    let refused = |reason: String| {
        format!("{} is no regular expression of RE2: {reason}", super::shown::shown(pattern.as_bytes()))
    };
    let parsed = parse(pattern).map_err(refused)?;
    if parsed.instructions > MOST_INSTRUCTIONS {
        return Err(refused(format!("it takes more than {MOST_INSTRUCTIONS} instructions")));
    }
    Ok(())
}

#[derive(Debug)]
struct Parsed {
    /// A lower bound of the program's size.
    instructions: u64,
}

/// A group that is open, the outermost being the whole expression.
#[derive(Debug, Default)]
struct Group {
    /// Size of all that is complete in it.
    size: u64,
    /// Repetitions within it, multiplied.
    repeats: u64,
    /// The operand of a repetition.
    last: Option<Item>,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    size: u64,
    repeats: u64,
}

impl Group {
    fn push(&mut self, item: Item) {
        self.settle();
        self.last = Some(item);
    }

    fn settle(&mut self) {
        if let Some(item) = self.last.take() {
            self.size = self.size.saturating_add(item.size);
            self.repeats = self.repeats.max(item.repeats);
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    open: Vec<Group>,
}

fn parse(pattern: &str) -> Result<Parsed, String> {
    let mut parser = Parser { rest: pattern, open: vec![Group::default()] };
    let mut after_repetition = false;
    while let Some(c) = parser.rest.chars().next() {
        let repetition = match c {
            '*' | '+' | '?' => {
                parser.skip(1);
                Some((1, 1))
            }
            '{' => parser.repeat_count(),
            _ => None,
        };
        let Some((factor, size)) = repetition else {
            parser.item(c)?;
            after_repetition = false;
            continue;
        };
        if parser.rest.starts_with('?') {
            parser.skip(1);
        }
        if after_repetition {
            return Err("a repetition is repeated".to_string());
        }
        parser.repeat(factor, size)?;
        after_repetition = true;
    }
    match parser.open.as_mut_slice() {
        [whole] => {
            whole.settle();
            Ok(Parsed { instructions: whole.size })
        }
        _ => Err("a ( has no )".to_string()),
    }
}

impl<'a> Parser<'a> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    fn push(&mut self, size: usize) {
        if let Some(group) = self.open.last_mut() {
            group.push(Item { size: size as u64, repeats: 1 });
        }
    }

    fn item(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => self.open_group(),
            ')' => self.close_group(),
            '|' => {
                self.skip(1);
                if let Some(group) = self.open.last_mut() {
                    group.settle();
                }
                Ok(())
            }
            '[' => self.class(),
            '\\' => self.escaped(),
            other => {
                self.skip(other.len_utf8());
                self.push(other.len_utf8());
                Ok(())
            }
        }
    }

    /// `{n}`, `{n,}` or `{n,m}` at the beginning of the rest, as the number that counts and a bound of copies; anything else
    /// is literal text.
    fn repeat_count(&mut self) -> Option<(u64, u64)> {
        let end = self.rest.find('}')?;
        let (low, high) = match self.rest.get(1..end)?.split_once(',') {
            Some((low, "")) => (number(low)?, None),
            Some((low, high)) => (number(low)?, Some(number(high)?)),
            None => {
                let both = number(self.rest.get(1..end)?)?;
                (both, Some(both))
            }
        };
        self.skip(end + 1);
        // A range that is upside down is refused as a number that is too high.
        let counted = if high.is_some_and(|high| high < low) { u64::MAX } else { high.unwrap_or(low) };
        Some((counted.max(low), high.unwrap_or(low)))
    }

    fn repeat(&mut self, factor: u64, copies: u64) -> Result<(), String> {
        if factor > MOST_REPEATS {
            return Err(format!("a repetition has to be of at most {MOST_REPEATS}, the lower number first"));
        }
        let last = self.open.last_mut().and_then(|group| group.last.as_mut());
        let last = last.ok_or("a repetition has nothing before it")?;
        last.repeats = last.repeats.saturating_mul(factor.max(1));
        last.size = last.size.saturating_mul(copies.max(1));
        if last.repeats > MOST_REPEATS {
            return Err(format!("repetitions within each other come to {}, more than {MOST_REPEATS}", last.repeats));
        }
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), String> {
        self.skip(1);
        if let Some(after) = self.rest.strip_prefix('?') {
            self.rest = after;
            let named = after.strip_prefix("P<").or_else(|| after.strip_prefix('<'));
            match named {
                Some(name) if !after.starts_with("<=") && !after.starts_with("<!") => self.name(name)?,
                _ => {
                    // Without a group the flags are for the rest of the one around them.
                    if !self.flags()? {
                        return Ok(());
                    }
                }
            }
        }
        if self.open.len() > DEEPEST {
            return Err("groups are nested too deep".to_string());
        }
        self.open.push(Group::default());
        Ok(())
    }

    fn name(&mut self, text: &'a str) -> Result<(), String> {
        let (name, rest) = text.split_once('>').ok_or("the name of a group has no >")?;
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
            return Err(format!("{name:?} is no name of a group"));
        }
        self.rest = rest;
        Ok(())
    }

    /// Flags behind `(?`; whether a group follows.
    fn flags(&mut self) -> Result<bool, String> {
        let (mut negated, mut seen) = (false, false);
        loop {
            match self.take() {
                Some('i' | 'm' | 's' | 'U') => seen = true,
                Some('-') if !negated => (negated, seen) = (true, false),
                Some(c @ (':' | ')')) if !negated || seen => return Ok(c == ':'),
                Some(other) => return Err(format!("(?{other} is not known")),
                None => return Err("a ( has no )".to_string()),
            }
        }
    }

    fn close_group(&mut self) -> Result<(), String> {
        self.skip(1);
        let mut closed = self.open.pop().unwrap_or_default();
        closed.settle();
        let group = self.open.last_mut().ok_or("a ) has no (")?;
        group.push(Item { size: closed.size, repeats: closed.repeats.max(1) });
        Ok(())
    }

    fn escaped(&mut self) -> Result<(), String> {
        if let Some(quoted) = self.rest.strip_prefix(r"\Q") {
            let (text, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.rest = rest;
            text.chars().for_each(|c| self.push(c.len_utf8()));
            return Ok(());
        }
        if let Some('A' | 'b' | 'B' | 'z' | 'C') = self.rest.chars().nth(1) {
            self.skip(2);
            self.push(1);
            return Ok(());
        }
        if !self.class_escape()? {
            self.character_escape()?;
        }
        self.push(1);
        Ok(())
    }

    /// `\d`, `\pL`, `\p{Greek}` and their like.
    fn class_escape(&mut self) -> Result<bool, String> {
        match self.rest.chars().nth(1) {
            Some('d' | 'D' | 's' | 'S' | 'w' | 'W') => self.skip(2),
            Some('p' | 'P') => {
                self.skip(2);
                let name = match self.take() {
                    Some('{') => {
                        let (name, rest) = self.rest.split_once('}').ok_or("the name of a Unicode class has no }")?;
                        self.rest = rest;
                        name.strip_prefix('^').unwrap_or(name)
                    }
                    Some(c) if "LMNPSZC".contains(c) => "Any",
                    other => return Err(format!("{other:?} is no Unicode class")),
                };
                let known = name.starts_with(|c: char| c.is_ascii_uppercase())
                    && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
                if !known {
                    return Err(format!("{name:?} is no Unicode class"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn character_escape(&mut self) -> Result<char, String> {
        self.skip(1);
        let c = self.take().ok_or("a \\ stands at the end")?;
        match c {
            '1'..='7' if !self.rest.starts_with(|c: char| ('0'..='7').contains(&c)) => {
                Err(format!("\\{c} refers back to a group, which RE2 cannot do"))
            }
            '0'..='7' => {
                let more = self.rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let digits = format!("{c}{}", self.rest.get(..more).unwrap_or_default());
                self.skip(more);
                Ok(u32::from_str_radix(&digits, 8).ok().and_then(char::from_u32).unwrap_or('\0'))
            }
            'x' => self.hexadecimal(),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'a' => Ok('\x07'),
            'f' => Ok('\x0c'),
            'v' => Ok('\x0b'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(c),
            other => Err(format!("\\{other} is not known")),
        }
    }

    fn hexadecimal(&mut self) -> Result<char, String> {
        let wrong = || "\\x is not followed by hexadecimal digits".to_string();
        let digits = match self.rest.strip_prefix('{') {
            Some(inner) => {
                let (digits, rest) = inner.split_once('}').ok_or_else(wrong)?;
                self.rest = rest;
                digits
            }
            None => {
                let digits = self.rest.get(..2).ok_or_else(wrong)?;
                self.skip(2);
                digits
            }
        };
        let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let code =
            u32::from_str_radix(digits, 16).ok().filter(|code| all && *code <= MOST_CHARACTER).ok_or_else(wrong)?;
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// `[…]`.
    fn class(&mut self) -> Result<(), String> {
        self.skip(1);
        if self.rest.starts_with('^') {
            self.skip(1);
        }
        let mut first = true;
        loop {
            match self.rest.chars().next() {
                None => return Err("a [ has no ]".to_string()),
                Some(']') if !first => {
                    self.skip(1);
                    self.push(1);
                    return Ok(());
                }
                Some(_) => first = false,
            }
            if !(self.posix_class()? || self.rest.starts_with('\\') && self.class_escape()?) {
                self.range()?;
            }
        }
    }

    /// `[:alpha:]` inside of a class.
    fn posix_class(&mut self) -> Result<bool, String> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let Some((name, rest)) = self.rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
            return Ok(false);
        };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("[:{name}:] is not known"));
        }
        self.rest = rest;
        Ok(true)
    }

    fn range(&mut self) -> Result<(), String> {
        let low = self.class_character()?;
        let Some(after) = self.rest.strip_prefix('-').filter(|after| !after.starts_with(']')) else {
            return Ok(());
        };
        self.rest = after;
        let high = self.class_character()?;
        // Beyond ASCII the order is that of bytes, which only the whole sequence tells.
        let upside_down = high < low && low.is_ascii() && high.is_ascii();
        if upside_down { Err(format!("the range {low:?} to {high:?} is upside down")) } else { Ok(()) }
    }

    fn class_character(&mut self) -> Result<char, String> {
        if self.rest.starts_with('\\') {
            return self.character_escape();
        }
        self.take().ok_or_else(|| "a [ has no ]".to_string())
    }
}

/// A number as RE2 reads it in a repetition.
fn number(text: &str) -> Option<u64> {
    let plain =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|n| plain && *n < 1_000_000_000)
}

#[cfg(test)]
mod tests;

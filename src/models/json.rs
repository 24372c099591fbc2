//! A reader of JSON, with the numbers NaN, Infinity and -Infinity that Python writes.

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// The members of an object, in the order of the text.
    Object(Vec<(String, Json)>),
}

/// Maximum depth to which lists and objects are nested.
const MAX_DEPTH: usize = 64;

impl Json {
    /// Parses a text; None if it is not one JSON value.
    pub fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text };
        let value = reader.value(0)?;
        reader.skip_spaces();
        reader.rest.is_empty().then_some(value)
    }

    /// Returns the value of the member called `name`; None if there is no such member, or if this is not an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the number if the value is a number.
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(value) = self { Some(*value) } else { None }
    }

    /// Returns the text if the value is a string.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the items if the value is a list.
    pub fn list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

/// The part of a text that has not been read.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    /// Skips spaces, and then `text` if it comes next. Returns whether `text` was skipped.
    fn eat(&mut self, text: &str) -> bool {
        self.skip_spaces();
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        const WORDS: [(&str, Json); 6] = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
            ("NaN", Json::Number(f64::NAN)),
            ("Infinity", Json::Number(f64::INFINITY)),
            ("-Infinity", Json::Number(f64::NEG_INFINITY)),
        ];
        if depth > MAX_DEPTH {
            return None;
        }
        if self.eat("\"") {
            return self.string().map(Json::Text);
        }
        if self.eat("[") {
            let mut items = Vec::new();
            self.members("]", |reader| {
                items.push(reader.value(depth + 1)?);
                Some(())
            })?;
            return Some(Json::List(items));
        }
        if self.eat("{") {
            let mut members = Vec::new();
            self.members("}", |reader| {
                let key = if reader.eat("\"") { reader.string()? } else { return None };
                let value = if reader.eat(":") { reader.value(depth + 1)? } else { return None };
                members.push((key, value));
                Some(())
            })?;
            return Some(Json::Object(members));
        }
        if let Some((_, value)) = WORDS.into_iter().find(|(word, _)| self.eat(word)) {
            return Some(value);
        }
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        number.parse().ok().map(Json::Number)
    }

    /// Reads items with commas between them, up to the closing bracket.
    fn members(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if self.eat(close) {
            return Some(());
        }
        loop {
            item(self)?;
            if self.eat(close) {
                return Some(());
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    /// Reads a string after its opening quote.
    fn string(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let end = self.rest.find(['"', '\\'])?;
            text.push_str(&self.rest[..end]);
            let is_end = self.rest.as_bytes()[end] == b'"';
            self.rest = &self.rest[end + 1..];
            if is_end {
                return Some(text);
            }
            let escaped = self.rest.chars().next()?;
            self.rest = &self.rest[escaped.len_utf8()..];
            text.push(match escaped {
                '"' | '\\' | '/' => escaped,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => self.code_point()?,
                _ => return None,
            });
        }
    }

    /// Reads the digits of an escaped character, which may be a pair of surrogates.
    fn code_point(&mut self) -> Option<char> {
        let mut units = vec![self.unit()?];
        if (0xD800..0xDC00).contains(&units[0]) {
            self.rest = self.rest.strip_prefix("\\u")?;
            units.push(self.unit()?);
        }
        char::decode_utf16(units).next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.rest.get(..4)?;
        self.rest = &self.rest[4..];
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_hexadecimal { u16::from_str_radix(digits, 16).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let text = r#" {"a": [1, -2.5e3, true, null], "b\u00e9\ud83d\ude00\n": {}, "c": [], "d": -Infinity} "#;
        let value = Json::parse(text).unwrap();
        let numbers = value.get("a").and_then(Json::list).unwrap();
        assert_eq!(numbers[0].number(), Some(1.0));
        assert_eq!(numbers[1].number(), Some(-2500.0));
        assert_eq!(numbers[2..], [Json::Bool(true), Json::Null]);
        assert_eq!(value.get("b\u{e9}\u{1f600}\n"), Some(&Json::Object(Vec::new())));
        assert_eq!(value.get("c"), Some(&Json::List(Vec::new())));
        assert_eq!(value.get("d").and_then(Json::number), Some(f64::NEG_INFINITY));
        assert!(Json::parse("NaN").unwrap().number().unwrap().is_nan());
        assert_eq!(Json::parse(r#""text""#).unwrap().text(), Some("text"));
    }

    #[test]
    fn invalid_json_is_rejected() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        let wrong = [
            "",
            "[1,]",
            "[1 2]",
            "{\"a\" 1}",
            "{a: 1}",
            "\"open",
            "1 2",
            "nul",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "--1",
            &deep,
        ];
        for text in wrong {
            assert_eq!(Json::parse(text), None, "{text}");
        }
    }
}

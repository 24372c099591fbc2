//! Reads rows in LIBSVM format, `label index:value ...`. Text is parsed in parallel, one block at a
//! time.

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory::{make_room, refused};
use crate::parallel::map_items;

/// Number of bytes of text in a piece, which one thread parses.
const PIECE_BYTES: usize = 1 << 18;

/// The rows read so far: their labels, and the entries of a CSR matrix. Indices are as in the file.
///
/// Text arrives in blocks of any length. Only an incomplete last line is copied, so reading needs
/// little more memory than the rows themselves.
#[derive(Debug)]
pub struct LibsvmRows {
    /// The label of each row.
    pub labels: Vec<f64>,
    /// The position of each row's first entry, and the end of the last row.
    pub offsets: Vec<i64>,
    /// The feature indices of the entries; they increase within a row.
    pub indices: Vec<i32>,
    /// The values of the entries.
    pub values: Vec<f64>,
    n_lines: usize,
    unfinished: Vec<u8>,
}

/// The rows parsed from a piece of text.
#[derive(Default)]
struct Piece {
    labels: Vec<f64>,
    /// For each row, the end of its entries within the piece.
    ends: Vec<usize>,
    indices: Vec<i32>,
    values: Vec<f64>,
    n_lines: usize,
}

impl Default for LibsvmRows {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            offsets: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_lines: 0,
            unfinished: Vec::new(),
        }
    }
}

impl LibsvmRows {
    /// Parses the next block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming a line that is not in LIBSVM format, [`Error::Memory`]
    /// if the rows do not fit into memory, and [`Error::Interrupted`].
    pub fn read(&mut self, block: &[u8], interrupt: &Interrupt) -> Result<()> {
        let Some(last) = block.iter().rposition(|byte| *byte == b'\n') else {
            self.unfinished.extend_from_slice(block);
            return Ok(());
        };
        let (mut whole, rest) = block.split_at(last + 1);
        if !self.unfinished.is_empty() {
            let end = whole.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let mut line = std::mem::take(&mut self.unfinished);
            line.extend_from_slice(&whole[..end]);
            self.append(Piece::parse(&line))?;
            whole = &whole[end..];
        }
        let pieces = map_items(pieces(whole), 1, |text| {
            if interrupt.is_raised() { Ok(Piece::default()) } else { Piece::parse(text) }
        });
        interrupt.check()?;
        self.unfinished.extend_from_slice(rest);
        pieces.into_iter().try_for_each(|piece| self.append(piece))
    }

    /// Parses the last line if it has no line break.
    ///
    /// # Errors
    /// As for [`LibsvmRows::read`].
    pub fn finish(&mut self) -> Result<()> {
        let line = std::mem::take(&mut self.unfinished);
        self.append(Piece::parse(&line))
    }

    fn append(&mut self, piece: std::result::Result<Piece, (usize, String)>) -> Result<()> {
        let piece = piece.map_err(|(line, what)| {
            Error::argument("rows", format!("line {}: {what}", self.n_lines + line))
        })?;
        let room = make_room(&mut self.labels, piece.labels.len())
            && make_room(&mut self.offsets, piece.labels.len())
            && make_room(&mut self.indices, piece.indices.len())
            && make_room(&mut self.values, piece.values.len());
        if !room {
            let n = self.values.len();
            let bytes = (size_of::<f64>() + size_of::<i32>()) * 2 * n;
            let what = || format!("the rows, {n} entries so far,");
            return Err(refused(bytes, what, "use fewer rows or entries"));
        }
        let first = self.values.len();
        self.offsets.extend(piece.ends.iter().map(|end| (first + end) as i64));
        self.labels.extend(piece.labels);
        self.indices.extend(piece.indices);
        self.values.extend(piece.values);
        self.n_lines += piece.n_lines;
        Ok(())
    }
}

/// Splits text into pieces of whole lines.
fn pieces(mut text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while text.len() > PIECE_BYTES {
        let Some(end) = text[PIECE_BYTES..].iter().position(|byte| *byte == b'\n') else { break };
        let (piece, rest) = text.split_at(PIECE_BYTES + end + 1);
        pieces.push(piece);
        text = rest;
    }
    pieces.push(text);
    pieces
}

impl Piece {
    /// Parses some lines. The error consists of the number of the first invalid line, counted from 1, and the reason.
    fn parse(text: &[u8]) -> std::result::Result<Self, (usize, String)> {
        let mut piece = Self::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            piece.n_lines += 1;
            piece.parse_line(line).map_err(|what| (piece.n_lines, what))?;
        }
        Ok(piece)
    }

    /// Parses a line and adds its row. Empty lines, and comments, which begin with #, add no row.
    fn parse_line(&mut self, line: &[u8]) -> std::result::Result<(), String> {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(label) = words.next() else { return Ok(()) };
        let label =
            number(label).ok_or_else(|| format!("the label {:?} is not a number", text(label)))?;
        let mut last = -1;
        for word in words {
            if word.starts_with(b"qid:") {
                continue;
            }
            let colon = word.iter().position(|byte| *byte == b':');
            let entry = colon.and_then(|at| Some((index(&word[..at])?, number(&word[at + 1..])?)));
            let Some((index, value)) = entry else {
                let word = text(word);
                return Err(format!("{word:?} is not index:value with an index below 2147483647"));
            };
            if index <= last {
                return Err(format!("index {index} follows {last}: indices must increase"));
            }
            last = index;
            self.indices.push(index);
            self.values.push(value);
        }
        self.labels.push(label);
        self.ends.push(self.values.len());
        Ok(())
    }
}

/// Parses a non-negative feature index.
fn index(word: &[u8]) -> Option<i32> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let largest = i64::from(i32::MAX) - 1;
    let push = |number: i64, digit: &u8| {
        let number = 10 * number + i64::from(digit - b'0');
        (number <= largest).then_some(number)
    };
    if digits { word.iter().try_fold(0, push).map(|number| number as i32) } else { None }
}

fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A word as shown in error messages, shortened if necessary.
fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, block: usize) -> Result<LibsvmRows> {
        let mut rows = LibsvmRows::default();
        for block in text.as_bytes().chunks(block) {
            rows.read(block, &Interrupt::default())?;
        }
        rows.finish()?;
        Ok(rows)
    }

    #[test]
    fn blocks_of_any_length_give_the_same_rows() {
        let text = "# a comment\n1 0:0.5 3:-2e-3 # more\r\n\n-1 qid:4 7:+1\n 2.5\n3 2147483646:1";
        for block in 1..text.len() + 1 {
            let rows = read(text, block).unwrap();
            assert_eq!(rows.labels, [1.0, -1.0, 2.5, 3.0]);
            assert_eq!(rows.offsets, [0, 2, 3, 3, 4]);
            assert_eq!(rows.indices, [0, 3, 7, 2147483646]);
            assert_eq!(rows.values, [0.5, -2e-3, 1.0, 1.0]);
        }
    }

    #[test]
    fn pieces_of_a_file_are_joined_in_order() {
        let line = |row: usize| format!("{} {}:{}.25 70:1\n", row % 7, row % 50, row);
        let text: String = (0..60_000).map(line).collect();
        assert!(text.len() > 4 * PIECE_BYTES);
        let rows = read(&text, 3 * PIECE_BYTES + 17).unwrap();
        assert_eq!((rows.labels.len(), rows.values.len()), (60_000, 120_000));
        for row in [0, 1, 12_345, 59_999] {
            assert_eq!(rows.labels[row], (row % 7) as f64);
            assert_eq!(rows.offsets[row], 2 * row as i64);
            assert_eq!(rows.indices[2 * row..2 * row + 2], [(row % 50) as i32, 70]);
            assert_eq!(rows.values[2 * row], row as f64 + 0.25);
        }
        let broken = text + "1 5:1 x\n";
        let message = read(&broken, 1 << 20).unwrap_err().to_string();
        assert!(message.contains("line 60001") && message.contains("\"x\""), "{message}");
    }

    #[test]
    fn errors_name_the_invalid_line() {
        for (text, what) in [
            ("1 1:1\ncat 1:2\n", "rows: line 2: the label \"cat\""),
            ("1,2 1:2\n", "\"1,2\""),
            ("1 2:1 2:3\n", "index 2 follows 2"),
            ("1 3:1 2:3\n", "must increase"),
            ("1 -1:1\n", "is not index:value"),
            ("1 1:\n", "is not index:value"),
            ("1 :1\n", "is not index:value"),
            ("1 2147483647:1\n", "is not index:value"),
            ("1 99999999999999999999:1\n", "is not index:value"),
        ] {
            let message = read(text, 1000).unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
        assert_eq!(read("", 10).unwrap().offsets, [0]);
    }
}

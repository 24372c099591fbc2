//! Reads archives of NumPy arrays, as [`archive`](super::npz::archive) and `numpy.savez` write them.
//!
//! Files are not trusted: sizes are compared with the content before anything is allocated.

use super::npz::{NpyArray, crc32};
use crate::error::{Error, Result};

/// The named arrays of an archive.
pub(super) struct Arrays(Vec<(String, NpyArray)>);

fn damaged(what: &str) -> Error {
    Error::File(format!("not a model file: {what}"))
}

/// Returns the N bytes that begin at `start`; an error if there are fewer.
fn bytes_at<const N: usize>(bytes: &[u8], start: usize) -> Result<[u8; N]> {
    let found = bytes.get(start..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or_else(|| damaged("it is shorter than its headers say"))
}

fn number_at<const N: usize>(bytes: &[u8], start: usize) -> Result<usize> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes_at::<N>(bytes, start)?);
    Ok(u64::from_le_bytes(wide) as usize)
}

fn range_of(bytes: &[u8], start: usize, length: usize) -> Result<&[u8]> {
    let end = start.checked_add(length);
    let found = end.and_then(|end| bytes.get(start..end));
    found.ok_or_else(|| damaged("it is shorter than its headers say"))
}

impl Arrays {
    /// Unpacks an archive without compression.
    ///
    /// # Errors
    /// [`Error::File`] for any other content.
    pub fn read(archive: &[u8]) -> Result<Self> {
        // In files written by NumPy or this crate, the end record has no comment, so it is the last 22 bytes.
        let end = archive.len().checked_sub(22).ok_or_else(|| damaged("it is not an npz file"))?;
        if bytes_at::<4>(archive, end)? != *b"PK\x05\x06" {
            return Err(damaged("it is not an npz file"));
        }
        let (n_members, mut at) =
            (number_at::<2>(archive, end + 10)?, number_at::<4>(archive, end + 16)?);
        let mut arrays = Vec::new();
        for _ in 0..n_members {
            if bytes_at::<4>(archive, at)? != *b"PK\x01\x02" {
                return Err(damaged("its directory is damaged"));
            }
            let is_plain =
                number_at::<2>(archive, at + 8)? & 1 == 0 && number_at::<2>(archive, at + 10)? == 0;
            let (checksum, size) =
                (number_at::<4>(archive, at + 16)?, number_at::<4>(archive, at + 24)?);
            let lengths = [28, 30, 32].map(|offset| number_at::<2>(archive, at + offset));
            let [name_length, extra, comment] = lengths;
            let (name_length, start) = (name_length?, number_at::<4>(archive, at + 42)?);
            let name = range_of(archive, at + 46, name_length)?;
            let name = std::str::from_utf8(name).ok().and_then(|name| name.strip_suffix(".npy"));
            let name = name.ok_or_else(|| damaged("a member is not an array"))?.to_owned();
            if !is_plain || bytes_at::<4>(archive, start)? != *b"PK\x03\x04" {
                return Err(damaged("a member is compressed or damaged"));
            }
            let header =
                30 + number_at::<2>(archive, start + 26)? + number_at::<2>(archive, start + 28)?;
            let content = range_of(archive, start + header, size)?;
            if crc32(content) as usize != checksum || arrays.iter().any(|(other, _)| *other == name)
            {
                return Err(damaged("a checksum or a name is wrong"));
            }
            arrays.push((name, NpyArray::read(content)?));
            at += 46 + name_length + extra? + comment?;
        }
        Ok(Self(arrays))
    }

    /// Returns the array with this name.
    ///
    /// # Errors
    /// [`Error::File`] if there is no such array.
    pub fn get(&self, name: &str) -> Result<&NpyArray> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, array)| array).ok_or_else(|| damaged(&format!("it has no array {name:?}")))
    }
}

/// Returns the part of an array's header that begins with the value of `key`.
fn after<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    header.split_once(key).map(|(_, value)| value.trim_start())
}

impl NpyArray {
    /// Reads an array of booleans, integers, floating-point numbers or strings.
    fn read(file: &[u8]) -> Result<Self> {
        let unknown = || damaged("an array has an unsupported header");
        let is_first = bytes_at::<8>(file, 0)? == *b"\x93NUMPY\x01\x00";
        if !is_first {
            return Err(unknown());
        }
        let length = number_at::<2>(file, 8)?;
        let header = std::str::from_utf8(range_of(file, 10, length)?).map_err(|_| unknown())?;
        let kind = after(header, "'descr': '")
            .and_then(|rest| rest.split_once('\''))
            .ok_or_else(unknown)?
            .0;
        let is_transposed =
            after(header, "'fortran_order':").ok_or_else(unknown)?.starts_with("True");
        let shape = after(header, "'shape': (")
            .and_then(|rest| rest.split_once(')'))
            .ok_or_else(unknown)?
            .0;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape: Vec<usize> =
            sizes.map(str::parse).collect::<std::result::Result<_, _>>().map_err(|_| unknown())?;
        let content = &file[10 + length..];
        let width = match kind.split_at_checked(2) {
            Some(("<U", width)) => {
                width.parse::<usize>().ok().and_then(|width| width.checked_mul(4))
            }
            Some(("|b" | "|i" | "|u" | "<i" | "<u" | "<f", width)) => width.parse().ok(),
            _ => None,
        };
        let size =
            width.and_then(|width| shape.iter().try_fold(width, |n, size| n.checked_mul(*size)));
        if size != Some(content.len()) || (is_transposed && shape.len() > 1) {
            return Err(unknown());
        }
        Ok(Self { kind: kind.to_owned(), shape, content: content.to_vec() })
    }

    /// The shape.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the content, if it consists of bytes.
    pub(super) fn as_bytes(&self) -> Option<&[u8]> {
        (self.kind == "|u1").then_some(&self.content)
    }

    /// Returns the entries, if they are floating-point numbers or integers.
    pub(super) fn as_numbers(&self) -> Option<Vec<f64>> {
        let content = &self.content;
        match self.kind.as_str() {
            "<f8" => {
                Some(content.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
            }
            "<f4" => {
                let values = content.as_chunks().0.iter();
                Some(values.map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect())
            }
            _ => Some(self.as_integers()?.into_iter().map(|value| value as f64).collect()),
        }
    }

    /// Returns the entries, if they are integers.
    pub(super) fn as_integers(&self) -> Option<Vec<i64>> {
        let (is_signed, width) = match self.kind.as_bytes() {
            [b'<' | b'|', kind @ (b'i' | b'u'), width @ (b'1' | b'2' | b'4' | b'8')] => {
                (*kind == b'i', usize::from(width - b'0'))
            }
            _ => return None,
        };
        let integer = |bytes: &[u8]| {
            let is_negative = is_signed && bytes[width - 1] >= 0x80;
            let mut wide = [if is_negative { 0xFF } else { 0 }; 8];
            wide[..width].copy_from_slice(bytes);
            let value = i64::from_le_bytes(wide);
            (is_signed || value >= 0).then_some(value)
        };
        self.content.chunks_exact(width).map(integer).collect()
    }

    /// Returns the entries, if they are booleans.
    pub(super) fn as_booleans(&self) -> Option<Vec<bool>> {
        (self.kind == "|b1").then(|| self.content.iter().map(|byte| *byte != 0).collect())
    }

    /// Returns the entries, if they are strings, without the zeros that pad them.
    pub(super) fn as_strings(&self) -> Option<Vec<String>> {
        let width = 4 * self.kind.strip_prefix("<U")?.parse::<usize>().ok()?;
        let text = |bytes: &[u8]| {
            let codes = bytes.as_chunks().0.iter().map(|code| u32::from_le_bytes(*code));
            let text = codes.map(char::from_u32).collect::<Option<String>>()?;
            Some(text.trim_end_matches('\0').to_owned())
        };
        self.content.chunks_exact(width.max(1)).map(text).collect()
    }
}

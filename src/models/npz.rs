//! Archives of NumPy arrays, uncompressed, as written by `numpy.savez`.

use crate::error::{Error, Result};

/// An array in NumPy's binary format: its type, shape and little-endian content.
#[derive(Debug)]
pub struct NpyArray {
    pub(super) kind: String,
    pub(super) shape: Vec<usize>,
    pub(super) content: Vec<u8>,
}

impl NpyArray {
    /// An array of bytes.
    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self { kind: "|u1".into(), shape: vec![bytes.len()], content: bytes.to_vec() }
    }

    /// An array of floating-point numbers.
    pub(super) fn numbers(shape: &[usize], numbers: impl IntoIterator<Item = f64>) -> Self {
        let content = numbers.into_iter().flat_map(f64::to_le_bytes).collect();
        Self { kind: "<f8".into(), shape: shape.to_vec(), content }
    }

    /// An array of integers.
    pub(super) fn integers(integers: impl IntoIterator<Item = i64>) -> Self {
        let content: Vec<u8> = integers.into_iter().flat_map(i64::to_le_bytes).collect();
        Self { kind: "<i8".into(), shape: vec![content.len() / 8], content }
    }

    /// An array of booleans.
    pub(super) fn booleans(booleans: &[bool]) -> Self {
        let content = booleans.iter().map(|value| u8::from(*value)).collect();
        Self { kind: "|b1".into(), shape: vec![booleans.len()], content }
    }

    /// An array of strings, padded with zeros to the length of the longest.
    pub(super) fn strings(strings: &[impl AsRef<str>]) -> Self {
        let lengths = strings.iter().map(|text| text.as_ref().chars().count());
        let width = lengths.max().unwrap_or(0).max(1);
        let mut content = Vec::with_capacity(4 * width * strings.len());
        for text in strings {
            let characters = text.as_ref().chars().map(u32::from);
            let padded = characters.chain(std::iter::repeat(0)).take(width);
            content.extend(padded.flat_map(u32::to_le_bytes));
        }
        Self { kind: format!("<U{width}"), shape: vec![strings.len()], content }
    }

    /// The array as a file in version 1.0 of NumPy's format.
    fn file(&self) -> Vec<u8> {
        let sizes: Vec<String> = self.shape.iter().map(|size| format!("{size},")).collect();
        let (kind, shape) = (&self.kind, sizes.join(" "));
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        // The content must begin at a multiple of 64 bytes.
        let n_before = 11 + header.len();
        header.push_str(&" ".repeat(n_before.next_multiple_of(64) - n_before));
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(&self.content);
        file
    }
}

/// The CRC-32 checksum used in zip archives.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let (mut value, mut bit) = (index as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

/// Packs named arrays into an archive.
///
/// # Errors
/// [`Error::File`] for archives of 4 GB or more, which the format does not support.
pub(super) fn archive(arrays: &[(&str, NpyArray)]) -> Result<Vec<u8>> {
    let too_large = |_| Error::File("a model file must be smaller than 4 GB".into());
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, array) in arrays {
        let (name, file) = (format!("{name}.npy"), array.file());
        let start = u32::try_from(archive.len()).map_err(too_large)?;
        let size = u32::try_from(file.len()).map_err(too_large)?.to_le_bytes();
        // Zip version 2.0, no flags, no compression, dated 1 January 1980.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend(crc32(&file).to_le_bytes());
        common.extend([size, size].concat());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(name.as_bytes());
        archive.extend(file);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(common);
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = u32::try_from(archive.len()).map_err(too_large)?;
    let n_arrays = (arrays.len() as u16).to_le_bytes();
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([n_arrays, n_arrays].concat());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_agree_with_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn content_begins_at_a_multiple_of_64_bytes() {
        for n in [0, 1, 99, 100_000] {
            let file = NpyArray::integers(0..n).file();
            assert_eq!((file.len() - 8 * n as usize) % 64, 0);
            assert_eq!(file[file.len() - 8 * n as usize - 1], b'\n');
        }
    }
}

//! The names of features and their numbers.

use crate::error;
use crate::memory::{check_growth, make_room, refused};

/// Maps names of features to numbers, either in the order of their first use or by hashing, which does not store the
/// names (the hashing trick, Weinberger et al. 2009).
///
/// All names form one text. A look-up compares 32 bits of the hashes before it reads a name.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// All names.
    text: Vec<u8>,
    /// The start of each name in the text, and the end of the last name.
    bounds: Vec<usize>,
    /// A hash table. Each slot has a part of a name's hash, and the name's number plus 1 (0 in an empty slot). The
    /// length is a power of two, and at most half of the slots are full.
    table: Vec<(u32, u32)>,
    /// The number of bits of a hash, if numbers are hashes.
    bits: Option<u32>,
}

impl Default for Vocabulary {
    fn default() -> Self {
        Self::new()
    }
}

impl Vocabulary {
    /// Maximum number of bits for numbers that are hashes.
    pub const MAX_BITS: u32 = 30;

    /// Creates an empty vocabulary.
    pub fn new() -> Self {
        Self { text: Vec::new(), bounds: vec![0], table: vec![(0, 0); 16], bits: None }
    }

    /// Creates a vocabulary that stores no names and uses hashes of 1 to [`Vocabulary::MAX_BITS`] bits as numbers.
    pub fn hashed(bits: u32) -> Self {
        Self { bits: Some(bits.clamp(1, Self::MAX_BITS)), ..Self::new() }
    }

    /// Number of features.
    pub fn len(&self) -> usize {
        self.bits.map_or(self.n_names(), |bits| 1 << bits)
    }

    fn n_names(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Whether there are no features.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the numbers of features are hashes of their names.
    pub fn is_hashed(&self) -> bool {
        self.bits.is_some()
    }

    /// Returns the name of a feature. Only for vocabularies that store names.
    pub fn name(&self, number: usize) -> &[u8] {
        &self.text[self.bounds[number]..self.bounds[number + 1]]
    }

    /// Returns all names as one text, and the end of each name in this text.
    pub fn names(&self) -> (&[u8], &[usize]) {
        (&self.text, &self.bounds[1..])
    }

    /// Returns the number of a name, or None if the name is unknown.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let hash = hash(name);
        if let Some(bits) = self.bits {
            return Some((hash >> (64 - bits)) as u32);
        }
        self.slot(name, hash).ok()
    }

    /// Finds the numbers of consecutive names in a text, given the end of each. Each step reads memory for all names
    /// before the next step begins, so the memory accesses of different names overlap.
    pub fn find_all(&self, text: &[u8], ends: &[usize]) -> Vec<Option<u32>> {
        let starts = std::iter::once(&0).chain(ends);
        let names = || starts.clone().zip(ends).map(|(start, end)| &text[*start..*end]);
        if self.is_hashed() {
            return names().map(|name| self.find(name)).collect();
        }
        if self.is_empty() {
            return vec![None; ends.len()];
        }
        let mask = self.table.len() - 1;
        let hashes: Vec<u64> = names().map(hash).collect();
        let slots: Vec<(u32, u32)> =
            hashes.iter().map(|hash| self.table[(hash >> 32) as usize & mask]).collect();
        // For an empty slot, any name may be read, because the result is ignored.
        let place = |number: u32| (number as usize).max(1) - 1;
        let places: Vec<(usize, usize)> = slots
            .iter()
            .map(|(_, number)| (self.bounds[place(*number)], self.bounds[place(*number) + 1]))
            .collect();
        let found = names().zip(hashes).zip(slots.into_iter().zip(places));
        found
            .map(|((name, hash), ((part, number), (start, end)))| match number {
                0 => None,
                _ if part == hash as u32 && self.text[start..end] == *name => Some(number - 1),
                _ => self.slot(name, hash).ok(),
            })
            .collect()
    }

    /// Reserves memory for `n_names` names of `n_bytes` bytes in total.
    pub(super) fn make_room(&mut self, n_bytes: usize, n_names: usize) -> error::Result<()> {
        if self.bits.is_some() {
            return Ok(());
        }
        let (what, remedy) = ("the names of features", "hash_bits=22 stores no names");
        if 2 * (self.n_names() + n_names) > self.table.len() {
            check_growth(2 * size_of_val(&self.table[..]), || what.to_owned(), remedy)?;
        }
        if make_room(&mut self.text, n_bytes) && make_room(&mut self.bounds, n_names) {
            return Ok(());
        }
        Err(refused(2 * self.text.len(), || what.to_owned(), remedy))
    }

    /// Returns the number of a name, which is added if it is new.
    pub fn intern(&mut self, name: &[u8]) -> u32 {
        if self.bits.is_some() {
            return self.find(name).unwrap_or(0);
        }
        let hash = hash(name);
        match self.slot(name, hash) {
            Ok(number) => number,
            Err(slot) => {
                let number = self.n_names() as u32;
                self.text.extend_from_slice(name);
                self.bounds.push(self.text.len());
                self.table[slot] = (hash as u32, number + 1);
                if 2 * self.n_names() > self.table.len() {
                    self.grow();
                }
                number
            }
        }
    }

    /// Keeps only the names whose numbers satisfy `keep`. Returns the new number of each old
    /// number.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) -> Vec<Option<u32>> {
        let mut kept = Self::new();
        let number = |number| keep(number).then(|| kept.intern(self.name(number)));
        let numbers = (0..self.n_names()).map(number).collect();
        *self = kept;
        numbers
    }

    /// Returns the number of a name, or the index of the empty slot where it belongs.
    fn slot(&self, name: &[u8], hash: u64) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        loop {
            let (part, number) = self.table[slot];
            if number == 0 {
                return Err(slot);
            }
            if part == hash as u32 && self.name(number as usize - 1) == name {
                return Ok(number - 1);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mask = 4 * self.table.len() - 1;
        let mut table = vec![(0, 0); mask + 1];
        for number in 0..self.n_names() {
            let hash = hash(self.name(number));
            let mut slot = (hash >> 32) as usize & mask;
            while table[slot].1 != 0 {
                slot = (slot + 1) & mask;
            }
            table[slot] = (hash as u32, number as u32 + 1);
        }
        self.table = table;
    }
}

/// A 64-bit hash. It must be the same on all machines, because model files with hashed features depend on it.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64
    };
    let mut hash = FACTOR ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash, u64::from_le_bytes(last)), FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_once() {
        let mut vocabulary = Vocabulary::new();
        let names: Vec<String> =
            (0..5000).map(|index| format!("word[{}]={index}", index % 7)).collect();
        for _ in 0..2 {
            for (number, name) in names.iter().enumerate() {
                assert_eq!(vocabulary.intern(name.as_bytes()), number as u32);
            }
        }
        assert_eq!((vocabulary.len(), vocabulary.find(b"word[0]=1")), (5000, None));
        let others = ["word[0]=1", "", names[17].as_str(), names[0].as_str(), "word[0]=0 "];
        let ends: Vec<usize> = (1..=others.len()).map(|n| others[..n].concat().len()).collect();
        let expected = [None, None, Some(17), Some(0), None];
        assert_eq!(vocabulary.find_all(others.concat().as_bytes(), &ends), expected);
        assert_eq!(Vocabulary::new().find_all(b"ab", &[1, 2]), [None, None]);
        let (text, all) = vocabulary.names();
        let found = vocabulary.find_all(text, all);
        assert!(found.iter().zip(0..).all(|(found, number)| *found == Some(number)));
        assert_eq!(vocabulary.find(b"word[1]=1"), Some(1));
        let numbers = vocabulary.retain(|number| number % 2 == 1);
        assert_eq!((numbers[0], numbers[1], numbers[4999]), (None, Some(0), Some(2499)));
        assert_eq!((vocabulary.name(2499), vocabulary.find(b"")), (names[4999].as_bytes(), None));
        assert_eq!((vocabulary.intern(b""), vocabulary.find(b"")), (2500, Some(2500)));
    }

    #[test]
    fn more_memory_than_available_is_an_error() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.make_room(9, 3).unwrap();
        for (n_bytes, n_names) in [(1 << 60, 1), (1, 1 << 58)] {
            let error = vocabulary.make_room(n_bytes, n_names).unwrap_err().to_string();
            assert!(error.contains("the names of features need"), "{error}");
        }
        vocabulary.intern(b"name");
        assert_eq!(vocabulary.len(), 1);
        Vocabulary::hashed(4).make_room(1 << 60, 1 << 58).unwrap();
    }

    #[test]
    fn hashed_numbers_are_spread_and_stay_the_same() {
        let vocabulary = Vocabulary::hashed(10);
        let mut counts = [0; 1024];
        for index in 0..102_400 {
            counts[vocabulary.find(format!("feature {index}").as_bytes()).unwrap() as usize] += 1;
        }
        assert!(counts.iter().all(|count| (50..160).contains(count)), "{counts:?}");
        assert_eq!(vocabulary.len(), 1024);
        assert_eq!(hash(b"word"), hash(b"word"));
        assert_ne!(hash(b"word"), hash(b"word\0"));
    }
}

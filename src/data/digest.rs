//! A digest (hash) of rows, which detects changes to borrowed data during a fit.

/// Number of independent chains. A step waits only for the previous step of the same chain.
const LANES: usize = 8;

/// An odd constant of xxHash64's rounds.
const MIX: u64 = 0x9E37_79B1_85EB_CA87;

/// Number of values between two interrupt checks: about a millisecond of work.
const VALUES_PER_CHECK: usize = 1 << 20;

/// A hash of all values in order. Arrays that differ in exactly one value always have different digests. Arrays that
/// differ in several values have equal digests with a probability of about 2⁻⁶⁴, unless someone constructs a collision.
/// The rounds resemble the rounds of xxHash64, but have one product instead of two, so that memory bandwidth is the
/// bottleneck.
pub(super) fn digest<T: Copy>(values: &[T], bits: impl Fn(T) -> u64) -> u64 {
    let mut lanes = [0, 1, 2, 3, 4, 5, 6, 7].map(|lane: u64| MIX.wrapping_mul(lane + 1));
    let (whole, rest) = values.as_chunks::<LANES>();
    for block in whole {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = round(*lane, bits(*value));
        }
    }
    let rest = rest.iter().map(|value| bits(*value));
    in_order(lanes.into_iter().chain(rest).chain([values.len() as u64]))
}

/// Combines the digests of pieces of an array.
pub(super) fn digest_in_pieces<T: Copy, E>(
    values: &[T],
    bits: impl Fn(T) -> u64,
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    let mut digests = Vec::new();
    for piece in values.chunks(VALUES_PER_CHECK) {
        go_on()?;
        digests.push(digest(piece, &bits));
    }
    Ok(in_order(digests))
}

/// A hash of the words in order.
pub(crate) fn in_order(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, round)
}

/// One round of the hash. With either argument fixed, it is a bijection of the other argument.
fn round(lane: u64, word: u64) -> u64 {
    (lane.wrapping_add(word)).wrapping_mul(MIX).rotate_left(31)
}

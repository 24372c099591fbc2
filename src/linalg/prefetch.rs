/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the cache lines of `len` values from `start` on, as far as there are any, ahead of their use.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T], start: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for place in (start..start + len).step_by(LINE / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if let Some(value) = values.get(place) {
            // SAFETY: a prefetch reads nothing, and the address is that of a value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, start, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_end_is_left_alone() {
        let values = [1.0_f64; 20];
        for (start, len) in [(0, 20), (3, 0), (16, 40), (20, 1), (50, 8)] {
            prefetch(&values, start, len);
        }
        prefetch::<f32>(&[], 0, 100);
    }
}

//! Stable sorting by small integers.

/// A stable sort of items by keys. First count the items of each key, then request the place of
/// each item.
#[derive(Debug)]
pub(crate) struct CountingSort {
    /// While counting, entry k + 1 is the number of items with key k. Afterwards, entry k is the place of the next
    /// item with key k.
    next: Vec<usize>,
}

impl CountingSort {
    /// Prepares a sort by keys below `n_keys`.
    pub fn new(n_keys: usize) -> Self {
        Self { next: vec![0; n_keys + 1] }
    }

    /// Counts an item.
    pub fn count(&mut self, key: usize) {
        self.next[key + 1] += 1;
    }

    /// Ends the count. Returns the first place of each key, followed by the number of items.
    pub fn starts(&mut self) -> Vec<usize> {
        for key in 1..self.next.len() {
            self.next[key] += self.next[key - 1];
        }
        self.next.clone()
    }

    /// Returns the place of the next item with this key.
    pub fn place(&mut self, key: usize) -> usize {
        let place = self.next[key];
        self.next[key] += 1;
        place
    }
}

/// Sorts (key, item) pairs by their keys below `n_keys`; pairs with equal keys remain in order. Returns the first place
/// of each key, followed by the number of items, and the items.
pub(crate) fn grouped<T: Copy + Default>(
    pairs: &[(u32, T)],
    n_keys: usize,
) -> (Vec<usize>, Vec<T>) {
    let mut sort = CountingSort::new(n_keys);
    pairs.iter().for_each(|(key, _)| sort.count(*key as usize));
    let (starts, mut items) = (sort.starts(), vec![T::default(); pairs.len()]);
    for (key, item) in pairs {
        items[sort.place(*key as usize)] = *item;
    }
    (starts, items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_with_equal_keys_remain_in_order() {
        let keys = [2, 0, 2, 3, 0];
        let mut sort = CountingSort::new(5);
        keys.iter().for_each(|key| sort.count(*key));
        assert_eq!(sort.starts(), [0, 2, 2, 4, 5, 5]);
        assert_eq!(keys.map(|key| sort.place(key)), [2, 0, 3, 4, 1]);
    }
}

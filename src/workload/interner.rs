//! Dense numbers for ids, in the order in which the ids are met.

use rustc_hash::FxHashMap;

/// Ids below this times the number of ids known so far go to a table instead of a hash map.
const SPARSITY: u64 = 8;
/// What the table may hold in any case.
const TABLE_START: u64 = 1024;
/// Marks an id of the table that was not met.
const FREE: u32 = u32::MAX;

/// Turns ids of 64 bits into dense numbers: the first id met becomes 0, the next new one 1, and so on.
///
/// Traces number their blocks from 0 as they appear, so nearly every id is found in a table by itself; ids that are
/// hashes go to a map. The result does not depend on which of the two an id is in.
#[derive(Debug, Default)]
pub(super) struct Interner {
    table: Vec<u32>,
    map: FxHashMap<u64, u32>,
    names: Vec<u64>,
}

impl Interner {
    /// The number of `id`.
    #[inline]
    pub(super) fn intern(&mut self, id: u64) -> u32 {
        if let Some(&number) = self.table.get(id as usize)
            && number != FREE
        {
            return number;
        }
        self.intern_slowly(id)
    }

    /// A number that no id has, for something else called `name`.
    pub(super) fn fresh(&mut self, name: u64) -> u32 {
        self.names.push(name);
        self.names.len() as u32 - 1
    }

    fn intern_slowly(&mut self, id: u64) -> u32 {
        if let Some(&number) = self.map.get(&id) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(id);
        if id < TABLE_START.max(SPARSITY * self.names.len() as u64) {
            if self.table.len() <= id as usize {
                self.table.resize((id as usize + 1).next_power_of_two(), FREE);
            }
            self.table[id as usize] = number;
        } else {
            self.map.insert(id, number);
        }
        number
    }

    /// The id that has a number.
    pub(super) fn name(&self, number: u32) -> u64 {
        self.names[number as usize]
    }

    /// The ids by their numbers.
    pub(super) fn into_names(self) -> Vec<u64> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_first_appearance() {
        let mut interner = Interner::default();
        let ids = [7, u64::MAX, 7, 0, 1 << 32, 1 << 33, u64::MAX, 2_000, 5_000, 2_000];
        let numbers: Vec<u32> = ids.iter().map(|id| interner.intern(*id)).collect();
        assert_eq!(numbers, [0, 1, 0, 2, 3, 4, 1, 5, 6, 5]);
        assert_eq!(interner.into_names(), [7, u64::MAX, 0, 1 << 32, 1 << 33, 2_000, 5_000]);
    }

    #[test]
    fn an_id_keeps_its_number_when_the_table_outgrows_it() {
        let mut interner = Interner::default();
        assert_eq!(interner.intern(3_000), 0);
        for id in 0..1_000 {
            assert_eq!(interner.intern(id), id as u32 + 1);
        }
        assert_eq!(interner.intern(3_000), 0);
        assert_eq!(interner.intern(3_001), 1_001);
    }
}

//! What is too large to travel inside a message.

use super::actor::ParcelId;

/// Parcels between sending and opening, in places that are used again.
pub(super) struct Parcels<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Parcels<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn pack(&mut self, parcel: T) -> ParcelId {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(parcel);
            return ParcelId(place);
        }
        self.places.push(Some(parcel));
        ParcelId(self.places.len() as u32 - 1)
    }

    pub(super) fn open(&mut self, ParcelId(place): ParcelId) -> T {
        let parcel = self.places[place as usize].take();
        self.free.push(place);
        parcel.expect("a parcel is opened once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut parcels = Parcels::new();
        let (a, b) = (parcels.pack("a"), parcels.pack("b"));
        assert_eq!(parcels.open(a), "a");
        let c = parcels.pack("c");
        assert_eq!((c, parcels.open(b), parcels.open(c)), (a, "b", "c"));
    }
}

//! What a source sends, as an operator wants to know it: shapes of events, and drift from every known schema.
//! Bounded, whatever a publisher sends.

use crate::wire::{Batch, Drift, Shape};

/// Distinct shapes and drifts kept; more are counted together.
const SHAPES_MAX: usize = 32;
const DRIFTS_MAX: usize = 64;
/// Bytes kept of a name from the wire.
const NAME_BYTES_MAX: usize = 64;

/// Tallies of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    shapes: Vec<(Shape, u64)>,
    drifts: Vec<Tally>,
    more_drifts: u64,
}

#[derive(Clone, Debug)]
struct Tally {
    label: String,
    count: u64,
}

impl Seen {
    #[inline]
    pub(crate) fn shape(&mut self, shape: Shape) {
        if let Some((_, count)) = self.shapes.iter_mut().find(|(known, _)| *known == shape) {
            *count += 1;
        } else if self.shapes.len() < SHAPES_MAX {
            self.shapes.push((shape, 1));
        }
    }

    #[cold]
    pub(crate) fn drift(&mut self, drift: Drift<'_>) {
        match drift {
            Drift::Key(Some(key)) => self.tally("unknown_key:", key),
            Drift::Key(None) => self.tally("unknown_key:", "(not text)"),
            Drift::Slot(slot) => self.slot(slot),
        }
    }

    fn slot(&mut self, slot: u32) {
        const SLOTS: [&str; 24] = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17",
            "18", "19", "20", "21", "22", "23",
        ];
        self.tally("extra_slot:", SLOTS.get(slot as usize).copied().unwrap_or("24+"));
    }

    /// Drift whose names were not kept.
    pub(crate) fn unlisted(&mut self, count: u64) {
        self.more_drifts += count;
    }

    #[cold]
    pub(crate) fn unknown_tag(&mut self, tag: &str) {
        self.tally("unknown_tag:", tag);
    }

    /// Notes what is odd about a batch itself.
    pub(crate) fn batch(&mut self, batch: &Batch<'_>) {
        if batch.has_negative_rank() {
            self.tally("negative_rank", "");
        }
        if batch.unknown_envelope_fields() > 0 {
            self.tally("unknown_envelope_field", "");
        }
    }

    #[cold]
    fn tally(&mut self, kind: &str, name: &str) {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let same = |label: &str| label.strip_prefix(kind) == Some(name);
        if let Some(tally) = self.drifts.iter_mut().find(|tally| same(&tally.label)) {
            tally.count += 1;
        } else if self.drifts.len() < DRIFTS_MAX {
            self.drifts.push(Tally { label: format!("{kind}{name}"), count: 1 });
        } else {
            self.more_drifts += 1;
        }
    }

    pub(crate) fn shapes(&self) -> impl Iterator<Item = (Shape, u64)> {
        self.shapes.iter().copied()
    }

    pub(crate) fn drifts(&self) -> impl Iterator<Item = (&str, u64)> {
        let more = Some(("more", self.more_drifts)).filter(|&(_, count)| count > 0);
        self.drifts.iter().map(|tally| (tally.label.as_str(), tally.count)).chain(more)
    }
}

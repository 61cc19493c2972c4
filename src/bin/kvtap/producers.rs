//! Which engines write events of a given shape: the version tables of the wire layouts, read backwards.
//!
//! A range starts with the first release whose source was read with that layout. Maps leave defaulted fields out, so
//! a map only shows the oldest release that can have written it.

use std::fmt;

use kvtap::wire::{Field, FieldSet, Shape};

/// Major, minor, patch.
type Version = [u16; 3];

const FIRST: Version = [0; 3];
const LATEST: Version = [u16::MAX; 3];
/// Any patch release, as the last of a range.
const ANY: u16 = u16::MAX;

const VLLM: &str = "vLLM";
const SGLANG: &str = "SGLang";
const TRTLLM: &str = "TensorRT-LLM through Dynamo";
const MOCKER: &str = "Dynamo's mocker";

/// A range of releases of one producer, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Releases {
    producer: &'static str,
    first: Version,
    last: Version,
}

impl Releases {
    const fn of(producer: &'static str, first: Version, last: Version) -> Self {
        Self { producer, first, last }
    }

    const fn since(producer: &'static str, first: Version) -> Self {
        Self::of(producer, first, LATEST)
    }

    const fn until(producer: &'static str, last: Version) -> Self {
        Self::of(producer, FIRST, last)
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |[major, minor, patch]: Version| match patch {
            0 | ANY => format!("{major}.{minor}"),
            _ => format!("{major}.{minor}.{patch}"),
        };
        f.write_str(self.producer)?;
        match (self.first, self.last) {
            (FIRST, LATEST) => Ok(()),
            (FIRST, last) => write!(f, " ≤ {}", version(last)),
            (first, LATEST) => write!(f, " ≥ {}", version(first)),
            (first, last) => write!(f, " {}–{}", version(first), version(last)),
        }
    }
}

/// The releases in words.
pub(crate) fn names(releases: &[Releases]) -> String {
    if releases.is_empty() {
        return "no known release".to_owned();
    }
    let names: Vec<String> = releases.iter().map(Releases::to_string).collect();
    names.join(", ")
}

/// Who can have sent all of these shapes, in words; empty if there are none.
pub(crate) fn of_shapes(shapes: impl Iterator<Item = Shape>) -> String {
    shapes.map(releases).reduce(|all, more| common(&all, &more)).map_or_else(String::new, |all| names(&all))
}

/// Releases that are in both lists: who can have sent both of two shapes.
pub(crate) fn common(some: &[Releases], others: &[Releases]) -> Vec<Releases> {
    let mut both = Vec::new();
    for one in some {
        for other in others.iter().filter(|other| other.producer == one.producer) {
            let (first, last) = (one.first.max(other.first), one.last.min(other.last));
            if first <= last {
                both.push(Releases::of(one.producer, first, last));
            }
        }
    }
    both
}

/// Who writes events of this shape.
pub(crate) fn releases(shape: Shape) -> Vec<Releases> {
    match shape {
        Shape::Tuple(elements) => tuple(elements).to_vec(),
        Shape::Map(fields) if fields.contains(Field::TokenIds) => stored_map(fields),
        Shape::Map(fields) if fields.contains(Field::BlockHashes) => removed_map(fields),
        Shape::Map(_) => vec![
            Releases::since(VLLM, [0, 24, 0]),
            Releases::since(SGLANG, [0, 5, 20]),
            Releases::since(TRTLLM, FIRST),
        ],
        _ => Vec::new(),
    }
}

fn tuple(elements: u32) -> &'static [Releases] {
    match elements {
        1 => const { &[Releases::until(VLLM, [0, 23, ANY]), Releases::until(SGLANG, [0, 5, 19])] },
        2 | 6 => const { &[Releases::until(VLLM, [0, 10, 1]), Releases::until(SGLANG, [0, 5, 8])] },
        3 => {
            const { &[Releases::of(VLLM, [0, 10, 2], [0, 19, ANY]), Releases::of(SGLANG, [0, 5, 9], [0, 5, 19])] }
        }
        4 => const { &[Releases::of(VLLM, [0, 20, 0], [0, 23, ANY])] },
        7 => {
            const { &[Releases::of(VLLM, [0, 10, 2], [0, 13, ANY]), Releases::of(SGLANG, [0, 5, 9], [0, 5, 19])] }
        }
        // SGLang: blocks with a cache salt only.
        8 => {
            const { &[Releases::of(VLLM, [0, 14, 0], [0, 16, ANY]), Releases::of(SGLANG, [0, 5, 18], [0, 5, 19])] }
        }
        9 => const { &[Releases::of(VLLM, [0, 17, 0], [0, 19, ANY])] },
        10 => const { &[Releases::of(VLLM, [0, 20, 0], [0, 21, ANY])] },
        12 => const { &[Releases::of(VLLM, [0, 22, 0], [0, 23, ANY])] },
        _ => &[],
    }
}

/// vLLM always writes `lora_id`, `medium` and `lora_name`, never `cache_salt`; SGLang always `lora_id`, others if set;
/// Dynamo's publishers never `lora_id`, and its mocker always `group_idx`.
fn stored_map(fields: FieldSet) -> Vec<Releases> {
    let has = |field| fields.contains(field);
    if !has(Field::LoraId) {
        return vec![Releases::since(if has(Field::GroupIdx) { MOCKER } else { TRTLLM }, FIRST)];
    }
    let mut releases = Vec::new();
    if has(Field::Medium) && has(Field::LoraName) && !has(Field::CacheSalt) {
        releases.push(vllm_map(fields));
    }
    if !is_only_vllm(fields) {
        let first = if has(Field::LoraName) { [0, 5, 22] } else { [0, 5, 20] };
        releases.push(Releases::since(SGLANG, first));
    }
    releases
}

/// As above; what SGLang and TensorRT-LLM write of a removal is the start of what the others write.
fn removed_map(fields: FieldSet) -> Vec<Releases> {
    let has = |field| fields.contains(field);
    let mut releases = Vec::new();
    if has(Field::Medium) {
        releases.push(vllm_map(fields));
    }
    if !is_only_vllm(fields) {
        releases.push(Releases::since(SGLANG, [0, 5, 20]));
    }
    if !has(Field::Locality) && !has(Field::Ownership) {
        if has(Field::GroupIdx) {
            releases.push(Releases::since(MOCKER, FIRST));
        } else if !has(Field::Medium) {
            releases.push(Releases::since(TRTLLM, FIRST));
        }
    }
    releases
}

/// By the newest key.
fn vllm_map(fields: FieldSet) -> Releases {
    let keys = [
        (Field::LookaheadTokenIds, [0, 33, 0]),
        (Field::SessionId, [0, 30, 0]),
        (Field::Ownership, [0, 29, 0]),
        (Field::Locality, [0, 26, 0]),
    ];
    let newest = keys.into_iter().find(|&(key, _)| fields.contains(key));
    Releases::since(VLLM, newest.map_or([0, 24, 0], |(_, first)| first))
}

/// Whether there is a key that SGLang has not.
fn is_only_vllm(fields: FieldSet) -> bool {
    let keys = [
        Field::GroupIdx,
        Field::SpecKind,
        Field::SlidingWindow,
        Field::ExtraKeys,
        Field::Locality,
        Field::Ownership,
        Field::LookaheadTokenIds,
    ];
    keys.into_iter().any(|key| fields.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvtap::DigestHalf;
    use kvtap::wire::{Decoder, Event};

    /// Shape of the one event of `[0, [event]]`.
    fn shape(event: &[u8]) -> Shape {
        let payload = [&[0x92, 0x00, 0x91], event].concat();
        let mut decoder = Decoder::new(DigestHalf::Low);
        let mut batch = decoder.read(&payload).unwrap();
        match batch.next_event() {
            Some(Event::Stored(stored)) => stored.shape(),
            Some(Event::Removed(removed)) => removed.shape(),
            Some(Event::Cleared(cleared)) => cleared.shape(),
            event => panic!("{event:?}"),
        }
    }

    fn text(text: &str) -> Vec<u8> {
        [&[0xd9, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    fn of_tuple(tag: &str, elements: u8) -> (String, String) {
        let nils = vec![0xc0; usize::from(elements) - 1];
        let shape = shape(&[vec![0x90 | elements], text(tag), nils].concat());
        (shape.form(), names(&releases(shape)))
    }

    fn map(tag: &str, keys: &str) -> Shape {
        let keys: Vec<&str> = keys.split_whitespace().collect();
        let mut event = vec![0xde, 0, u8::try_from(keys.len() + 1).unwrap()];
        event.extend([text("type"), text(tag)].concat());
        for key in keys {
            event.extend(text(key));
            event.push(0xc0);
        }
        shape(&event)
    }

    fn of_map(tag: &str, keys: &str) -> String {
        names(&releases(map(tag, keys)))
    }

    const DYNAMO: &str = "block_hashes parent_block_hash token_ids block_size";

    fn of_stored(more: &str) -> String {
        of_map("BlockStored", &format!("{DYNAMO} lora_id {more}"))
    }

    #[test]
    fn tuples_are_known_by_their_length() {
        let cases = [
            ("BlockStored", 6, "stored, tuple of 6", "vLLM ≤ 0.10.1, SGLang ≤ 0.5.8"),
            ("BlockStored", 7, "stored, tuple of 7", "vLLM 0.10.2–0.13, SGLang 0.5.9–0.5.19"),
            ("BlockStored", 12, "stored, tuple of 12", "vLLM 0.22–0.23"),
            ("BlockStored", 11, "stored, tuple of 11", "no known release"),
            ("BlockRemoved", 4, "removed, tuple of 4", "vLLM 0.20–0.23"),
            ("AllBlocksCleared", 1, "cleared, tuple of 1", "vLLM ≤ 0.23, SGLang ≤ 0.5.19"),
        ];
        for (tag, elements, form, names) in cases {
            assert_eq!(of_tuple(tag, elements), (form.to_owned(), names.to_owned()));
        }
    }

    #[test]
    fn stored_maps_are_known_by_their_newest_key() {
        assert_eq!(of_stored("medium lora_name group_idx kv_cache_spec_kind"), "vLLM ≥ 0.24");
        assert_eq!(of_stored("medium lora_name group_idx locality"), "vLLM ≥ 0.26");
        assert_eq!(of_stored("medium lora_name group_idx ownership"), "vLLM ≥ 0.29");
        assert_eq!(of_stored("medium lora_name group_idx session_id"), "vLLM ≥ 0.30");
        assert_eq!(of_stored("medium lora_name lookahead_token_ids"), "vLLM ≥ 0.33");
        assert_eq!(of_stored("medium lora_name"), "vLLM ≥ 0.24, SGLang ≥ 0.5.22");
        assert_eq!(of_stored("medium lora_name cache_salt"), "SGLang ≥ 0.5.22");
        assert_eq!(of_stored("medium session_id"), "SGLang ≥ 0.5.20");
        assert_eq!(of_map("BlockStored", DYNAMO), TRTLLM);
        assert_eq!(of_map("BlockStored", &format!("{DYNAMO} medium group_idx")), MOCKER);
    }

    #[test]
    fn removed_and_cleared_maps_are_known() {
        let removed = |keys| of_map("BlockRemoved", keys);
        assert_eq!(removed("block_hashes"), "SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo");
        assert_eq!(removed("block_hashes medium"), "vLLM ≥ 0.24, SGLang ≥ 0.5.20");
        assert_eq!(removed("block_hashes medium group_idx"), "vLLM ≥ 0.24, Dynamo's mocker");
        assert_eq!(removed("block_hashes medium locality"), "vLLM ≥ 0.26");
        assert!(of_map("AllBlocksCleared", "").starts_with("vLLM ≥ 0.24, SGLang"));
    }

    #[test]
    fn two_shapes_leave_the_releases_that_send_both() {
        let removed = releases(map("BlockRemoved", "block_hashes medium locality"));
        let stored = releases(map("BlockStored", &format!("{DYNAMO} lora_id medium lora_name session_id")));
        assert_eq!(names(&common(&removed, &stored)), "vLLM ≥ 0.30");
        assert_eq!(names(&common(tuple(3), tuple(8))), "vLLM 0.14–0.16, SGLang 0.5.18–0.5.19");
        assert!(common(tuple(2), &stored).is_empty());
    }
}

//! Which engines write events of a given shape: the version tables of the wire layouts, read backwards.
//!
//! A version range starts with the first release whose source was read with that layout. The maps of newer releases
//! leave out defaulted fields, so a map names the oldest release that can have written it.

use kvtap::wire::{Field, FieldSet, Shape};

/// What an event is and who writes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Encoding {
    /// Kind and form; for tuples their length, tag included.
    pub(crate) form: Form,
    /// Producers and their versions.
    pub(crate) sent_by: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Tuple(&'static str, u32),
    Map(&'static str),
}

const NOBODY: &str = "no known release";

impl Encoding {
    pub(crate) fn of(shape: Shape) -> Self {
        let (form, sent_by) = match shape {
            Shape::Tuple(elements) => tuple(elements),
            Shape::Map(fields) => map(fields),
            _ => (Form::Map("other"), NOBODY),
        };
        Self { form, sent_by }
    }
}

fn tuple(elements: u32) -> (Form, &'static str) {
    let (kind, sent_by) = match elements {
        1 => ("cleared", "vLLM ≤ 0.23, SGLang ≤ 0.5.19"),
        2 => ("removed", "vLLM ≤ 0.10.1, SGLang ≤ 0.5.8"),
        3 => ("removed", "vLLM 0.10.2–0.19, SGLang 0.5.9–0.5.19"),
        4 => ("removed", "vLLM 0.20–0.23"),
        6 => ("stored", "vLLM ≤ 0.10.1, SGLang ≤ 0.5.8"),
        7 => ("stored", "vLLM 0.10.2–0.13, SGLang 0.5.9–0.5.19"),
        8 => ("stored", "vLLM 0.14–0.16, SGLang 0.5.18–0.5.19 with a cache salt"),
        9 => ("stored", "vLLM 0.17–0.19"),
        10 => ("stored", "vLLM 0.20–0.21"),
        12 => ("stored", "vLLM 0.22–0.23"),
        // No release: told apart by the fewest elements a store can have.
        0..=4 => ("removed", NOBODY),
        5.. => ("stored", NOBODY),
    };
    (Form::Tuple(kind, elements), sent_by)
}

fn map(fields: FieldSet) -> (Form, &'static str) {
    if fields.contains(Field::TokenIds) {
        (Form::Map("stored"), stored_map(fields))
    } else if fields.contains(Field::BlockHashes) {
        (Form::Map("removed"), removed_map(fields))
    } else {
        (Form::Map("cleared"), "vLLM ≥ 0.24, SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo")
    }
}

/// vLLM always writes `lora_id`, `medium` and `lora_name`; SGLang always `lora_id`, the others if set; Dynamo's
/// publishers never `lora_id` (its mocker always `group_idx`).
fn stored_map(fields: FieldSet) -> &'static str {
    let has = |field| fields.contains(field);
    if !has(Field::LoraId) {
        return if has(Field::GroupIdx) { "Dynamo's mocker" } else { "TensorRT-LLM through Dynamo 1.6" };
    }
    let is_vllm = has(Field::Medium) && has(Field::LoraName) && !has(Field::CacheSalt);
    if !is_vllm {
        return if has(Field::LoraName) { "SGLang ≥ 0.5.22 with LoRA" } else { "SGLang ≥ 0.5.20" };
    }
    if has(Field::LookaheadTokenIds) {
        return "vLLM ≥ 0.33";
    }
    // What SGLang never writes.
    let only_vllm = [Field::GroupIdx, Field::SpecKind, Field::ExtraKeys, Field::Locality, Field::Ownership];
    if !only_vllm.into_iter().any(has) {
        return if has(Field::SessionId) {
            "vLLM ≥ 0.30 offload, SGLang ≥ 0.5.22 with LoRA"
        } else {
            "vLLM ≥ 0.24 offload, SGLang ≥ 0.5.22 with LoRA"
        };
    }
    if has(Field::SessionId) {
        "vLLM ≥ 0.30"
    } else if has(Field::Ownership) {
        "vLLM ≥ 0.29"
    } else if has(Field::Locality) {
        "vLLM ≥ 0.26"
    } else {
        "vLLM ≥ 0.24"
    }
}

fn removed_map(fields: FieldSet) -> &'static str {
    let has = |field| fields.contains(field);
    if has(Field::Ownership) {
        "vLLM ≥ 0.29"
    } else if has(Field::Locality) {
        "vLLM ≥ 0.26"
    } else if has(Field::GroupIdx) {
        "vLLM ≥ 0.24, Dynamo's mocker"
    } else if has(Field::Medium) {
        "vLLM ≥ 0.24 offload, SGLang ≥ 0.5.20"
    } else {
        "SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo"
    }
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

    fn of_tuple(tag: &str, elements: u8) -> (Form, &'static str) {
        let nils = vec![0xc0; usize::from(elements) - 1];
        let Encoding { form, sent_by } =
            Encoding::of(shape(&[vec![0x90 | elements], text(tag), nils].concat()));
        (form, sent_by)
    }

    fn of_map(tag: &str, keys: &str) -> &'static str {
        let keys: Vec<&str> = keys.split_whitespace().collect();
        let mut event = vec![0xde, 0, u8::try_from(keys.len() + 1).unwrap()];
        event.extend([text("type"), text(tag)].concat());
        for key in keys {
            event.extend(text(key));
            event.push(0xc0);
        }
        Encoding::of(shape(&event)).sent_by
    }

    const SGLANG: &str = "block_hashes parent_block_hash token_ids block_size lora_id";

    fn of_stored(more: &str) -> &'static str {
        of_map("BlockStored", &format!("{SGLANG} {more}"))
    }

    #[test]
    fn tuples_are_known_by_their_length() {
        let stored = |elements| of_tuple("BlockStored", elements);
        assert_eq!(stored(6), (Form::Tuple("stored", 6), "vLLM ≤ 0.10.1, SGLang ≤ 0.5.8"));
        assert_eq!(stored(7), (Form::Tuple("stored", 7), "vLLM 0.10.2–0.13, SGLang 0.5.9–0.5.19"));
        assert_eq!(stored(12), (Form::Tuple("stored", 12), "vLLM 0.22–0.23"));
        assert_eq!(stored(11), (Form::Tuple("stored", 11), NOBODY));
        assert_eq!(of_tuple("BlockRemoved", 4), (Form::Tuple("removed", 4), "vLLM 0.20–0.23"));
        assert_eq!(
            of_tuple("AllBlocksCleared", 1),
            (Form::Tuple("cleared", 1), "vLLM ≤ 0.23, SGLang ≤ 0.5.19")
        );
    }

    #[test]
    fn stored_maps_are_known_by_their_newest_key() {
        assert_eq!(of_stored("medium lora_name group_idx kv_cache_spec_kind"), "vLLM ≥ 0.24");
        assert_eq!(of_stored("medium lora_name group_idx locality"), "vLLM ≥ 0.26");
        assert_eq!(of_stored("medium lora_name group_idx ownership"), "vLLM ≥ 0.29");
        assert_eq!(of_stored("medium lora_name group_idx session_id"), "vLLM ≥ 0.30");
        assert_eq!(of_stored("medium lora_name lookahead_token_ids"), "vLLM ≥ 0.33");
        assert_eq!(of_stored(""), "SGLang ≥ 0.5.20");
        assert_eq!(of_stored("medium session_id cache_salt"), "SGLang ≥ 0.5.20");
        assert_eq!(of_stored("medium lora_name cache_salt"), "SGLang ≥ 0.5.22 with LoRA");
    }

    #[test]
    fn dynamo_leaves_out_the_adapter_number() {
        let dynamo = "block_hashes parent_block_hash token_ids block_size";
        assert_eq!(of_map("BlockStored", dynamo), "TensorRT-LLM through Dynamo 1.6");
        assert_eq!(of_map("BlockStored", &format!("{dynamo} medium group_idx")), "Dynamo's mocker");
    }

    #[test]
    fn removed_and_cleared_maps_are_known() {
        assert_eq!(of_map("BlockRemoved", "block_hashes"), "SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo");
        assert_eq!(of_map("BlockRemoved", "block_hashes medium group_idx"), "vLLM ≥ 0.24, Dynamo's mocker");
        assert_eq!(of_map("BlockRemoved", "block_hashes medium locality"), "vLLM ≥ 0.26");
        assert!(of_map("AllBlocksCleared", "").starts_with("vLLM ≥ 0.24"));
    }
}

//! The verdict on one event, step by step in the order of the contract. Reasons are their labels.

use std::collections::HashMap;

use super::event::{Body, Head};
use super::fields::Tag;
use super::index::Index;

const MAIN: [&str; 3] = ["full_attention", "mla_attention", "sink_full_attention"];
const OTHER: [&str; 6] = [
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "encoder_only_attention",
    "cross_attention",
];

/// What must be remembered of one worker and rank between events, besides its blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankState {
    kinds: HashMap<u32, String>,
    full_block_seen: bool,
}

/// What a store that passed is placed with.
pub(crate) struct Admitted {
    /// The namespace after inheritance.
    pub(crate) cache_salt: Option<String>,
    /// An offload store without tokens: resolved by engine hash.
    pub(crate) placeholder: bool,
}

impl RankState {
    /// Steps 1 to 4; the tier, or the reason.
    pub(crate) fn admit_head(&mut self, tag: Tag, head: &Head) -> Result<u8, &'static str> {
        ownership(head)?;
        match head.locality.as_deref() {
            None | Some("LOCAL") => {}
            Some(_) => return Err("non_local_locality"),
        }
        let tier = tier(head.medium.as_deref())?;
        if tier <= 1 {
            self.group(tag, head)?;
        }
        Ok(tier)
    }

    fn group(&mut self, tag: Tag, head: &Head) -> Result<(), &'static str> {
        if let (Tag::Stored, Some(group), Some(kind)) = (tag, head.group_idx, &head.spec_kind) {
            self.kinds.insert(group, kind.clone());
        }
        if let Some(kind) = &head.spec_kind {
            return judge_kind(kind, "non_main_attention_kind");
        }
        let Some(group) = head.group_idx else { return Ok(()) };
        match self.kinds.get(&group) {
            Some(kind) => judge_kind(kind, "non_main_attention_group"),
            None if group == 0 => Ok(()),
            None => Err("unlearned_group_idx"),
        }
    }

    /// Steps 5 to 7 for a stored event, with the configured block size and the entry of its parent.
    pub(crate) fn admit_body(
        &mut self,
        body: &Body,
        tier: u8,
        block_size: u32,
        scope: (&Index, u64, u32),
    ) -> Result<Admitted, &'static str> {
        let has_tokens = !body.tokens.ids.is_empty();
        let mut cache_salt = body.own_salt();
        if has_tokens && cache_salt.is_none() {
            let (index, worker_id, dp_rank) = scope;
            let parent = body.parent().and_then(|parent| index.find(worker_id, dp_rank, parent));
            if parent.is_some_and(|parent| parent.ambiguous) {
                return Err("ambiguous_cache_namespace");
            }
            cache_salt = parent.and_then(|parent| parent.cache_salt.clone());
        }
        let placeholder = tier > 0 && !has_tokens;
        if !placeholder {
            if body.block_size == block_size {
                self.full_block_seen = true;
            } else if body.block_size < block_size && self.full_block_seen {
                return Err("partial_block");
            } else {
                return Err("block_size_mismatch");
            }
        }
        chain_shape(body)?;
        Ok(Admitted { cache_salt, placeholder })
    }

    /// Step 11: the proof of full blocks goes, the group kinds stay.
    pub(crate) fn clear(&mut self) {
        self.full_block_seen = false;
    }
}

/// Step 1.
pub(crate) fn ownership(head: &Head) -> Result<(), &'static str> {
    match head.ownership.as_deref() {
        None => Ok(()),
        Some("kvcr") => Err("unsupported_ownership"),
        Some(_) => Err("unknown_ownership"),
    }
}

/// Step 3.
fn tier(medium: Option<&str>) -> Result<u8, &'static str> {
    match medium.unwrap_or_default().to_ascii_uppercase().as_str() {
        "" | "GPU" | "DEVICE" => Ok(0),
        "CPU" | "CPU_PINNED" | "CPU_TIER1" => Ok(1),
        "CPU_TIER2" | "DISK" | "NVME" | "STORAGE" => Ok(2),
        "EXTERNAL" | "NETWORK" | "REMOTE" | "SHARED" => Ok(3),
        _ => Err("unknown_medium"),
    }
}

fn judge_kind(kind: &str, when_other: &'static str) -> Result<(), &'static str> {
    if MAIN.contains(&kind) {
        Ok(())
    } else if OTHER.contains(&kind) {
        Err(when_other)
    } else {
        Err("unknown_kind")
    }
}

/// Step 7.
fn chain_shape(body: &Body) -> Result<(), &'static str> {
    let hashes = &body.block_hashes;
    if hashes.is_empty() {
        return Err("no_hashes");
    }
    let repeats = (1..hashes.len()).any(|position| hashes[..position].contains(&hashes[position]));
    if repeats || body.parent().is_some_and(|parent| hashes.contains(&parent)) {
        return Err("self_referencing");
    }
    let size = usize::try_from(body.block_size).expect("u32 fits usize");
    if body.tokens.ids.len() > hashes.len() * size {
        return Err("excess_tokens");
    }
    Ok(())
}

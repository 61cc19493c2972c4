//! The events of a history as msgpack.

const MEDIA: [&str; 4] = ["GPU", "CPU", "DISK", "EXTERNAL"];

/// A batch of events for a rank.
pub(super) fn payload(dp_rank: u32, events: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0x93, 0x01];
    list(&mut out, events.len());
    out.extend(events.concat());
    number(&mut out, dp_rank.into());
    out
}

pub(super) fn stored(parent: Option<u64>, names: &[u64], tokens: &[u32], tier: usize) -> Vec<u8> {
    let mut out = vec![0x97];
    text(&mut out, "BlockStored");
    numbers(&mut out, names);
    match parent {
        None => out.push(0xc0),
        Some(parent) => number(&mut out, parent),
    }
    list(&mut out, tokens.len());
    tokens.iter().for_each(|&token| number(&mut out, token.into()));
    out.extend([0x01, 0xc0]);
    text(&mut out, MEDIA[tier]);
    out
}

pub(super) fn removed(names: &[u64], tier: usize) -> Vec<u8> {
    let mut out = vec![0x93];
    text(&mut out, "BlockRemoved");
    numbers(&mut out, names);
    text(&mut out, MEDIA[tier]);
    out
}

pub(super) fn cleared() -> Vec<u8> {
    let mut out = vec![0x91];
    text(&mut out, "AllBlocksCleared");
    out
}

fn number(out: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        Ok(small @ 0..=0x7f) => out.push(small),
        _ => {
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
    }
}

fn numbers(out: &mut Vec<u8>, all: &[u64]) {
    list(out, all.len());
    all.iter().for_each(|&one| number(out, one));
}

fn list(out: &mut Vec<u8>, len: usize) {
    out.push(0xdd);
    out.extend(u32::try_from(len).expect("few").to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend([0xd9, u8::try_from(text.len()).expect("short")]);
    out.extend(text.as_bytes());
}

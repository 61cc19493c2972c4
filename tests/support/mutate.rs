//! Damages a payload: blindly by bytes, or knowingly at value starts and map keys. Same seed, same damage.

use super::pack::Choices;

/// Markers worth meeting where another was expected.
const MARKERS: [u8; 24] = [
    0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xc4, 0xc6, 0xc7, 0xca, 0xcb, 0xcf,
    0xd3, 0xd9, 0xdb, 0xdd, 0xde, 0xdf, 0xff,
];

/// One to three pieces of damage to `payload`; `other` is a payload to take parts from.
pub(crate) fn mutate(seed: u64, payload: &[u8], other: &[u8]) -> Vec<u8> {
    let mut choices = Choices::new(seed);
    let mut bytes = payload.to_vec();
    for _ in 0..1 + choices.below(3) {
        bytes = match choices.below(8) {
            0 => flip(&mut choices, bytes),
            1 => cut(&mut choices, bytes),
            2 => insert(&mut choices, bytes),
            3 => splice(&mut choices, &bytes, other),
            4 => change_marker(&mut choices, bytes),
            5 => replace_value(&mut choices, &bytes, other),
            6 => swap_keys(&mut choices, &bytes),
            _ => repeat_key(&mut choices, &bytes),
        };
    }
    bytes
}

/// Names that groups of a cache go by.
const KINDS: [&[u8]; 5] = [b"full_attention", b"mla_attention", b"sliding_window", b"mamba", b"unknown"];

/// Gives each group kind that is named another name: what was learned of a group holds no longer.
pub(crate) fn teach(choices: &mut Choices, bytes: &[u8]) -> Vec<u8> {
    let mut taught = bytes.to_vec();
    // From the end, so that what comes before stays where it is.
    let mut values = Layout::of(bytes).values;
    values.sort_unstable();
    for (start, end) in values.into_iter().rev() {
        // Short text and text with a length of one byte.
        let text = match bytes[start] {
            0xa0..=0xbf => start + 1,
            0xd9 => start + 2,
            _ => continue,
        };
        if bytes.get(text..end).is_some_and(|text| KINDS.contains(&text)) {
            let kind = choices.pick(&KINDS);
            let head = 0xa0 | u8::try_from(kind.len()).expect("short");
            taught.splice(start..end, [&[head], kind].concat());
        }
    }
    taught
}

/// Flips one to four bits.
pub(crate) fn flip(choices: &mut Choices, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + choices.below(4) {
        if !bytes.is_empty() {
            let at = choices.below(bytes.len());
            bytes[at] ^= 1 << choices.below(8);
        }
    }
    bytes
}

/// Drops a run of bytes, often all to the end.
pub(crate) fn cut(choices: &mut Choices, mut bytes: Vec<u8>) -> Vec<u8> {
    let start = choices.below(bytes.len() + 1);
    let end = if choices.percent(50) { bytes.len() } else { (start + 1 + choices.below(8)).min(bytes.len()) };
    bytes.drain(start..end);
    bytes
}

/// Puts a few bytes in, often at the end.
pub(crate) fn insert(choices: &mut Choices, mut bytes: Vec<u8>) -> Vec<u8> {
    let at = if choices.percent(30) { bytes.len() } else { choices.below(bytes.len() + 1) };
    let len = 1 + choices.below(6);
    let fresh = choices.bytes(len);
    bytes.splice(at..at, fresh);
    bytes
}

/// The start of one payload and the end of the other.
pub(crate) fn splice(choices: &mut Choices, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let (head, tail) = (choices.below(bytes.len() + 1), choices.below(other.len() + 1));
    [&bytes[..head], &other[tail..]].concat()
}

/// Another marker where a value starts.
pub(crate) fn change_marker(choices: &mut Choices, mut bytes: Vec<u8>) -> Vec<u8> {
    let starts = Layout::of(&bytes).values;
    if !starts.is_empty() {
        let (start, _) = choices.pick(&starts);
        bytes[start] = choices.pick(&MARKERS);
    }
    bytes
}

/// A whole value in place of another: the payload stays sound, its meaning does not.
pub(crate) fn replace_value(choices: &mut Choices, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let (ours, theirs) = (Layout::of(bytes).values, Layout::of(other).values);
    if ours.is_empty() || theirs.is_empty() {
        return bytes.to_vec();
    }
    let ((start, end), (from, to)) = (choices.pick(&ours), choices.pick(&theirs));
    [&bytes[..start], &other[from..to], &bytes[end..]].concat()
}

/// Exchanges two keys of a map, so that each names the other's value.
pub(crate) fn swap_keys(choices: &mut Choices, bytes: &[u8]) -> Vec<u8> {
    let Some((first, second)) = two_keys(choices, bytes) else { return bytes.to_vec() };
    let between = &bytes[first.1..second.0];
    let (one, two) = (&bytes[first.0..first.1], &bytes[second.0..second.1]);
    [&bytes[..first.0], two, between, one, &bytes[second.1..]].concat()
}

/// Gives one value of a map the key of another.
pub(crate) fn repeat_key(choices: &mut Choices, bytes: &[u8]) -> Vec<u8> {
    let Some((first, second)) = two_keys(choices, bytes) else { return bytes.to_vec() };
    let (from, to) = if choices.percent(50) { (first, second) } else { (second, first) };
    [&bytes[..to.0], &bytes[from.0..from.1], &bytes[to.1..]].concat()
}

/// Where something starts and ends.
type Span = (usize, usize);

fn two_keys(choices: &mut Choices, bytes: &[u8]) -> Option<(Span, Span)> {
    let maps: Vec<_> = Layout::of(bytes).maps.into_iter().filter(|keys| keys.len() > 1).collect();
    if maps.is_empty() {
        return None;
    }
    let keys = &maps[choices.below(maps.len())];
    let second = 1 + choices.below(keys.len() - 1);
    Some((keys[choices.below(second)], keys[second]))
}

/// Where the values of a payload lie, as far as it is sound.
#[derive(Default)]
struct Layout {
    values: Vec<Span>,
    /// The keys of each map.
    maps: Vec<Vec<Span>>,
}

impl Layout {
    fn of(bytes: &[u8]) -> Self {
        let mut layout = Self::default();
        layout.walk(bytes, 0, 0);
        layout
    }

    /// Walks the value at `at`; its end, if there is one.
    fn walk(&mut self, bytes: &[u8], at: usize, depth: usize) -> Option<usize> {
        let marker = *bytes.get(at)?;
        let number = |width: usize| {
            let digits = bytes.get(at + 1..at + 1 + width)?;
            Some(digits.iter().fold(0, |number, digit| (number << 8) | usize::from(*digit)))
        };
        let low = usize::from(marker & 0x0f);
        let (head, body, items, map) = match marker {
            0x80..=0x8f => (1, 0, low, true),
            0x90..=0x9f => (1, 0, low, false),
            0xa0..=0xbf => (1, usize::from(marker & 0x1f), 0, false),
            0xc4 | 0xd9 => (2, number(1)?, 0, false),
            0xc5 | 0xda => (3, number(2)?, 0, false),
            0xc6 | 0xdb => (5, number(4)?, 0, false),
            0xc7 => (3, number(1)?, 0, false),
            0xc8 => (4, number(2)?, 0, false),
            0xc9 => (6, number(4)?, 0, false),
            0xcc | 0xd0 => (2, 0, 0, false),
            0xcd | 0xd1 => (3, 0, 0, false),
            0xca | 0xce | 0xd2 => (5, 0, 0, false),
            0xcb | 0xcf | 0xd3 => (9, 0, 0, false),
            0xd4..=0xd8 => (2, 1 << (marker - 0xd4), 0, false),
            0xdc => (3, 0, number(2)?, false),
            0xdd => (5, 0, number(4)?, false),
            0xde => (3, 0, number(2)?, true),
            0xdf => (5, 0, number(4)?, true),
            _ => (1, 0, 0, false),
        };
        let mut end = at + head + body;
        if end > bytes.len() || depth > 80 {
            return None;
        }
        let mut keys = Vec::new();
        for item in 0..if map { 2 * items } else { items } {
            let start = end;
            end = self.walk(bytes, start, depth + 1)?;
            if map && item % 2 == 0 {
                keys.push((start, end));
            }
        }
        if map {
            self.maps.push(keys);
        }
        self.values.push((at, end));
        Some(end)
    }
}

//! Writes msgpack in any of the widths and shapes that may stand for a value; a seeded source of choices.

/// A small seeded generator (SplitMix64): the same seed gives the same choices on every platform.
#[derive(Clone, Debug)]
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a length");
        usize::try_from(self.u64() % bound).expect("below a usize")
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u64().to_le_bytes()[0]).collect()
    }
}

/// SplitMix64's finisher.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub(crate) fn nil() -> Vec<u8> {
    vec![0xc0]
}

/// An integer under a random one of the markers that can hold it; mostly the shortest.
pub(crate) fn int(choices: &mut Choices, number: i128) -> Vec<u8> {
    let mut shapes = Vec::new();
    if (0..128).contains(&number) || (-32..0).contains(&number) {
        shapes.push((None, 1));
    }
    for (marker, width) in [(0xcc, 1), (0xcd, 2), (0xce, 4), (0xcf, 8)] {
        if (0..1_i128 << (8 * width)).contains(&number) {
            shapes.push((Some(marker), width));
        }
    }
    for (marker, width) in [(0xd0, 1), (0xd1, 2), (0xd2, 4), (0xd3, 8)] {
        let half = 1_i128 << (8 * width - 1);
        if (-half..half).contains(&number) {
            shapes.push((Some(marker), width));
        }
    }
    let (marker, width) = if choices.percent(70) { shapes[0] } else { choices.pick(&shapes) };
    let mut bytes: Vec<u8> = marker.into_iter().collect();
    bytes.extend(&number.to_be_bytes()[16 - width..]);
    bytes
}

/// Text as str; now and then as bin, or under a wider length.
pub(crate) fn text(choices: &mut Choices, text: &str) -> Vec<u8> {
    if choices.percent(8) { bin(choices, text.as_bytes()) } else { string(choices, text.as_bytes()) }
}

/// Bytes as str, whether UTF-8 or not.
pub(crate) fn string(choices: &mut Choices, bytes: &[u8]) -> Vec<u8> {
    if bytes.len() < 32 && choices.percent(80) {
        let mut packed = vec![0xa0 | u8::try_from(bytes.len()).expect("below 32")];
        packed.extend(bytes);
        return packed;
    }
    sized(choices, [0xd9, 0xda, 0xdb], bytes)
}

pub(crate) fn bin(choices: &mut Choices, bytes: &[u8]) -> Vec<u8> {
    sized(choices, [0xc4, 0xc5, 0xc6], bytes)
}

fn sized(choices: &mut Choices, markers: [u8; 3], bytes: &[u8]) -> Vec<u8> {
    let smallest = usize::from(bytes.len() > 0xff);
    let width = if choices.percent(80) { smallest } else { smallest + choices.below(3 - smallest) };
    let len = u32::try_from(bytes.len()).expect("short bytes").to_be_bytes();
    let mut packed = vec![markers[width]];
    packed.extend(&len[4 - (1 << width)..]);
    packed.extend(bytes);
    packed
}

pub(crate) fn array(choices: &mut Choices, items: &[Vec<u8>]) -> Vec<u8> {
    let mut packed = header(choices, [0x90, 0xdc, 0xdd], items.len());
    packed.extend(items.concat());
    packed
}

pub(crate) fn map(choices: &mut Choices, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut packed = header(choices, [0x80, 0xde, 0xdf], pairs.len());
    for (key, value) in pairs {
        packed.extend(key);
        packed.extend(value);
    }
    packed
}

fn header(choices: &mut Choices, markers: [u8; 3], count: usize) -> Vec<u8> {
    let count = u32::try_from(count).expect("a small count");
    let [_, _, high, low] = count.to_be_bytes();
    let wide = choices.percent(5);
    match count {
        0..=15 if !choices.percent(10) => vec![markers[0] | low],
        0..=0xffff if !wide => vec![markers[1], high, low],
        _ => [vec![markers[2]], count.to_be_bytes().to_vec()].concat(),
    }
}

/// A float of either width.
pub(crate) fn float(choices: &mut Choices, number: f64) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "the narrow float loses digits, as on the wire")]
    let narrow = number as f32;
    if choices.percent(20) {
        return [vec![0xca], narrow.to_be_bytes().to_vec()].concat();
    }
    [vec![0xcb], number.to_be_bytes().to_vec()].concat()
}

/// Any value at all, of any type, nested a little.
pub(crate) fn junk(choices: &mut Choices, depth: usize) -> Vec<u8> {
    let kinds = if depth == 0 { 9 } else { 12 };
    match choices.below(kinds) {
        0 => nil(),
        1 => vec![choices.pick(&[0xc2, 0xc3])],
        2 => {
            let small = i128::from(choices.u64() % 300) - 40;
            int(choices, small)
        }
        3 => {
            let bits = i128::from(choices.u64());
            let number = choices.pick(&[bits, -(bits >> 1), bits >> 32]);
            int(choices, number)
        }
        4 => float(choices, 1.5),
        5 => {
            let word = choices.pick(&["", "GPU", "mamba", "LOCAL", "kvcr", "BlockStored", "naïve"]);
            text(choices, word)
        }
        6 => string(choices, b"\xff\xfe"),
        7 => {
            let len = choices.below(40);
            let bytes = choices.bytes(len);
            bin(choices, &bytes)
        }
        8 => [vec![0xd6, 0xff], choices.bytes(4)].concat(),
        9 | 10 => {
            let items: Vec<_> = (0..choices.below(4)).map(|_| junk(choices, depth - 1)).collect();
            array(choices, &items)
        }
        _ => {
            let pairs: Vec<_> =
                (0..choices.below(4)).map(|_| (junk(choices, 0), junk(choices, depth - 1))).collect();
            map(choices, &pairs)
        }
    }
}

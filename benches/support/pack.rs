//! Writes msgpack as producers do: every value in its shortest form.

/// Bytes being written.
#[derive(Debug, Default)]
pub(crate) struct Pack(pub(crate) Vec<u8>);

impl Pack {
    pub(crate) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(crate) fn uint(&mut self, number: u64) {
        let bytes = number.to_be_bytes();
        match number {
            0..0x80 => self.0.push(bytes[7]),
            0x80..0x100 => self.marked(0xcc, &bytes[7..]),
            0x100..0x1_0000 => self.marked(0xcd, &bytes[6..]),
            0x1_0000..0x1_0000_0000 => self.marked(0xce, &bytes[4..]),
            _ => self.marked(0xcf, &bytes),
        }
    }

    /// A hash as a signed integer; those with the top bit set are negative. Not for small ones.
    pub(crate) fn signed_hash(&mut self, hash: u64) {
        let marker = if hash.cast_signed() < 0 { 0xd3 } else { 0xcf };
        self.marked(marker, &hash.to_be_bytes());
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.marked(0xcb, &number.to_be_bytes());
    }

    /// Text below 256 bytes.
    pub(crate) fn text(&mut self, text: &str) {
        let len = u8::try_from(text.len()).expect("a short text");
        if len < 32 {
            self.marked(0xa0 | len, text.as_bytes());
        } else {
            self.marked(0xd9, &[len]);
            self.0.extend(text.as_bytes());
        }
    }

    /// Header of an array.
    pub(crate) fn array(&mut self, len: usize) {
        let bytes = u32::try_from(len).expect("a small array").to_be_bytes();
        match len {
            0..16 => self.0.push(0x90 | bytes[3]),
            16..0x1_0000 => self.marked(0xdc, &bytes[2..]),
            _ => self.marked(0xdd, &bytes),
        }
    }

    /// Header of a map below 16 pairs.
    pub(crate) fn map(&mut self, pairs: usize) {
        assert!(pairs < 16);
        self.0.push(0x80 | u8::try_from(pairs).expect("a small map"));
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.0.push(marker);
        self.0.extend(bytes);
    }
}

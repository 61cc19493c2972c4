//! Reads a whole capture container into memory; the plain twin of the crate's own reader.

/// One captured message.
pub(crate) struct Record {
    /// When it was captured, in Unix nanoseconds.
    pub(crate) unix_ns: u64,
    /// Its sequence number.
    pub(crate) sequence: u64,
    /// Its topic, as bytes.
    pub(crate) topic: Vec<u8>,
    /// The msgpack payload.
    pub(crate) payload: Vec<u8>,
}

/// Every record of a container; panics on a broken one, since only our own files are read.
pub(crate) fn read(bytes: &[u8]) -> Vec<Record> {
    let mut rest = bytes.strip_prefix(b"KVCAP\0\x01\n").expect("the magic of a capture");
    let mut records = Vec::new();
    while !rest.is_empty() {
        let unix_ns = u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap());
        let sequence = u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap());
        let topic_len = u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap());
        let payload_len = u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap());
        let topic = take(&mut rest, usize::try_from(topic_len).unwrap()).to_vec();
        let payload = take(&mut rest, usize::try_from(payload_len).unwrap()).to_vec();
        records.push(Record { unix_ns, sequence, topic, payload });
    }
    records
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(len);
    *rest = tail;
    head
}

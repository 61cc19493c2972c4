//! The capture reader: any bytes are read without panic and without memory by a declared length, however they arrive;
//! what was read, written again, gives the same bytes.

use std::io::{self, Read};

use kvtap::kvcap::{Expected, KvcapError, Reader, Record, Writer};

use crate::support::allocations::measure;

/// Reads the bytes as they are, behind a magic, and as the contents of records.
pub fn run(data: &[u8]) {
    read(data);
    if let Some((&size, contents)) = data.split_first() {
        let written = write(contents, usize::from(size) + 1);
        assert_eq!(read(&written), written.len(), "what was written is read back");
        // Cut anywhere, it is damaged or ends after a record.
        read(&written[..written.len() - contents.len() % written.len()]);
    }
}

/// Reads to the end or the damage; gives how many bytes were whole records. All ways to bring the bytes agree.
fn read(data: &[u8]) -> usize {
    let (whole, usage) = measure(|| records(data));
    let held = usize::try_from(usage.held_bytes_max).expect("a size");
    // Twice while the buffer grows, once in the copy made here.
    assert!(held <= 16 * data.len() + 8192, "{held} bytes held for {} bytes", data.len());
    for step in [1, 7] {
        let (again, _) = measure(|| records(Steps { data, step }));
        assert_eq!(again, whole, "{step} bytes at a time");
    }
    let (written, end) = whole;
    assert_eq!(data.get(..written.len()).unwrap_or_default(), written, "written again");
    match end {
        End::Clean => assert_eq!(written.len(), data.len()),
        End::Damaged { offset, expected, found_bytes } => {
            assert!(offset + found_bytes <= data.len() as u64);
            if !matches!(expected, Expected::Magic | Expected::FrameLengths) {
                assert_eq!(offset + found_bytes, data.len() as u64, "missing bytes are missing at the end");
                assert!(offset >= written.len() as u64);
            }
        }
    }
    written.len()
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Clean,
    Damaged { offset: u64, expected: Expected, found_bytes: u64 },
}

/// All whole records, written again.
fn records(bytes: impl Read) -> (Vec<u8>, End) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), end(&error)),
    };
    let mut writer = Writer::new(Vec::new()).expect("memory");
    let end = loop {
        match reader.next_record() {
            Ok(None) => break End::Clean,
            Ok(Some(record)) => writer.write(&record).expect("memory"),
            Err(error) => break end(&error),
        }
    };
    (writer.into_inner(), end)
}

fn end(error: &KvcapError) -> End {
    assert!(!error.to_string().is_empty());
    match *error {
        KvcapError::Damaged { offset, expected, found_bytes } => {
            End::Damaged { offset, expected, found_bytes }
        }
        ref other => panic!("memory cannot fail: {other}"),
    }
}

/// A capture whose records are pieces of `contents`.
fn write(contents: &[u8], size: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for (sequence, piece) in (0..).zip(contents.chunks(size)) {
        let (topic, payload) = piece.split_at(usize::from(piece[0]) % (piece.len() + 1));
        writer.write(&Record { unix_ns: !sequence, sequence, topic, payload }).expect("memory");
    }
    writer.into_inner()
}

/// Bytes that arrive few at a time, interrupted.
struct Steps<'d> {
    data: &'d [u8],
    step: usize,
}

impl Read for Steps<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.data.len() % 3 == 2 && self.step > 1 {
            self.step -= 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = self.step.min(out.len()).min(self.data.len());
        let (now, rest) = self.data.split_at(len);
        out[..len].copy_from_slice(now);
        self.data = rest;
        Ok(len)
    }
}

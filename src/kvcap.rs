//! The capture container `.kvcap`: messages as they came off the wire, read and written record by record.
//! Control plane; knows nothing of what a payload means.
//!
//! # Layout
//!
//! 8-byte magic `KVCAP\0\x01\n`, then records without padding until the file ends, integers little-endian:
//!
//! | bytes | 8 | 8 | 4 | 4 | T | P |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | | unix nanoseconds | sequence | topic length T | payload length P | topic | payload |

use std::fmt;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"KVCAP\0\x01\n";
const HEADER_BYTES: usize = 24;
/// Of a topic, and of a payload: as much as anybody may ask for of a live source. More is a damaged length.
const FRAME_BYTES_MAX: u32 = 1 << 30;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was received.
    pub unix_ns: u64,
    /// The publisher's sequence number.
    pub sequence: u64,
    /// Topic frame.
    pub topic: &'a [u8],
    /// Payload frame: one batch.
    pub payload: &'a [u8],
}

/// Why a capture cannot be read on.
#[derive(Debug)]
#[non_exhaustive]
pub enum KvcapError {
    /// The source of the bytes failed.
    Io(io::Error),
    /// The bytes are not those of a capture, or are cut short.
    Damaged {
        /// Where in the capture the missing or wrong bytes start.
        offset: u64,
        /// What should have been there.
        expected: Expected,
        /// How many bytes of it were there.
        found_bytes: u64,
    },
}

/// What a damaged capture should have had at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// The magic that every capture starts with.
    Magic,
    /// The 24 bytes before a record's topic.
    RecordHeader,
    /// Lengths of at most 1 GiB in a record's header.
    FrameLengths,
    /// A topic of this many bytes.
    Topic(u32),
    /// A payload of this many bytes.
    Payload(u32),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("the 8-byte magic of a capture"),
            Self::RecordHeader => write!(f, "a record header of {HEADER_BYTES} bytes"),
            Self::FrameLengths => {
                write!(f, "a record header with lengths of at most {FRAME_BYTES_MAX} bytes")
            }
            Self::Topic(bytes) => write!(f, "{bytes} topic bytes"),
            Self::Payload(bytes) => write!(f, "{bytes} payload bytes"),
        }
    }
}

impl fmt::Display for KvcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the capture: {error}"),
            Self::Damaged { offset, expected, found_bytes } => {
                write!(f, "damaged capture: at byte {offset} expected {expected}, ")?;
                match expected {
                    Expected::FrameLengths => f.write_str("found longer ones"),
                    Expected::Magic if *found_bytes == MAGIC.len() as u64 => f.write_str("found other bytes"),
                    Expected::Magic | Expected::RecordHeader | Expected::Topic(_) | Expected::Payload(_) => {
                        write!(f, "the file ends after {found_bytes}")
                    }
                }
            }
        }
    }
}

impl std::error::Error for KvcapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is part of ours already.
            Self::Io(error) => error.source(),
            Self::Damaged { .. } => None,
        }
    }
}

/// Reads a capture. Give it something buffered: it reads each record in a few small steps.
///
/// ```
/// use kvtap::kvcap::{Reader, Record, Writer};
///
/// let record = Record { unix_ns: 1, sequence: 7, topic: b"kv", payload: b"\x90" };
/// let mut writer = Writer::new(Vec::new())?;
/// writer.write(&record)?;
/// let bytes = writer.into_inner();
///
/// let mut reader = Reader::new(bytes.as_slice())?;
/// assert_eq!(reader.next_record()?, Some(record));
/// assert_eq!(reader.next_record()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    inner: R,
    /// Bytes taken from `inner`.
    offset: u64,
    /// Topic and payload of the latest record.
    buffer: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Starts reading: checks the magic.
    ///
    /// # Errors
    /// If reading fails, or the bytes do not start with the magic.
    pub fn new(inner: R) -> Result<Self, KvcapError> {
        let mut reader = Self { inner, offset: 0, buffer: Vec::new() };
        let mut magic = [0; MAGIC.len()];
        let found = reader.fill(&mut magic)?;
        if magic == MAGIC {
            Ok(reader)
        } else {
            Err(KvcapError::Damaged { offset: 0, expected: Expected::Magic, found_bytes: found as u64 })
        }
    }

    /// The next record, or `None` where the capture ends. Memory grows with the bytes that are really there, never
    /// with a declared length. After an error the reader is of no further use.
    ///
    /// # Errors
    /// If reading fails, the capture ends inside a record, or a record claims a topic or payload longer than 1 GiB.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, KvcapError> {
        let start = self.offset;
        let mut header = [0; HEADER_BYTES];
        match self.fill(&mut header)? {
            0 => return Ok(None),
            HEADER_BYTES => {}
            found => {
                let (expected, found_bytes) = (Expected::RecordHeader, found as u64);
                return Err(KvcapError::Damaged { offset: start, expected, found_bytes });
            }
        }
        let [unix_ns, sequence, lengths] = words(header);
        #[expect(clippy::cast_possible_truncation, reason = "the word holds two 32-bit lengths")]
        let (topic_bytes, payload_bytes) = (lengths as u32, (lengths >> 32) as u32);
        if topic_bytes.max(payload_bytes) > FRAME_BYTES_MAX {
            let (expected, found_bytes) = (Expected::FrameLengths, HEADER_BYTES as u64);
            return Err(KvcapError::Damaged { offset: start, expected, found_bytes });
        }
        self.buffer.clear();
        self.append(topic_bytes, Expected::Topic(topic_bytes))?;
        self.append(payload_bytes, Expected::Payload(payload_bytes))?;
        let (topic, payload) = self.buffer.split_at(topic_bytes as usize);
        Ok(Some(Record { unix_ns, sequence, topic, payload }))
    }

    /// Bytes read so far: where the next record starts.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends exactly `bytes` bytes to the buffer.
    fn append(&mut self, bytes: u32, expected: Expected) -> Result<(), KvcapError> {
        let offset = self.offset;
        let wanted = u64::from(bytes);
        let found = (&mut self.inner).take(wanted).read_to_end(&mut self.buffer).map_err(KvcapError::Io)?;
        let found_bytes = found as u64;
        self.offset += found_bytes;
        if found_bytes == wanted {
            Ok(())
        } else {
            Err(KvcapError::Damaged { offset, expected, found_bytes })
        }
    }

    /// Fills `bytes` as far as the source goes; gives how far.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, KvcapError> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.inner.read(rest) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(KvcapError::Io(error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}

/// The header as three little-endian words.
fn words(header: [u8; HEADER_BYTES]) -> [u64; 3] {
    let (words, _) = header.as_chunks::<8>();
    let mut values = [0; 3];
    for (value, word) in values.iter_mut().zip(words) {
        *value = u64::from_le_bytes(*word);
    }
    values
}

/// Writes a capture. Give it something buffered.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
}

impl<W: Write> Writer<W> {
    /// Starts a capture: writes the magic.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(mut inner: W) -> io::Result<Self> {
        inner.write_all(&MAGIC)?;
        Ok(Self { inner })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If writing fails, or the topic or payload is longer than 1 GiB; nothing was written then.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let length = |bytes: &[u8]| {
            let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "a frame longer than 1 GiB");
            u32::try_from(bytes.len()).ok().filter(|&bytes| bytes <= FRAME_BYTES_MAX).ok_or_else(too_long)
        };
        let lengths = [length(record.topic)?, length(record.payload)?];
        self.inner.write_all(&record.unix_ns.to_le_bytes())?;
        self.inner.write_all(&record.sequence.to_le_bytes())?;
        for length in lengths {
            self.inner.write_all(&length.to_le_bytes())?;
        }
        self.inner.write_all(record.topic)?;
        self.inner.write_all(record.payload)
    }

    /// Hands buffered bytes on.
    ///
    /// # Errors
    /// If writing them fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// Ends the capture and gives back what it was written to, unflushed.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [Record<'_>; 3] = [
        Record { unix_ns: 1_700_000_000_000_000_001, sequence: 0, topic: b"", payload: b"\x93abc" },
        Record { unix_ns: u64::MAX, sequence: u64::MAX, topic: b"kv-events", payload: b"" },
        Record { unix_ns: 0, sequence: 2, topic: b"t", payload: &[0xff; 300] },
    ];

    fn written() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for record in &RECORDS {
            writer.write(record).unwrap();
        }
        writer.flush().unwrap();
        writer.into_inner()
    }

    /// How many records could be read, and how it ended.
    fn read(bytes: &[u8]) -> (usize, Result<(), KvcapError>) {
        let mut reader = match Reader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (0, Err(error)),
        };
        let mut records = 0;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => assert_eq!(record, RECORDS[records]),
                Ok(None) => return (records, Ok(())),
                Err(error) => return (records, Err(error)),
            }
            records += 1;
        }
    }

    fn message(bytes: &[u8]) -> String {
        read(bytes).1.unwrap_err().to_string()
    }

    #[test]
    fn what_was_written_is_read() {
        let (records, end) = read(&written());
        assert_eq!(records, RECORDS.len());
        end.unwrap();
    }

    #[test]
    fn a_cut_is_damage_unless_it_is_between_records() {
        let bytes = written();
        let mut ends = vec![MAGIC.len()];
        for record in &RECORDS {
            ends.push(ends[ends.len() - 1] + HEADER_BYTES + record.topic.len() + record.payload.len());
        }
        for cut in 0..bytes.len() {
            let (records, end) = read(&bytes[..cut]);
            assert_eq!(records, ends.iter().filter(|&&end| end <= cut).count().saturating_sub(1), "at {cut}");
            match end {
                Ok(()) => assert!(ends.contains(&cut), "at {cut}"),
                Err(KvcapError::Damaged { offset, found_bytes, .. }) => {
                    assert!(!ends.contains(&cut), "at {cut}");
                    assert_eq!(offset + found_bytes, cut as u64);
                }
                Err(KvcapError::Io(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn damage_is_told_in_one_sentence() {
        let bytes = written();
        assert_eq!(
            message(b""),
            "damaged capture: at byte 0 expected the 8-byte magic of a capture, the file ends after 0"
        );
        assert_eq!(
            message(b"KVCAP\0\x02\n rest"),
            "damaged capture: at byte 0 expected the 8-byte magic of a capture, found other bytes"
        );
        assert_eq!(
            message(&bytes[..8 + 5]),
            "damaged capture: at byte 8 expected a record header of 24 bytes, the file ends after 5"
        );
        assert_eq!(
            message(&bytes[..8 + 24 + 3]),
            "damaged capture: at byte 32 expected 4 payload bytes, the file ends after 3"
        );
    }

    #[test]
    fn a_declared_length_reserves_nothing() {
        for (topic, payload) in
            [(FRAME_BYTES_MAX, 0), (2, FRAME_BYTES_MAX), (FRAME_BYTES_MAX, FRAME_BYTES_MAX)]
        {
            let mut bytes = MAGIC.to_vec();
            bytes.extend([0; 16]);
            bytes.extend(topic.to_le_bytes());
            bytes.extend(payload.to_le_bytes());
            bytes.extend(b"0123456789");
            let mut reader = Reader::new(bytes.as_slice()).unwrap();
            assert!(matches!(reader.next_record(), Err(KvcapError::Damaged { .. })));
            assert!(reader.buffer.capacity() < 4096, "{} bytes reserved", reader.buffer.capacity());
        }
    }

    /// Else a hole in a file would be read until memory is full.
    #[test]
    fn a_length_that_nobody_sends_is_damage_at_once() {
        for (topic, payload) in [(u32::MAX, 0), (0, FRAME_BYTES_MAX + 1)] {
            let mut header = MAGIC.to_vec();
            header.extend([0; 16]);
            header.extend(topic.to_le_bytes());
            header.extend(payload.to_le_bytes());
            let mut reader = Reader::new(header.as_slice().chain(io::repeat(0))).unwrap();
            assert_eq!(
                reader.next_record().unwrap_err().to_string(),
                "damaged capture: at byte 8 expected a record header with lengths of at most 1073741824 bytes, \
                 found longer ones"
            );
        }
    }

    #[test]
    fn the_buffer_is_reused() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for sequence in 0..10 {
            writer.write(&Record { unix_ns: 0, sequence, topic: b"", payload: &[7; 5000] }).unwrap();
        }
        let bytes = writer.into_inner();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        reader.next_record().unwrap();
        let (start, capacity) = (reader.buffer.as_ptr(), reader.buffer.capacity());
        while reader.next_record().unwrap().is_some() {}
        assert_eq!((reader.buffer.as_ptr(), reader.buffer.capacity()), (start, capacity));
    }
}

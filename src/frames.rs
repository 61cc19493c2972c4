//! Message frames and replay replies → topic, sequence, payload, as borrowed views. Data plane; knows no socket.
//!
//! A publisher's message has three frames: topic, sequence, payload. A replay reply comes in two shapes
//! (`[empty, sequence, payload]` from vLLM ≤ 0.25.1 and SGLang ≤ 0.5.21, with the topic in second place from later
//! ones), and a REQ socket takes the leading empty frame away: between two and four frames. The end of a replay is a
//! reply whose payload is empty; its sequence is all ones.

use std::fmt;

/// Sequence of the end marker of a replay; no batch has it, so it can never become a cursor.
const END_SEQUENCE: u64 = u64::MAX;

/// One message as it was published.
///
/// ```
/// use kvtap::Message;
///
/// let frames: [&[u8]; 3] = [b"kv-events", &7_u64.to_be_bytes(), b"\x92\x01\x90"];
/// let message = Message::read(&frames)?;
/// assert_eq!((message.topic, message.sequence), (&b"kv-events"[..], 7));
/// # Ok::<(), kvtap::FrameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'f> {
    /// Topic: opaque bytes, often empty; an old-shape replay reply has none, which reads as empty.
    pub topic: &'f [u8],
    /// The publisher's number for the batch.
    pub sequence: u64,
    /// One msgpack value, if all is well.
    pub payload: &'f [u8],
}

/// One reply to a replay request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a replay goes on or ends")]
pub enum ReplayReply<'f> {
    /// A batch from the publisher's buffer.
    Batch(Message<'f>),
    /// Nothing more comes.
    End,
}

/// Why a message was dropped. The connection is not at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The message has this many frames, which no shape has.
    FrameCount(usize),
    /// The sequence frame has this many bytes, not 8.
    SequenceLength(usize),
    /// The sequence is all ones, which only the end of a replay may be.
    ReservedSequence,
    /// A reply of four frames does not start with the empty delimiter.
    NoDelimiter,
}

impl FrameError {
    /// Stable snake_case label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::FrameCount(_) => "frame_count",
            Self::SequenceLength(_) => "sequence_length",
            Self::ReservedSequence => "reserved_sequence",
            Self::NoDelimiter => "no_delimiter",
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameCount(frames) => write!(f, "a message of {frames} frames"),
            Self::SequenceLength(bytes) => write!(f, "a sequence of {bytes} bytes instead of 8"),
            Self::ReservedSequence => {
                f.write_str("a batch under the sequence that marks the end of a replay")
            }
            Self::NoDelimiter => f.write_str("a replay reply of four frames without the empty first one"),
        }
    }
}

impl std::error::Error for FrameError {}

impl<'f> Message<'f> {
    /// Reads the frames of a subscriber's message: topic, sequence, payload.
    ///
    /// # Errors
    /// If there are not exactly three, or the second is no sequence. An empty payload is the decoder's to refuse.
    pub fn read<F: AsRef<[u8]>>(frames: &'f [F]) -> Result<Self, FrameError> {
        let [topic, sequence, payload] = frames else {
            return Err(FrameError::FrameCount(frames.len()));
        };
        let sequence = read_sequence(sequence.as_ref())?;
        Self { topic: topic.as_ref(), sequence, payload: payload.as_ref() }.unreserved()
    }

    fn unreserved(self) -> Result<Self, FrameError> {
        if self.sequence == END_SEQUENCE { Err(FrameError::ReservedSequence) } else { Ok(self) }
    }
}

impl<'f> ReplayReply<'f> {
    /// Reads the frames of a replay reply, the identity taken away, of whichever shape.
    ///
    /// # Errors
    /// If no shape fits, or the sequence frame is none.
    pub fn read<F: AsRef<[u8]>>(frames: &'f [F]) -> Result<Self, FrameError> {
        let (topic, sequence, payload): (&[u8], _, _) = match frames {
            [sequence, payload] => (&[], sequence, payload),
            // The delimiter of the old shape, or the topic of the new one behind a REQ socket.
            [topic, sequence, payload] => (topic.as_ref(), sequence, payload),
            [delimiter, topic, sequence, payload] => {
                if !delimiter.as_ref().is_empty() {
                    return Err(FrameError::NoDelimiter);
                }
                (topic.as_ref(), sequence, payload)
            }
            _ => return Err(FrameError::FrameCount(frames.len())),
        };
        let message =
            Message { topic, sequence: read_sequence(sequence.as_ref())?, payload: payload.as_ref() };
        if message.payload.is_empty() { Ok(Self::End) } else { message.unreserved().map(Self::Batch) }
    }
}

fn read_sequence(frame: &[u8]) -> Result<u64, FrameError> {
    let bytes = frame.try_into().map_err(|_| FrameError::SequenceLength(frame.len()))?;
    Ok(u64::from_be_bytes(bytes))
}

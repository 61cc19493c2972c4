//! The sockets of an engine: batches go out on PUB, a ROUTER answers who missed some. One thread does both, as in the
//! engines. (XPUB stands in for PUB: the same on the wire, but it hears of subscribers.)

use std::collections::VecDeque;
use std::fmt;

/// The sequence of the end marker of a replay.
const END: [u8; 8] = [0xff; 8];
/// High-water mark of the engines' PUB sockets: what a slow subscriber may lag before it loses messages.
const LAG_MAX: i32 = 100_000;
/// How long messages may wait for the network when the publisher is dropped.
const LINGER_MS: i32 = 2_000;

/// Where to publish, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublisherOptions {
    /// Endpoint of the PUB socket, tcp or ipc.
    pub bind: String,
    /// Endpoint of the replay socket, if there is to be one.
    pub replay: Option<String>,
    /// Shape of replay replies.
    pub replay_frames: ReplayFrames,
    /// Batches kept for replay.
    pub buffer_steps: usize,
    /// First frame of every message.
    pub topic: String,
    /// Added to the port of every tcp endpoint, as engines do, unless it is 0.
    pub dp_rank: u32,
}

impl PublisherOptions {
    /// No replay, four frames, 10,000 batches, no topic, rank 0.
    #[must_use]
    pub fn new(bind: impl Into<String>) -> Self {
        let (replay, topic) = (None, String::new());
        let replay_frames = ReplayFrames::Four;
        Self { bind: bind.into(), replay, replay_frames, buffer_steps: 10_000, topic, dp_rank: 0 }
    }
}

/// Frames of a replay reply behind the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayFrames {
    /// Empty, sequence, payload: vLLM 0.9.0 to 0.25.1, SGLang 0.4.6.post5 to 0.5.21.
    Three,
    /// Empty, topic, sequence, payload: vLLM from 0.26.0, SGLang from 0.5.22.
    Four,
}

/// What becomes of a batch once it has a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Sent, and kept for replay.
    Sent,
    /// Kept for replay only, as if the network had lost it.
    Dropped,
    /// Neither, as if it could not be encoded.
    Burnt,
}

/// What the sockets are bound to: as asked for, with ports in place of wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoints {
    /// The PUB socket.
    pub events: String,
    /// The replay socket.
    pub replay: Option<String>,
}

/// Why a publisher does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// An endpoint that cannot be bound anywhere.
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An endpoint that cannot be bound here and now.
    Bind {
        /// The endpoint.
        endpoint: String,
        /// What the system says.
        why: &'static str,
    },
    /// A socket failed.
    Socket(&'static str),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { endpoint, why } => write!(f, "the endpoint '{endpoint}' {why}"),
            Self::Bind { endpoint, why } => write!(f, "cannot bind {endpoint}: {why}"),
            Self::Socket(why) => write!(f, "a socket failed: {why}"),
        }
    }
}

impl std::error::Error for PublishError {}

impl From<zmq::Error> for PublishError {
    fn from(error: zmq::Error) -> Self {
        Self::Socket(error.message())
    }
}

/// The publishing side of an engine.
pub struct Publisher {
    events: zmq::Socket,
    replay: Option<zmq::Socket>,
    options: PublisherOptions,
    endpoints: Endpoints,
    /// Sequence and payload of the latest batches, oldest first.
    buffer: VecDeque<(u64, Vec<u8>)>,
    next_sequence: u64,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (endpoints, next_sequence) = (&self.endpoints, self.next_sequence);
        f.debug_struct("Publisher")
            .field("endpoints", endpoints)
            .field("next_sequence", &next_sequence)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Binds the sockets.
    ///
    /// # Errors
    /// If an endpoint is none, or cannot be bound.
    pub fn bind(options: PublisherOptions) -> Result<Self, PublishError> {
        let context = zmq::Context::new();
        let events = context.socket(zmq::XPUB)?;
        events.set_sndhwm(LAG_MAX)?;
        let events_endpoint = bind(&events, &options.bind, options.dp_rank)?;
        let (mut replay, mut replay_endpoint) = (None, None);
        if let Some(endpoint) = &options.replay {
            let socket = context.socket(zmq::ROUTER)?;
            // A ROUTER leaves replies out beyond its mark (1,000 in the engines); here a replay is whole.
            socket.set_sndhwm(0)?;
            replay_endpoint = Some(bind(&socket, endpoint, options.dp_rank)?);
            replay = Some(socket);
        }
        let endpoints = Endpoints { events: events_endpoint, replay: replay_endpoint };
        Ok(Self { events, replay, options, endpoints, buffer: VecDeque::new(), next_sequence: 0 })
    }

    /// What it is bound to.
    #[must_use]
    pub const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The sequence number that the next batch gets.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Draws a sequence number for a batch, and lets it have its fate.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn publish(&mut self, payload: Vec<u8>, fate: Fate) -> Result<(), PublishError> {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if fate == Fate::Sent {
            let frames: [&[u8]; 3] = [self.options.topic.as_bytes(), &sequence.to_be_bytes(), &payload];
            self.events.send_multipart(frames, 0)?;
        }
        if fate != Fate::Burnt && self.replay.is_some() {
            self.buffer.push_back((sequence, payload));
            if self.buffer.len() > self.options.buffer_steps {
                self.buffer.pop_front();
            }
        }
        Ok(())
    }

    /// Forgets all batches and numbers the next one 0, as a new process would.
    pub fn restart(&mut self) {
        self.buffer.clear();
        self.next_sequence = 0;
    }

    /// Waits for a replay request and answers it. Returns after one, when the time is over, or when a signal came.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn serve_replay(&self, timeout_ms: u32) -> Result<(), PublishError> {
        let Some(replay) = &self.replay else {
            return poll(&mut [], timeout_ms);
        };
        let mut items = [replay.as_poll_item(zmq::POLLIN)];
        poll(&mut items, timeout_ms)?;
        if items[0].is_readable() { self.answer(replay) } else { Ok(()) }
    }

    /// Waits until somebody subscribes, answering replay requests; false if nobody did in time.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn wait_for_subscriber(&self, timeout_ms: u32) -> Result<bool, PublishError> {
        let mut items = vec![self.events.as_poll_item(zmq::POLLIN)];
        items.extend(self.replay.as_ref().map(|replay| replay.as_poll_item(zmq::POLLIN)));
        poll(&mut items, timeout_ms)?;
        let readable: Vec<bool> = items.iter().map(zmq::PollItem::is_readable).collect();
        if let (Some(replay), Some(true)) = (&self.replay, readable.get(1)) {
            self.answer(replay)?;
        }
        // 1 and a topic: somebody wants it; 0 and a topic: nobody any more.
        Ok(readable[0] && self.events.recv_bytes(0)?.first() == Some(&1))
    }

    /// Answers one request: identity, empty, first wanted sequence. Others stay unanswered, as with the engines.
    fn answer(&self, replay: &zmq::Socket) -> Result<(), PublishError> {
        let request = replay.recv_multipart(0)?;
        let [identity, _, start] = request.as_slice() else { return Ok(()) };
        let Ok(start) = start.as_slice().try_into().map(u64::from_be_bytes) else { return Ok(()) };
        let topic = self.options.topic.as_bytes();
        for (sequence, payload) in self.buffer.iter().filter(|(sequence, _)| *sequence >= start) {
            self.reply(replay, identity, [topic, &sequence.to_be_bytes(), payload])?;
        }
        self.reply(replay, identity, [b"", &END, b""])
    }

    fn reply(
        &self,
        replay: &zmq::Socket,
        identity: &[u8],
        [topic, sequence, payload]: [&[u8]; 3],
    ) -> Result<(), PublishError> {
        match self.options.replay_frames {
            ReplayFrames::Three => replay.send_multipart([identity, b"", sequence, payload], 0)?,
            ReplayFrames::Four => replay.send_multipart([identity, b"", topic, sequence, payload], 0)?,
        }
        Ok(())
    }
}

/// Binds a socket at the place of a rank; gives where that is.
fn bind(socket: &zmq::Socket, endpoint: &str, dp_rank: u32) -> Result<String, PublishError> {
    socket.set_linger(LINGER_MS)?;
    let endpoint = at_rank(endpoint, dp_rank)?;
    if let Err(error) = socket.bind(&endpoint) {
        return Err(if matches!(error, zmq::Error::EINVAL | zmq::Error::EPROTONOSUPPORT) {
            PublishError::Endpoint { endpoint, why: "is not one to bind" }
        } else {
            PublishError::Bind { endpoint, why: error.message() }
        });
    }
    Ok(socket.get_last_endpoint()?.unwrap_or(endpoint))
}

/// The endpoint of a data-parallel rank: engines add it to the port, unless the system is to choose one.
fn at_rank(endpoint: &str, dp_rank: u32) -> Result<String, PublishError> {
    let refuse = |why| Err(PublishError::Endpoint { endpoint: endpoint.to_owned(), why });
    if endpoint.starts_with("ipc://") {
        return if dp_rank == 0 { Ok(endpoint.to_owned()) } else { refuse("has no port to add a rank to") };
    }
    if !endpoint.starts_with("tcp://") {
        return refuse("is neither tcp:// nor ipc://");
    }
    let Some((host, port)) = endpoint.rsplit_once(':') else { return refuse("has no port") };
    match port.parse::<u16>() {
        Ok(1..) => {}
        Ok(0) => return Ok(endpoint.to_owned()),
        Err(_) if port == "*" => return Ok(endpoint.to_owned()),
        Err(_) => return refuse("has no port"),
    }
    let sum = port.parse::<u32>().ok().and_then(|port| port.checked_add(dp_rank));
    match sum.and_then(|port| u16::try_from(port).ok()) {
        Some(port) => Ok(format!("{host}:{port}")),
        None => refuse("has no port left for the rank"),
    }
}

/// Waits for a socket; a signal is a reason to look around, not a failure.
fn poll(items: &mut [zmq::PollItem<'_>], timeout_ms: u32) -> Result<(), PublishError> {
    match zmq::poll(items, timeout_ms.into()) {
        Ok(_) | Err(zmq::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_moves_the_port() {
        assert_eq!(at_rank("tcp://*:5557", 0).unwrap(), "tcp://*:5557");
        assert_eq!(at_rank("tcp://[::]:5557", 3).unwrap(), "tcp://[::]:5560");
        assert_eq!(at_rank("tcp://127.0.0.1:0", 3).unwrap(), "tcp://127.0.0.1:0");
        assert_eq!(at_rank("tcp://127.0.0.1:*", 3).unwrap(), "tcp://127.0.0.1:*");
        assert_eq!(at_rank("ipc:///tmp/kv", 0).unwrap(), "ipc:///tmp/kv");
        for (bad, rank) in [
            ("ipc:///tmp/kv", 1),
            ("tcp://*:65535", 1),
            ("tcp://*:1", u32::MAX),
            ("tcp://host", 0),
            ("tcp://*:70000", 0),
            ("inproc://kv", 0),
            ("5557", 0),
        ] {
            assert!(matches!(at_rank(bad, rank), Err(PublishError::Endpoint { .. })), "{bad}");
        }
    }
}

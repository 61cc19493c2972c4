//! A publisher whose every fault is scripted: PUB and replay ROUTER on libzmq, driven step by step by the test itself.
//!
//! Its PUB is an XPUB: it sees subscriptions, so that a test knows when a subscriber is there.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE_MS: i32 = 20_000;
const END: [u8; 8] = [0xff; 8];

/// Which of the two shapes its replies have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// vLLM ≤ 0.25.1, SGLang ≤ 0.5.21.
    Three,
    /// Later ones, with the topic.
    Four,
}

/// A publisher, and its memory of what it has sent.
pub(crate) struct Publisher {
    live: zmq::Socket,
    replay: zmq::Socket,
    pub(crate) endpoint: String,
    pub(crate) replay_endpoint: String,
    pub(crate) topic: &'static str,
    pub(crate) shape: Shape,
}

/// A fresh ipc endpoint.
pub(crate) fn ipc() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("ipc://{}/kvtap-test-{}-{number}", std::env::temp_dir().display(), std::process::id())
}

/// Any free TCP port.
pub(crate) const TCP: &str = "tcp://127.0.0.1:*";

impl Publisher {
    pub(crate) fn bind(endpoint: &str, replay_endpoint: &str) -> Self {
        Self::bind_with_queue(endpoint, replay_endpoint, 100_000)
    }

    /// With a high-water mark of its own.
    pub(crate) fn bind_with_queue(endpoint: &str, replay_endpoint: &str, queue: i32) -> Self {
        let context = zmq::Context::new();
        let open = |kind, endpoint: &str| {
            let socket = context.socket(kind).unwrap();
            socket.set_linger(0).unwrap();
            if kind == zmq::XPUB {
                // As the engines, which leave the ROUTER at its default of 1,000.
                socket.set_sndhwm(queue).unwrap();
                // Every subscription is told, also one that somebody else has.
                socket.set_xpub_verbose(true).unwrap();
            }
            socket.set_rcvtimeo(PATIENCE_MS).unwrap();
            socket.bind(endpoint).unwrap();
            let endpoint = socket.get_last_endpoint().unwrap().unwrap();
            (socket, endpoint)
        };
        let (live, endpoint) = open(zmq::XPUB, endpoint);
        let (replay, replay_endpoint) = open(zmq::ROUTER, replay_endpoint);
        Self { live, replay, endpoint, replay_endpoint, topic: "kv-events", shape: Shape::Four }
    }

    /// One that connects to a subscriber which binds; without a replay.
    pub(crate) fn connect(endpoint: &str) -> Self {
        let publisher = Self::bind(&ipc(), &ipc());
        publisher.live.connect(endpoint).unwrap();
        publisher
    }

    /// Waits until somebody subscribes.
    pub(crate) fn wait_for_subscriber(&self) {
        while self.live.recv_bytes(0).expect("a subscriber").first() != Some(&1) {}
    }

    pub(crate) fn send(&self, sequence: u64, payload: &[u8]) {
        self.send_frames(&[self.topic.as_bytes(), &sequence.to_be_bytes(), payload]);
    }

    pub(crate) fn send_frames(&self, frames: &[&[u8]]) {
        self.live.send_multipart(frames, 0).unwrap();
    }

    /// Waits for a replay request: who asks, and from which number on.
    pub(crate) fn request(&self) -> (Vec<u8>, u64) {
        let frames = self.replay.recv_multipart(0).expect("a replay request");
        let [who, delimiter, start] = frames.try_into().expect("three frames, else engines do not answer");
        assert!(delimiter.is_empty());
        (who, u64::from_be_bytes(start.try_into().expect("8 bytes")))
    }

    pub(crate) fn reply(&self, who: &[u8], sequence: u64, payload: &[u8]) {
        self.reply_frames(who, &sequence.to_be_bytes(), payload);
    }

    pub(crate) fn end(&self, who: &[u8]) {
        self.reply_frames(who, &END, b"");
    }

    fn reply_frames(&self, who: &[u8], sequence: &[u8], payload: &[u8]) {
        // The end marker's topic is empty.
        let topic = if payload.is_empty() { "" } else { self.topic };
        let frames: &[&[u8]] = match self.shape {
            Shape::Three => &[who, b"", sequence, payload],
            Shape::Four => &[who, b"", topic.as_bytes(), sequence, payload],
        };
        self.replay.send_multipart(frames, 0).unwrap();
    }

    /// Answers one request as an engine does: all it has kept from the number on, then the end. Gives the number.
    pub(crate) fn answer(&self, kept: &[(u64, Vec<u8>)]) -> u64 {
        let (who, start) = self.request();
        for (sequence, payload) in kept.iter().filter(|(sequence, _)| *sequence >= start) {
            self.reply(&who, *sequence, payload);
        }
        self.end(&who);
        start
    }

    /// A reply that is none.
    pub(crate) fn end_of_nothing(&self, who: &[u8]) {
        self.replay.send_multipart([who, b"", b"not a number", b"?"], 0).unwrap();
    }

    /// As `answer`, if somebody has asked within a moment; says whether.
    pub(crate) fn answer_if_asked(&self, kept: &[(u64, Vec<u8>)]) -> bool {
        let asked = self.replay.poll(zmq::POLLIN, 20).unwrap() > 0;
        if asked {
            self.answer(kept);
        }
        asked
    }
}

//! The stand-in's sockets, seen by plain ZeroMQ ones: messages, replay in both shapes, numbers that are missing, restarts.
//! Nothing sleeps: the test publishes once it knows that it is subscribed.

use kvtap::mock::{Endpoints, Fate, PublishError, Publisher, PublisherOptions, ReplayFrames};
use kvtap::{Message, ReplayReply};

const PATIENCE_MS: i32 = 10_000;

/// A bound publisher, and the sockets of a listener that it knows of.
struct Pair {
    publisher: Publisher,
    subscriber: zmq::Socket,
    requester: zmq::Socket,
}

fn tcp() -> PublisherOptions {
    let mut options = PublisherOptions::new("tcp://127.0.0.1:*");
    options.replay = Some("tcp://127.0.0.1:0".to_owned());
    options
}

impl Pair {
    fn new(options: PublisherOptions) -> Self {
        let publisher = Publisher::bind(options).unwrap();
        let context = zmq::Context::new();
        let subscriber = context.socket(zmq::SUB).unwrap();
        let requester = context.socket(zmq::DEALER).unwrap();
        let Endpoints { events, replay, .. } = publisher.endpoints().clone();
        for (socket, endpoint) in [(&subscriber, events), (&requester, replay.unwrap())] {
            socket.set_rcvtimeo(PATIENCE_MS).unwrap();
            socket.set_linger(0).unwrap();
            socket.connect(&endpoint).unwrap();
        }
        subscriber.set_subscribe(b"").unwrap();
        while !publisher.wait_for_subscriber(100).unwrap() {}
        Self { publisher, subscriber, requester }
    }

    fn received(&self) -> (Vec<u8>, u64, Vec<u8>) {
        let frames = self.subscriber.recv_multipart(0).unwrap();
        let message = Message::read(&frames).unwrap();
        (message.topic.to_vec(), message.sequence, message.payload.to_vec())
    }

    fn request(&self, frames: &[&[u8]]) {
        self.requester.send_multipart(frames, 0).unwrap();
    }

    /// Frames of every reply to a request from here on, the end marker last.
    fn replay(&self, start: u64) -> Vec<Vec<Vec<u8>>> {
        self.request(&[b"", &start.to_be_bytes()]);
        self.publisher.serve_replay(PATIENCE_MS.unsigned_abs()).unwrap();
        let mut replies = Vec::new();
        loop {
            let frames = self.requester.recv_multipart(0).unwrap();
            let ends = ReplayReply::read(&frames).unwrap() == ReplayReply::End;
            replies.push(frames);
            if ends {
                return replies;
            }
        }
    }

    fn replayed(&self, start: u64) -> Vec<u64> {
        let sequence = |frames: Vec<Vec<u8>>| match ReplayReply::read(&frames).unwrap() {
            ReplayReply::Batch(message) => Some(message.sequence),
            ReplayReply::End => None,
        };
        self.replay(start).into_iter().filter_map(sequence).collect()
    }

    fn publish(&mut self, fates: &[Fate]) {
        for fate in fates {
            let payload = format!("batch {}", self.publisher.next_sequence());
            self.publisher.publish(payload.into_bytes(), *fate).unwrap();
        }
    }
}

#[test]
fn messages_have_three_frames_over_tcp_and_ipc() {
    let directory = std::env::temp_dir().join(format!("kvtap-mock-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let ipc = |name: &str| format!("ipc://{}", directory.join(name).display());
    let mut over_ipc = PublisherOptions::new(ipc("events"));
    over_ipc.replay = Some(ipc("replay"));
    let mut anywhere = PublisherOptions::new("tcp://*:0");
    anywhere.replay = Some("tcp://0.0.0.0:0".to_owned());
    for mut options in [tcp(), over_ipc, anywhere] {
        "kv".clone_into(&mut options.topic);
        let mut pair = Pair::new(options);
        pair.publish(&[Fate::Sent; 3]);
        for sequence in 0..3 {
            let payload = format!("batch {sequence}").into_bytes();
            assert_eq!(pair.received(), (b"kv".to_vec(), sequence, payload));
        }
        assert_eq!(pair.replayed(1), [1, 2]);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn replies_have_the_shape_asked_for() {
    for (shape, topic) in [(ReplayFrames::Three, None), (ReplayFrames::Four, Some(b"kv".to_vec()))] {
        let mut options = tcp();
        options.replay_frames = shape;
        "kv".clone_into(&mut options.topic);
        let mut pair = Pair::new(options);
        pair.publish(&[Fate::Sent; 2]);
        let reply = |sequence: u64, topic: Option<Vec<u8>>, payload: &[u8]| {
            let head = [Some(Vec::new()), topic].into_iter().flatten();
            head.chain([sequence.to_be_bytes().to_vec(), payload.to_vec()]).collect::<Vec<_>>()
        };
        let end = reply(u64::MAX, topic.as_ref().map(|_| Vec::new()), b"");
        let batches = [reply(0, topic.clone(), b"batch 0"), reply(1, topic, b"batch 1")];
        assert_eq!(pair.replay(7), std::slice::from_ref(&end));
        assert_eq!(pair.replay(0), [&batches[..], &[end]].concat());
    }
}

#[test]
fn a_dropped_batch_is_replayed_and_a_burnt_one_is_not() {
    let mut pair = Pair::new(tcp());
    pair.publish(&[Fate::Sent, Fate::Dropped, Fate::Burnt, Fate::Sent]);
    assert_eq!([pair.received().1, pair.received().1], [0, 3]);
    assert_eq!(pair.replayed(0), [0, 1, 3]);
}

#[test]
fn only_the_latest_batches_are_kept() {
    let mut options = tcp();
    options.buffer_steps = 3;
    let mut pair = Pair::new(options);
    pair.publish(&[Fate::Sent; 10]);
    assert_eq!(pair.replayed(0), [7, 8, 9]);
}

#[test]
fn a_restart_counts_from_0_and_forgets() {
    let mut pair = Pair::new(tcp());
    pair.publish(&[Fate::Sent; 3]);
    pair.publisher.restart();
    assert_eq!(pair.replayed(0), [0_u64; 0]);
    pair.publish(&[Fate::Sent]);
    let sequences: Vec<_> = (0..4).map(|_| pair.received().1).collect();
    assert_eq!(sequences, [0, 1, 2, 0]);
    assert_eq!(pair.replayed(0), [0]);
}

#[test]
fn malformed_requests_stay_unanswered() {
    let mut pair = Pair::new(tcp());
    pair.publish(&[Fate::Sent; 2]);
    let start = 0_u64.to_be_bytes();
    let malformed: [&[&[u8]]; 5] =
        [&[&start], &[b"", &start, b""], &[b"", b""], &[b"", &start[1..]], &[b"", b"000000000"]];
    for request in malformed {
        pair.request(request);
        pair.publisher.serve_replay(PATIENCE_MS.unsigned_abs()).unwrap();
    }
    // Replies come in order: were there any to those, they would come before these.
    assert_eq!(pair.replayed(1), [1]);
}

#[test]
fn every_requester_gets_its_own_replies() {
    let mut pair = Pair::new(tcp());
    pair.publish(&[Fate::Sent; 4]);
    let other = zmq::Context::new().socket(zmq::REQ).unwrap();
    other.set_rcvtimeo(PATIENCE_MS).unwrap();
    other.connect(pair.publisher.endpoints().replay.as_ref().unwrap()).unwrap();
    other.send(&3_u64.to_be_bytes()[..], 0).unwrap();
    pair.publisher.serve_replay(PATIENCE_MS.unsigned_abs()).unwrap();
    assert_eq!(pair.replayed(2), [2, 3]);
    let frames = other.recv_multipart(0).unwrap();
    assert_eq!(frames, [Vec::new(), 3_u64.to_be_bytes().to_vec(), b"batch 3".to_vec()]);
}

#[test]
fn a_replay_longer_than_the_usual_mark_is_whole() {
    let mut pair = Pair::new(tcp());
    pair.publish(&[Fate::Dropped; 5_000]);
    assert!(pair.replayed(0).into_iter().eq(0..5_000));
}

#[test]
fn the_rank_moves_the_port() {
    let first = Publisher::bind(PublisherOptions::new("tcp://127.0.0.1:0")).unwrap();
    let (host, port) = first.endpoints().events.rsplit_once(':').unwrap();
    let taken: u32 = port.parse().unwrap();
    let mut options = PublisherOptions::new(format!("{host}:{}", taken - 1));
    options.dp_rank = 1;
    assert!(matches!(Publisher::bind(options).unwrap_err(), PublishError::Bind { endpoint, .. }
        if endpoint == first.endpoints().events));
}

#[test]
fn bad_endpoints_are_told_from_busy_ones() {
    for bad in ["", "5557", "inproc://kv", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "udp://127.0.0.1:1"] {
        let error = Publisher::bind(PublisherOptions::new(bad)).unwrap_err();
        assert!(matches!(error, PublishError::Endpoint { .. }), "{bad}: {error}");
        assert!(error.to_string().starts_with(&format!("the endpoint '{bad}' ")), "{error}");
    }
}

//! Batches as engines publish them, and the socket that does.

use rmpv::Value;

use crate::PATIENCE_MS;

/// A stored event as a tagged tuple. The last pair is tokens per block, and the medium.
pub fn stored_event(hashes: &[u64], parent: Option<u64>, tokens: &[u32], kind: (u32, &str)) -> Value {
    let (block_size, medium) = kind;
    Value::Array(vec![
        "BlockStored".into(),
        list(hashes),
        parent.map_or(Value::Nil, Value::from),
        list(tokens),
        block_size.into(),
        Value::Nil,
        medium.into(),
    ])
}

/// A removed event.
pub fn removed_event(hashes: &[u64], medium: &str) -> Value {
    Value::Array(vec!["BlockRemoved".into(), list(hashes), medium.into()])
}

fn list<T: Copy>(numbers: &[T]) -> Value
where
    Value: From<T>,
{
    Value::Array(numbers.iter().map(|&number| number.into()).collect())
}

/// A payload.
pub fn batch(events: Vec<Value>, dp_rank: Option<u32>) -> Vec<u8> {
    // Without the third slot the peer cannot read it.
    let dp_rank = dp_rank.map_or(Value::Nil, Value::from);
    encode(&Value::Array(vec![1.0.into(), Value::Array(events), dp_rank]))
}

/// As msgpack.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("memory");
    bytes
}

/// A publisher that sees its subscriptions.
pub struct Publisher {
    socket: zmq::Socket,
    sequence: u64,
    /// Where it publishes.
    pub endpoint: String,
}

impl Publisher {
    /// On a free port.
    pub fn bind() -> Self {
        let socket = zmq::Context::new().socket(zmq::XPUB).expect("a socket");
        socket.set_linger(0).expect("an option");
        socket.set_sndhwm(100_000).expect("an option");
        socket.set_xpub_verbose(true).expect("an option");
        socket.set_rcvtimeo(PATIENCE_MS).expect("an option");
        socket.bind("tcp://127.0.0.1:*").expect("a port");
        let endpoint = socket.get_last_endpoint().expect("bound").expect("text");
        Self { socket, sequence: 0, endpoint }
    }

    /// Waits for one more subscriber.
    pub fn wait_for_subscriber(&self) {
        while self.socket.recv_bytes(0).expect("a subscriber").first() != Some(&1) {}
    }

    /// Publishes one batch under the next sequence number.
    pub fn send(&mut self, payload: &[u8]) {
        let sequence = self.sequence.to_be_bytes();
        let frames: [&[u8]; 3] = [b"kv-events", &sequence, payload];
        self.socket.send_multipart(frames, 0).expect("sent");
        self.sequence += 1;
    }
}

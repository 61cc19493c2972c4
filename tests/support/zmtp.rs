//! A publisher that speaks ZMTP 3.0 by itself: frames go out as they are made, and a message need never end.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

const MORE: u8 = 1;
const LONG: u8 = 2;

/// Where it listens for its one subscriber.
pub(crate) struct Endpoint(TcpListener);

/// The connection to a subscriber.
pub(crate) struct RawPublisher(TcpStream);

impl Endpoint {
    pub(crate) fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    pub(crate) fn name(&self) -> String {
        format!("tcp://{}", self.0.local_addr().expect("an address"))
    }

    /// Waits for the subscriber, and greets it.
    pub(crate) fn accept(&self) -> RawPublisher {
        let (mut stream, _) = self.0.accept().expect("a subscriber");
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).expect("a connection");
        stream.read_exact(&mut greeting).expect("a greeting");
        stream.write_all(b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB").expect("a connection");
        // Its READY, and its subscription.
        for _ in 0..2 {
            let mut head = [0; 2];
            stream.read_exact(&mut head).expect("a short frame");
            let mut body = vec![0; head[1].into()];
            stream.read_exact(&mut body).expect("its body");
        }
        RawPublisher(stream)
    }
}

impl RawPublisher {
    pub(crate) fn frame(&mut self, body: &[u8], is_last: bool) -> io::Result<()> {
        let flags = if is_last { 0 } else { MORE };
        match u8::try_from(body.len()) {
            Ok(length) => self.0.write_all(&[flags, length])?,
            Err(_) => {
                self.0.write_all(&[flags | LONG])?;
                self.0.write_all(&(body.len() as u64).to_be_bytes())?;
            }
        }
        self.0.write_all(body)
    }

    /// Bytes that are frames already.
    pub(crate) fn raw(&mut self, frames: &[u8]) -> io::Result<()> {
        self.0.write_all(frames)
    }

    pub(crate) fn send(&mut self, sequence: u64, payload: &[u8]) -> io::Result<()> {
        self.frame(b"", false)?;
        self.frame(&sequence.to_be_bytes(), false)?;
        self.frame(payload, true)
    }
}

//! A peer in this process, which answers whatever is to be loaded.

#![expect(clippy::disallowed_types, reason = "one body at a time, set before it is asked for")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// It ends with the process.
pub(super) struct Peer {
    pub(super) url: String,
    body: Arc<Mutex<Vec<u8>>>,
}

impl Peer {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let body = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&body);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let body = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Whoever has had enough closes.
                let _ = answer(&mut connection.expect("a connection"), &body);
            }
        });
        Self { url, body }
    }

    /// From now on everybody is told this.
    pub(super) fn tell(&self, body: &[u8]) {
        let mut told = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        told.clear();
        told.extend(body);
    }
}

fn answer(connection: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read(&mut part)? {
            0 => return Ok(()),
            read => head.extend(&part[..read]),
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    connection.write_all(&[head.as_bytes(), body].concat())
}

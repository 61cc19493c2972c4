//! What the service gives one client, or one registered publisher, at most.

mod support;

#[path = "support/client.rs"]
mod client;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use kvtap::server::{Server, Service, ServiceOptions};
use serde_json::{Value, json};

use support::publisher::{Publisher, TCP};
use support::source::{payload, store};

/// Enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(set: impl FnOnce(&mut ServiceOptions)) -> Server {
    let mut options = ServiceOptions::default();
    set(&mut options);
    Server::start(Arc::new(Service::new(options).unwrap()), "127.0.0.1:0").unwrap()
}

/// Over a connection of its own.
fn call(server: &Server, path: &str, body: Option<&Value>) -> (u16, Value) {
    let client = Client::new(server.address(), PATIENCE);
    match body {
        Some(body) => client.post(path, body),
        None => client.get(path),
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks for `/health` and reads the answer's status line.
fn health(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")?;
    read_ok(stream)
}

fn read_ok(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut status = [0; 15];
    stream.read_exact(&mut status)?;
    assert_eq!(&status, b"HTTP/1.1 200 OK");
    Ok(())
}

#[test]
fn sources_that_register_are_limited_as_the_service_says() {
    let server = start(|options| options.source_limits.blocks = 2);
    let publisher = Publisher::bind(TCP, TCP);
    let registration = json!({
        "instance_id": 7, "endpoint": publisher.endpoint, "model_name": "m", "block_size": 4,
    });
    assert_eq!(call(&server, "/register", Some(&registration)).0, 201);
    publisher.wait_for_subscriber();
    publisher.send(0, &payload([store(&[1, 2, 3, 4, 5], None, 1..=20)], 0));
    let end = Instant::now() + PATIENCE;
    let refused = "reason=\"too_many_blocks\",counted_in=\"blocks\"} 3";
    loop {
        let (_, metrics) = call(&server, "/metrics", None);
        if metrics.as_str().is_some_and(|text| text.contains(refused)) {
            break;
        }
        assert!(Instant::now() < end, "{metrics}");
        std::thread::yield_now();
    }
    let (_, told) = call(&server, "/explain", None);
    assert!(told.to_string().contains("too_many_blocks"), "{told}");
}

#[test]
fn names_that_every_metric_repeats_are_short() {
    let server = start(|_| ());
    for key in ["model_name", "routing_group"] {
        let mut registration =
            json!({"instance_id": 7, "endpoint": "ipc:///tmp/x", "model_name": "m", "block_size": 4});
        registration[key] = "x".repeat(257).into();
        let (status, answer) = call(&server, "/register", Some(&registration));
        assert_eq!((status, answer), (400, json!({"error": format!("{key} may have 256 bytes, not 257")})));
    }
}

#[test]
fn a_query_may_have_a_body_as_long_as_was_configured() {
    let server = start(|options| options.query_body_bytes = 64 << 10);
    let query = |tokens: usize| json!({"token_ids": vec![1; tokens], "model_name": "m"});
    assert_eq!(call(&server, "/query", Some(&query(5_000))).0, 404, "no such model, but read");
    // What is not much longer is read to its end, or whoever sends it would see a closed connection.
    for tokens in [10_000, 14_000, 18_000] {
        assert_eq!(call(&server, "/query", Some(&query(tokens))).0, 413);
    }
    let mut stream = connect(&server);
    let head = "POST /query HTTP/1.1\r\nHost: x\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: 131073\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413", "at once");
}

#[test]
fn a_connection_too_many_is_answered_when_another_ends() {
    let server = start(|options| options.connections = 2);
    let mut first = connect(&server);
    let mut second = connect(&server);
    health(&mut first).unwrap();
    health(&mut second).unwrap();
    let mut third = connect(&server);
    third.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    health(&mut third).expect_err("there are two already");
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    read_ok(&mut third).unwrap();
}

#[test]
fn long_bodies_that_never_arrive_keep_nobody_from_short_ones() {
    let server = start(|_| ());
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&server);
            let head = "POST /query HTTP/1.1\r\nHost: x\r\ncontent-type: application/json\r\n";
            write!(stream, "{head}content-length: 10000000\r\n\r\n{{").unwrap();
            stream
        })
        .collect();
    let query = json!({"token_ids": [1, 2, 3], "model_name": "m"});
    assert_eq!(call(&server, "/query", Some(&query)).0, 404);
    drop(slow);
    // And their places are free again.
    let query = json!({"token_ids": vec![1; 100_000], "model_name": "m"});
    assert_eq!(call(&server, "/query", Some(&query)).0, 404);
}

#[test]
fn limits_out_of_their_range_are_refused_in_one_sentence() {
    let refused = |set: fn(&mut ServiceOptions), part: &str| {
        let mut options = ServiceOptions::default();
        set(&mut options);
        let error = Service::new(options).expect_err("out of range");
        assert!(error.is_bad_option() && error.to_string().contains(part), "{error}");
    };
    refused(|options| options.connections = 0, "connections must be 1 to 100000, not 0");
    refused(|options| options.query_body_bytes = 1, "65536 to 1073741824, not 1");
}

//! What libzmq does with a message whose frames do not end: it keeps them all until the last one comes. No option of it bounds
//! that (SECURITY.md says so); this shows that it is so, and what is bounded all the same. A binary of its own, because it
//! looks at the memory of the whole process.

#![cfg(target_os = "linux")]

mod support;

use std::time::Duration;

use kvtap::source::{Listeners, SourceOptions};
use kvtap::{Config, Engine};

use support::publisher::{Publisher, TCP, ipc};
use support::source::{BLOCK_SIZE, payload, store};
use support::zmtp::Endpoint;

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const MESSAGE_BYTES: usize = MIB;

/// Resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

fn options(endpoint: &str, worker_id: u64) -> SourceOptions {
    let mut options = SourceOptions::new(endpoint, worker_id);
    options.ingest.block_size = BLOCK_SIZE;
    options.ingest.payload_max = u32::try_from(MESSAGE_BYTES).unwrap();
    options
}

/// `KVTAP_ENDLESS_MIB` sets how much is sent; 1,024 is worth a try by hand.
#[test]
fn a_message_of_endless_frames_takes_memory_until_it_ends_and_harms_nobody_else() {
    let sent = std::env::var("KVTAP_ENDLESS_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(192);
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    let endpoint = Endpoint::bind();
    let hostile = listeners.add(&engine, options(&endpoint.name(), 0)).unwrap();
    let mut publisher = endpoint.accept();
    let innocent = Publisher::bind(TCP, &ipc());
    let other = listeners.add(&engine, options(&innocent.endpoint, 1)).unwrap();
    innocent.wait_for_subscriber();

    let before = resident();
    let frame = vec![0xa5; MESSAGE_BYTES];
    for _ in 0..sent {
        publisher.frame(&frame, false).unwrap();
    }
    // Only what lies in the buffers of both ends of the connection has not arrived.
    let held = resident() - before;
    println!("{sent} MiB of one message sent: memory grew by {} MiB", held / MIB);
    assert!(held > (sent - 32) * MIB, "libzmq bounds it now: say so in SECURITY.md");

    // On the same listener thread, meanwhile.
    innocent.send(0, &payload([store(&[1], None, 1..=4)], 0));
    assert!(other.wait(PATIENCE, |status| status.cursor == Some(0)));
    assert_eq!((hostile.status().bad_messages, hostile.status().cursor), (0, None));

    // At its end it costs itself.
    publisher.frame(b"", true).unwrap();
    publisher.send(0, &payload([store(&[1], None, 1..=4)], 0)).unwrap();
    assert!(hostile.wait(PATIENCE, |status| status.cursor == Some(0)));
    let status = hostile.status();
    assert_eq!((status.bad_messages, status.connects, status.disconnects), (1, 1, 0));
    let error = status.last_error.unwrap();
    assert!(error.contains(&format!("{} frames", sent + 1)), "{error}");
    let after = resident().saturating_sub(before);
    println!("after its end: {} MiB more than before", after / MIB);
    assert!(after < held / 2, "{} MiB are still held", after / MIB);
}

//! An instance that loads what another holds, over real HTTP and real sockets: afterwards the two cannot be told apart.

mod support;

#[path = "support/client.rs"]
mod client;
#[path = "peers/bench.rs"]
mod bench;
#[path = "peers/dumps.rs"]
mod dumps;
#[path = "peers/control.rs"]
mod control;
#[path = "peers/traffic.rs"]
mod traffic;

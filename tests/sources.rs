//! Live sources over real sockets, tcp and ipc: every fault once, and after each the index equals that of a model that was
//! fed what survived. Nothing sleeps: tests wait for a status, a request or a subscription.

mod support;

#[path = "sources/bench.rs"]
mod bench;
#[path = "sources/gaps.rs"]
mod gaps;
#[path = "sources/limits.rs"]
mod limits;
#[path = "sources/many.rs"]
mod many;
#[path = "sources/messages.rs"]
mod messages;
#[path = "sources/pressure.rs"]
mod pressure;
#[path = "sources/restarts.rs"]
mod restarts;

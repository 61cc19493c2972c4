//! Live sources: sockets → frames → sequence → [`Ingest`](crate::Ingest). Uses the public interface only, as an embedder
//! would; only `socket` knows the transport.
//!
//! ```no_run
//! use kvtap::source::{Listeners, SourceOptions};
//! use kvtap::{Config, Engine};
//!
//! let engine = Engine::new(Config::default())?;
//! let listeners = Listeners::start(1)?;
//! let mut options = SourceOptions::new("tcp://127.0.0.1:5557", 7);
//! options.replay = Some("tcp://127.0.0.1:5558".to_owned());
//! let source = listeners.add(&engine, options)?; // from now on; dropping it takes its blocks out of the index
//! println!("{:?}", source.status());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is bounded
//!
//! A listener reads a source's messages only as fast as the shards take its records: a full channel holds the listener
//! up, then the socket's queue fills, then the publisher's, which drops. What it dropped shows as a gap, which a replay
//! heals. During a replay the live messages wait in the socket's queue as well; kvtap itself holds one message. The
//! queue is bounded in messages and each of its frames in bytes ([`SourceLimits`]); libzmq offers no bound on the frames of one
//! message (`SECURITY.md`).

mod options;
mod socket;
mod status;
mod journal;
mod examples;
mod takeover;
mod stream;
mod live;
mod listeners;

pub use examples::Example;
pub use listeners::{Listeners, Source};
pub use options::{SourceError, SourceLimits, SourceOptions};
pub use socket::{Frames, Requester, Subscriber};
pub use status::{Glance, Report, State, Status};
pub use takeover::SourceState;

//! An engine stand-in: a simulated block pool, the events it makes, the producers' encodings, and the sockets they
//! publish on. For tests, fixtures and trying kvtap out; nothing of the library uses it. Control plane.
//!
//! [`MockEngine`] makes the events of one scheduler step after the other, [`Encoding::encode`] turns them into the bytes of
//! a producer, [`Publisher`] sends these and answers replay requests. [`Ledger`] says what a listener must hold then; it is
//! written from the contract and shares no code with the index.
//!
//! ```
//! use kvtap::mock::{Batch, Encoding, Ledger, MockEngine, MockOptions, Scenario};
//! use kvtap::{Config, Engine, SourceConfig, Worker};
//!
//! let mut mock = MockEngine::new(&MockOptions::new(Scenario::Chat, Encoding::VllmMap))?;
//! let mut ledger = Ledger::new(16);
//! let engine = Engine::new(Config::default())?;
//! let mut ingest = engine.ingest(SourceConfig::new(7))?;
//! for step in 0..100 {
//!     let events = mock.next_batch();
//!     ledger.apply(&events);
//!     let batch = Batch { timestamp: f64::from(step), events: &events, dp_rank: 0 };
//!     ingest.apply(&Encoding::VllmMap.encode(&batch))?;
//! }
//! ingest.flush();
//! assert_eq!(ingest.digest(), ledger.digest(Worker { worker_id: 7, dp_rank: 0 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod pool;
mod tiers;
mod scenario;
mod traffic;
mod engine;
mod encode;
mod ledger;
mod publish;

pub use encode::Batch;
pub use engine::{MockEngine, MockOptions};
pub use event::{Event, Group, Identity, Lora, Medium, Removed, Stored};
pub use ledger::Ledger;
pub use publish::{Endpoints, Fate, PublishError, Publisher, PublisherOptions, ReplayFrames};
pub use scenario::{Encoding, Feature, MockError, Scenario};

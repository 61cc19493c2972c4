//! The stand-alone indexer over HTTP: sources come and go, each model and routing group has an index of its own, and routers
//! ask which worker holds how much of a prompt. Control plane, but for queries, which run on the index without locks.
//!
//! Requests and answers have the shapes of dynamo-kv-router 1.6.1's standalone indexer, so that its clients need no change;
//! `/sources`, `/explain`, `/ready` and JSON with one sentence for every error come on top. Uses the public interface only.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use kvtap::server::{Server, Service, ServiceOptions};
//!
//! let service = Arc::new(Service::new(ServiceOptions::default())?);
//! let server = Server::start(Arc::clone(&service), "127.0.0.1:8090")?;
//! println!("http://{}/health", server.address());
//! server.stop(); // lets requests end
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connections;
mod problem;
mod partition;
mod service;
mod access;
mod body;
mod queries;
mod control;
mod reports;
mod dump;
mod restore;
mod unclaimed;
mod peers;
mod load;
mod metrics;
mod http;

pub use http::{Server, router};
pub use partition::PartitionId;
pub use peers::PeerUrl;
pub use problem::ServiceError;
pub use service::{Registration, Service, ServiceOptions, Unregistration};

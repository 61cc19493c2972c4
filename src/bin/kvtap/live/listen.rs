//! `kvtap serve --listen`: the service over HTTP, with the sources it was given and those that register.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use kvtap::server::{Registration, Server, Service, ServiceOptions};

use super::args::ServeArgs;
use super::ending::Ending;
use super::serve::{sum_up, tell, wait};
use super::settings::Settings;
use crate::note;

pub(super) fn run(
    args: &ServeArgs,
    settings: &Settings,
    address: SocketAddr,
    ending: Ending,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut options = ServiceOptions::default();
    settings.limits.limit(&mut options);
    options.shards = settings.shards.into();
    options.peers.clone_from(&settings.peers);
    options.listeners = settings.listeners.map_or(options.listeners, usize::from);
    let service = Arc::new(Service::new(options)?);
    for (position, spec) in (0..).zip(&settings.sources) {
        for options in spec.sources(position)? {
            service.register(Registration { partition: spec.partition().clone(), options })?;
        }
    }
    let server = Server::start(Arc::clone(&service), address)
        .with_context(|| format!("cannot listen on {address}"))?;
    note(&format!("listening on http://{}", server.address()));
    wait(ending, || service.statuses());
    server.stop();
    // The indexes still hold everything: the blocks of a stopped source leave, but its report tells of them.
    let index_bytes = service.index_bytes();
    tell(args, &sum_up(&service.stop(), index_bytes, start.elapsed()))
}

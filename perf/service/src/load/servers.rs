//! The two servers, each a process of its own, so that neither shares threads or an allocator with the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use kvtap_perf_service::{start_dynamo, start_kvtap};

use super::System;

/// Serves until stdin ends, which it does at the latest when whoever started this is gone.
pub(crate) fn serve(system: System) {
    let (address, _server) = match system {
        System::Kvtap => {
            let server = start_kvtap();
            (server.address(), Some(server))
        }
        System::Dynamo => (start_dynamo(), None),
    };
    println!("{address}");
    std::io::stdout().flush().expect("somebody who reads");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("an end");
}

/// Both, running.
pub(super) struct Pair([(Child, SocketAddr); 2]);

impl Pair {
    pub(super) fn start(threads: usize) -> Self {
        Self(System::BOTH.map(|system| start(system, threads)))
    }

    pub(super) fn address(&self, system: System) -> SocketAddr {
        self.0[system as usize].1
    }

    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        System::BOTH.map(|system| self.address(system))
    }
}

fn start(system: System, threads: usize) -> (Child, SocketAddr) {
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own)
        .args(["serve", system.name()])
        // Both runtimes read it.
        .env("TOKIO_WORKER_THREADS", threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("an address");
    (child, line.trim().parse().expect("an address"))
}

impl Drop for Pair {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            drop(child.stdin.take());
            // It has nothing to tell.
            drop(child.wait());
        }
    }
}

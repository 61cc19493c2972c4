//! Listener threads, each of which follows many sources; and the handle by which other threads know a source.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::live::LiveSource;
use super::options::{Problem, SourceError, SourceOptions};
use super::socket::{Hub, Pollable, Waker, Wakeups, poll};
use super::status::{Board, Glance, Report, Status};
use super::stream::Stream;
use super::takeover::SourceState;
use crate::{Engine, LoadError, Worker};

/// libzmq has 1,023 sockets per context, a thread's; a source takes up to four.
const SOURCES_PER_THREAD: usize = 250;

/// A fixed number of threads that follow any number of sources. Dropping it stops them all.
pub struct Listeners {
    threads: Vec<Thread>,
    next: AtomicU64,
}

struct Thread {
    remote: Arc<Remote>,
    join: Option<JoinHandle<()>>,
}

/// What other threads have of a listener thread.
struct Remote {
    hub: Arc<Hub>,
    commands: Sender<Command>,
    #[expect(clippy::disallowed_types, reason = "control plane: sockets are not for two threads at a time")]
    waker: std::sync::Mutex<Waker>,
    sources: AtomicUsize,
}

enum Command {
    Add(u64, Box<LiveSource>),
    State(u64, Sender<SourceState>),
    Hold(u64, Sender<bool>),
    Begin(u64, Option<Box<SourceState>>, Sender<Result<bool, LoadError>>),
    Glance(u64, Sender<Glance>),
    Report(u64, Sender<Report>),
    Remove(u64, Sender<Report>),
    Stop,
}

/// A source that is being followed. Dropping it ends that: its blocks leave the index.
pub struct Source {
    number: u64,
    remote: Arc<Remote>,
    board: Arc<Board>,
}

impl Listeners {
    /// Starts so many threads: 1 to 64. One is enough for a gigabyte a second (`perf/README.md`); each takes 250 sources.
    ///
    /// # Errors
    /// If the number is out of its range, or a thread cannot be started.
    pub fn start(threads: usize) -> Result<Self, SourceError> {
        if !(1..=64).contains(&threads) {
            return Err(Problem::Listeners(threads).into());
        }
        let threads = (0..threads).map(Thread::start).collect::<Result<_, _>>()?;
        Ok(Self { threads, next: AtomicU64::new(0) })
    }

    /// Follows a source from now on, on the thread that has the fewest.
    ///
    /// # Errors
    /// If the options cannot work, or there is no room for another.
    pub fn add(&self, engine: &Engine, options: SourceOptions) -> Result<Source, SourceError> {
        self.start_source(engine, options, false)
    }

    /// Connects a source, but lets its messages wait in their socket until [`Source::begin`]: so that nothing is missed between
    /// what another listener knows and what comes.
    ///
    /// # Errors
    /// As [`Listeners::add`].
    pub fn add_held(&self, engine: &Engine, options: SourceOptions) -> Result<Source, SourceError> {
        self.start_source(engine, options, true)
    }

    fn start_source(
        &self,
        engine: &Engine,
        options: SourceOptions,
        is_held: bool,
    ) -> Result<Source, SourceError> {
        let load = |thread: &&Thread| thread.remote.sources.load(Ordering::Relaxed);
        let thread = self.threads.iter().min_by_key(load).filter(|thread| load(thread) < SOURCES_PER_THREAD);
        let remote = &thread.ok_or(Problem::Full)?.remote;
        let ingest = engine.ingest(options.ingest.clone())?;
        let subscriber = remote.hub.subscribe(&options)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Before it connects, so that no change is missed.
        let monitor = remote.hub.monitor(&subscriber, number)?;
        // Of these two, the later is dropped first.
        let subscriber = subscriber;
        subscriber.connect(&options.endpoint)?;
        let worker = Worker { worker_id: options.ingest.worker_id, dp_rank: options.ingest.dp_rank };
        let board = Arc::new(Board::new(Status::new(options.endpoint.clone(), worker)));
        let stream = Stream::new(&options, ingest);
        let mut live = LiveSource::new(options, subscriber, monitor, stream, Arc::clone(&board));
        if is_held {
            live.hold();
        }
        if !remote.send(Command::Add(number, Box::new(live))) {
            return Err(Problem::Ended.into());
        }
        remote.sources.fetch_add(1, Ordering::Relaxed);
        Ok(Source { number, remote: Arc::clone(remote), board })
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.remote.send(Command::Stop);
        }
        for thread in &mut self.threads {
            if let Some(join) = thread.join.take() {
                // A panic there has been told on stderr; there is nothing to add.
                drop(join.join());
            }
        }
    }
}

impl Source {
    /// The source as its listener saw it last.
    #[must_use]
    pub fn status(&self) -> Status {
        self.board.read()
    }

    /// Waits until the status is as wanted, so long at most. Says whether it is.
    pub fn wait(&self, timeout: Duration, is_so: impl Fn(&Status) -> bool) -> bool {
        self.board.wait(timeout, is_so)
    }

    /// What its ranks hold and where its stream stands, of one moment. Its listener walks over all blocks meanwhile. `None` if
    /// it has ended.
    #[must_use]
    pub fn state(&self) -> Option<SourceState> {
        self.ask(|answer| Command::State(self.number, answer))
    }

    /// Lets its messages wait in their socket until `begin`, if another listener may know more: because this one has heard
    /// nothing yet, or is degraded. Says whether they wait.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.ask(|answer| Command::Hold(self.number, answer)).unwrap_or(false)
    }

    /// Reads its messages again; first takes over what another listener knows, if it was held and that is more. Says whether it
    /// was taken.
    ///
    /// # Errors
    /// If what the other knows contradicts itself, or finds no room.
    pub fn begin(&self, state: Option<SourceState>) -> Result<bool, LoadError> {
        let state = state.map(Box::new);
        self.ask(|answer| Command::Begin(self.number, state, answer)).unwrap_or(Ok(false))
    }

    /// What its listener can say at once. `None` if it has ended.
    #[must_use]
    pub fn glance(&self) -> Option<Glance> {
        self.ask(|answer| Command::Glance(self.number, answer))
    }

    /// Sums up what the source has brought; what it counts is visible to readers. `None` if its listener has ended.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        self.ask(|answer| Command::Report(self.number, answer))
    }

    /// Stops following it and sums up: batches of an open gap are lost. Its blocks have left the index when this returns,
    /// but the report still tells of them, and of the state it was in.
    #[must_use]
    pub fn stop(&self) -> Option<Report> {
        self.remove()
    }

    fn remove(&self) -> Option<Report> {
        self.ask(|answer| Command::Remove(self.number, answer))
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, answers) = bounded(1);
        self.remote.send(command(answer));
        answers.recv().ok()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("number", &self.number)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // After `stop` there is nothing left to remove.
        drop(self.remove());
        self.remote.sources.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Remote {
    /// Says whether there is somebody to get it.
    fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner).wake();
        sent
    }
}

impl Thread {
    fn start(number: usize) -> Result<Self, SourceError> {
        let hub = Arc::new(Hub::new());
        let (waker, wakeups) = hub.waker()?;
        let (commands, inbox) = unbounded();
        #[expect(clippy::disallowed_types, reason = "see the field")]
        let waker = std::sync::Mutex::new(waker);
        let remote =
            Arc::new(Remote { hub: Arc::clone(&hub), commands, waker, sources: AtomicUsize::new(0) });
        let listener = Listener { hub, wakeups, inbox, sources: BTreeMap::new(), ready: Vec::new() };
        let join = std::thread::Builder::new()
            .name(format!("kvtap-listen-{number}"))
            .spawn(move || listener.run())
            .map_err(Problem::Thread)?;
        Ok(Self { remote, join: Some(join) })
    }
}

/// The inside of a listener thread.
struct Listener {
    hub: Arc<Hub>,
    wakeups: Wakeups,
    inbox: Receiver<Command>,
    sources: BTreeMap<u64, Box<LiveSource>>,
    ready: Vec<bool>,
}

impl Listener {
    fn run(mut self) {
        while self.obey() {
            let now = Instant::now();
            let deadline = self.sources.values().filter_map(|source| source.deadline()).min();
            self.poll(deadline.map(|deadline| deadline.saturating_duration_since(now)));
            let mut ready = self.ready.iter().copied();
            if ready.next() == Some(true) {
                self.wakeups.drain();
            }
            let now = Instant::now();
            for source in self.sources.values_mut() {
                if ready.next() == Some(true) {
                    source.read_monitor();
                }
                if source.input().is_some() && ready.next() == Some(true) {
                    source.read(&self.hub);
                }
                source.tick(&self.hub, now);
            }
        }
        for source in self.sources.values_mut() {
            source.finish();
            source.leave();
        }
    }

    /// Waits for a command, a message, a reply or a connection.
    fn poll(&mut self, timeout: Option<Duration>) {
        let sources = self
            .sources
            .values()
            .flat_map(|source| std::iter::once(source.monitor() as &dyn Pollable).chain(source.input()));
        let items = std::iter::once(&self.wakeups as &dyn Pollable).chain(sources);
        poll(items, &mut self.ready, timeout);
    }

    /// Does what other threads have asked for. Says whether to go on.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Add(number, source) => {
                    self.sources.insert(number, source);
                }
                Command::State(number, answer) => {
                    if let Some(source) = self.sources.get(&number) {
                        drop(answer.send(source.state_of_stream()));
                    }
                }
                Command::Hold(number, answer) => {
                    if let Some(source) = self.sources.get_mut(&number) {
                        let _ = answer.send(source.hold());
                    }
                }
                Command::Begin(number, state, answer) => {
                    if let Some(source) = self.sources.get_mut(&number) {
                        let _ = answer.send(source.begin(state.as_deref()));
                    }
                }
                Command::Glance(number, answer) => {
                    if let Some(source) = self.sources.get(&number) {
                        drop(answer.send(source.glance()));
                    }
                }
                Command::Report(number, answer) => {
                    if let Some(source) = self.sources.get_mut(&number) {
                        // Whoever asked may have gone.
                        drop(answer.send(source.report()));
                    }
                }
                Command::Remove(number, answer) => {
                    if let Some(mut source) = self.sources.remove(&number) {
                        source.finish();
                        let report = source.report();
                        source.leave();
                        drop(source);
                        drop(answer.send(report));
                    }
                }
                Command::Stop => return false,
            }
        }
        true
    }
}

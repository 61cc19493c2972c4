//! The transport: libzmq. Nothing else in the crate's sources knows it.
//!
//! Received messages are looked at where libzmq put them; the same message objects are filled again and again.

use std::fmt;
use std::time::Duration;

use super::options::{Problem, SourceError, SourceOptions, binds, check_endpoint};
use crate::{FrameError, Message, ReplayReply};

/// The longest message any shape has, and one more to see that it is longer.
const FRAMES_MAX: usize = 5;
/// Frames taken at a time of a message that has too many, so that other sources have their turn.
const FRAMES_AT_ONCE: usize = 1000;
/// Topic and sequence beside the payload are short, but a frame is a frame to libzmq.
const FRAME_BYTES_MIN: u32 = 1024;
/// libzmq tries again after this, then twice as long, up to the maximum.
const RECONNECT_MS: i32 = 100;
const RECONNECT_MS_MAX: i32 = 5000;
/// A peer that vanished without a word is noticed after a minute. By TCP, because not every publisher's library answers
/// the heartbeats of ZMTP.
const KEEPALIVE_IDLE_S: i32 = 30;
const KEEPALIVE_INTERVAL_S: i32 = 10;
const KEEPALIVE_PROBES: i32 = 3;
/// Twice what the engines keep for replay. A shorter queue would back up into a ROUTER that then drops replies silently.
const REPLIES_MAX: i32 = 20_000;

const WAKE_ENDPOINT: &str = "inproc://wake";
const HANDSHAKE_SUCCEEDED: u16 = 0x1000;
const DISCONNECTED: u16 = 0x0200;
const CONNECT_RETRIED: u16 = 0x0004;
const MONITOR_STOPPED: u16 = 0x0400;
/// What libzmq may take to end a socket on its own threads; normally less than a millisecond. In waits, and not until a moment, so
/// that a process that was stopped meanwhile does not give up when it goes on.
const END_WAIT: Duration = Duration::from_millis(100);
const END_WAITS: u32 = 600;

/// Sockets that can be polled together, and their I/O thread.
pub(super) struct Hub(zmq::Context);

/// The frames of one received message.
pub struct Frames {
    messages: [Frame; FRAMES_MAX],
    count: usize,
    /// More of the same message are to come.
    goes_on: bool,
}

struct Frame(zmq::Message);

/// A subscription to one publisher.
pub struct Subscriber {
    socket: zmq::Socket,
}

/// A connection to a publisher's replay socket.
pub struct Requester {
    socket: zmq::Socket,
}

/// Tells when a subscriber's connection comes and goes. To be dropped after the subscriber.
pub(super) struct Monitor(zmq::Socket);

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A publisher is there, and speaks the protocol.
    Connected,
    /// It is gone, or never spoke it.
    Lost,
    /// libzmq will try again by itself. It does not after an error in the protocol, such as a frame that is too long.
    Retrying,
}

/// Ends a poll from another thread.
pub(super) struct Waker(zmq::Socket);

/// The polling side of a [`Waker`].
pub(super) struct Wakeups(zmq::Socket);

/// Something to poll.
pub(super) trait Pollable {
    fn socket(&self) -> &zmq::Socket;
}

impl Hub {
    pub(super) fn new() -> Self {
        Self(zmq::Context::new())
    }

    /// Subscribes as the options say. Connecting goes on in the background, for ever.
    pub(super) fn subscribe(&self, options: &SourceOptions) -> Result<Subscriber, SourceError> {
        options.check()?;
        let open = || {
            let socket = self.0.socket(zmq::SUB)?;
            socket.set_rcvhwm(i32::try_from(options.receive_queue).unwrap_or(i32::MAX).max(1))?;
            harden(&socket, options.ingest.payload_max)?;
            socket.set_subscribe(&options.topic)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| failure("a socket", error))?;
        Ok(Subscriber { socket })
    }

    /// Watches a subscriber that is not yet connected.
    pub(super) fn monitor(&self, subscriber: &Subscriber, number: u64) -> Result<Monitor, SourceError> {
        let name = format!("inproc://monitor-{number}");
        let events = HANDSHAKE_SUCCEEDED | DISCONNECTED | CONNECT_RETRIED | MONITOR_STOPPED;
        let open = || {
            subscriber.socket.monitor(&name, i32::from(events))?;
            let socket = self.0.socket(zmq::PAIR)?;
            socket.set_linger(0)?;
            socket.connect(&name)?;
            Ok(Monitor(socket))
        };
        open().map_err(|error| failure("a socket", error))
    }

    /// Asks for all batches from a number on.
    pub(super) fn request(
        &self,
        endpoint: &str,
        payload_max: u32,
        start: u64,
    ) -> Result<Requester, SourceError> {
        check_endpoint(endpoint)?;
        let open = || {
            let socket = self.0.socket(zmq::DEALER)?;
            socket.set_rcvhwm(REPLIES_MAX)?;
            harden(&socket, payload_max)?;
            socket.connect(endpoint)?;
            // The empty frame that a REQ socket would put there; without it the engines do not answer.
            socket.send(&b""[..], zmq::SNDMORE | zmq::DONTWAIT)?;
            socket.send(&start.to_be_bytes()[..], zmq::DONTWAIT)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| failure(endpoint, error))?;
        Ok(Requester { socket })
    }

    /// Both ends of a wake-up call.
    pub(super) fn waker(&self) -> Result<(Waker, Wakeups), SourceError> {
        let open = || {
            let wakeups = self.0.socket(zmq::PAIR)?;
            wakeups.bind(WAKE_ENDPOINT)?;
            let waker = self.0.socket(zmq::PAIR)?;
            waker.set_linger(0)?;
            waker.connect(WAKE_ENDPOINT)?;
            Ok((Waker(waker), Wakeups(wakeups)))
        };
        open().map_err(|error| failure("a socket", error))
    }
}

fn harden(socket: &zmq::Socket, payload_max: u32) -> zmq::Result<()> {
    socket.set_linger(0)?;
    socket.set_maxmsgsize(i64::from(payload_max.max(FRAME_BYTES_MIN)))?;
    socket.set_reconnect_ivl(RECONNECT_MS)?;
    socket.set_reconnect_ivl_max(RECONNECT_MS_MAX)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(KEEPALIVE_IDLE_S)?;
    socket.set_tcp_keepalive_intvl(KEEPALIVE_INTERVAL_S)?;
    socket.set_tcp_keepalive_cnt(KEEPALIVE_PROBES)?;
    socket.set_ipv6(true)
}

fn failure(what: &str, error: zmq::Error) -> SourceError {
    Problem::Transport(what.to_owned(), error.message()).into()
}

impl Subscriber {
    /// Subscribes to an endpoint by itself, for tools. Connecting goes on in the background.
    ///
    /// # Errors
    /// If the options cannot work.
    pub fn open(options: &SourceOptions) -> Result<Self, SourceError> {
        let subscriber = Hub::new().subscribe(options)?;
        subscriber.connect(&options.endpoint)?;
        Ok(subscriber)
    }

    /// Connects; or binds, where publishers are to connect.
    pub(super) fn connect(&self, endpoint: &str) -> Result<(), SourceError> {
        if binds(endpoint) {
            let refused = |error: zmq::Error| Problem::Bind(endpoint.to_owned(), error.message()).into();
            return self.socket.bind(endpoint).map_err(refused);
        }
        // Whether anybody is there is found out later.
        let refused = |error: zmq::Error| Problem::Connect(endpoint.to_owned(), error.message()).into();
        self.socket.connect(endpoint).map_err(refused)
    }

    /// Connects anew, where libzmq has given up.
    pub(super) fn reconnect(&self, endpoint: &str) -> Result<(), SourceError> {
        // Fails if libzmq has forgotten the endpoint; if it has not, there would be two connections.
        let _ = self.socket.disconnect(endpoint);
        self.socket.connect(endpoint).map_err(|error| failure(endpoint, error))
    }

    /// The next message if there is one. Says whether there was. One of more than a thousand frames takes several calls, with
    /// the same `frames`.
    ///
    /// # Errors
    /// If the transport is at its end.
    pub fn receive(&self, frames: &mut Frames) -> Result<bool, SourceError> {
        receive(&self.socket, frames)
    }

    /// Waits for a message so long, or until a signal. Says whether there is one.
    ///
    /// # Errors
    /// If the transport is at its end.
    pub fn wait(&self, timeout: Duration) -> Result<bool, SourceError> {
        wait(&self.socket, timeout)
    }
}

impl Requester {
    /// Asks a replay socket for all batches from a number on, by itself, for tools.
    ///
    /// # Errors
    /// If the endpoint cannot work.
    pub fn ask(endpoint: &str, payload_max: u32, start: u64) -> Result<Self, SourceError> {
        Hub::new().request(endpoint, payload_max, start)
    }

    /// The next reply if there is one. Says whether there was.
    ///
    /// # Errors
    /// If the transport is at its end.
    pub fn receive(&self, frames: &mut Frames) -> Result<bool, SourceError> {
        receive(&self.socket, frames)
    }

    /// Waits for a reply so long, or until a signal. Says whether there is one.
    ///
    /// # Errors
    /// If the transport is at its end.
    pub fn wait(&self, timeout: Duration) -> Result<bool, SourceError> {
        wait(&self.socket, timeout)
    }
}

/// Takes one whole message, if one is there; of an overlong one the last frames only, some at each call until it is over.
fn receive(socket: &zmq::Socket, frames: &mut Frames) -> Result<bool, SourceError> {
    if !std::mem::take(&mut frames.goes_on) {
        frames.count = 0;
    }
    for _ in 0..FRAMES_AT_ONCE {
        let frame = &mut frames.messages[frames.count.min(FRAMES_MAX - 1)].0;
        match socket.recv(frame, zmq::DONTWAIT) {
            Ok(()) => frames.count += 1,
            Err(zmq::Error::EINTR) => continue,
            // Messages arrive whole: there is none at all.
            Err(zmq::Error::EAGAIN) => return Ok(false),
            Err(error) => return Err(failure("receiving", error)),
        }
        if !frame.get_more() {
            return Ok(true);
        }
    }
    frames.goes_on = true;
    Ok(false)
}

fn wait(socket: &zmq::Socket, timeout: Duration) -> Result<bool, SourceError> {
    match socket.poll(zmq::POLLIN, milliseconds(timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(zmq::Error::EINTR) => Ok(false),
        Err(error) => Err(failure("waiting", error)),
    }
}

/// Rounded up, so that a poll does not end before its time and spin.
fn milliseconds(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

impl Monitor {
    /// The next change, if there is one.
    pub(super) fn next(&self) -> Option<Change> {
        let mut frames = Frames::new();
        while receive(&self.0, &mut frames).ok()? {
            match event(&frames) {
                Some(HANDSHAKE_SUCCEEDED) => return Some(Change::Connected),
                Some(DISCONNECTED) => return Some(Change::Lost),
                Some(CONNECT_RETRIED) => return Some(Change::Retrying),
                _ => {}
            }
        }
        None
    }
}

/// Event number and value, then the address.
fn event(frames: &Frames) -> Option<u16> {
    frames.messages[0].0.first_chunk().map(|&bytes| u16::from_ne_bytes(bytes))
}

impl Drop for Monitor {
    /// A subscriber ends on libzmq's threads, some time after it was dropped, and is told of until then. With nobody there to be
    /// told, libzmq's thread would wait for ever, and every other source of the context with it.
    fn drop(&mut self) {
        let mut frames = Frames::new();
        for _ in 0..END_WAITS {
            while receive(&self.0, &mut frames).is_ok_and(|is_told| is_told) {
                if event(&frames) == Some(MONITOR_STOPPED) {
                    return;
                }
            }
            if wait(&self.0, END_WAIT).is_err() {
                return;
            }
        }
    }
}

impl Waker {
    pub(super) fn wake(&self) {
        // If it cannot be sent, enough calls are waiting already, or nobody is there to be woken.
        let _ = self.0.send(&b""[..], zmq::DONTWAIT);
    }
}

impl Wakeups {
    pub(super) fn drain(&self) {
        let mut frames = Frames::new();
        while receive(&self.0, &mut frames).unwrap_or(false) {}
    }
}

/// Waits until one of them can be read, so long at most, or until a signal.
pub(super) fn poll<'a>(
    items: impl Iterator<Item = &'a dyn Pollable>,
    ready: &mut Vec<bool>,
    timeout: Option<Duration>,
) {
    let mut items: Vec<zmq::PollItem<'_>> =
        items.map(|item| item.socket().as_poll_item(zmq::POLLIN)).collect();
    let polled = zmq::poll(&mut items, timeout.map_or(-1, milliseconds));
    ready.clear();
    ready.extend(items.iter().map(|item| polled.is_ok() && item.is_readable()));
}

impl Pollable for Subscriber {
    fn socket(&self) -> &zmq::Socket {
        &self.socket
    }
}

impl Pollable for Requester {
    fn socket(&self) -> &zmq::Socket {
        &self.socket
    }
}

impl Pollable for Monitor {
    fn socket(&self) -> &zmq::Socket {
        &self.0
    }
}

impl Pollable for Wakeups {
    fn socket(&self) -> &zmq::Socket {
        &self.0
    }
}

impl Frames {
    /// Room for a message.
    #[must_use]
    pub fn new() -> Self {
        Self { messages: std::array::from_fn(|_| Frame(zmq::Message::new())), count: 0, goes_on: false }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of those that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().take(self.count).map(|frame| frame.0.len()).sum()
    }

    /// Reads them as a publisher's message.
    ///
    /// # Errors
    /// If they are none.
    pub fn message(&self) -> Result<Message<'_>, FrameError> {
        Message::read(self.whole()?)
    }

    /// Reads them as a reply to a replay request.
    ///
    /// # Errors
    /// If they are none.
    pub fn reply(&self) -> Result<ReplayReply<'_>, FrameError> {
        ReplayReply::read(self.whole()?)
    }

    fn whole(&self) -> Result<&[Frame], FrameError> {
        self.messages.get(..self.count).ok_or(FrameError::FrameCount(self.count))
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.messages.iter().take(self.count).map(|frame| frame.0.len());
        f.debug_list().entries(lengths).finish()
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester").finish_non_exhaustive()
    }
}

//! One source with its sockets: reads bursts of messages, fills gaps from a replay, keeps time. Data plane between the
//! socket and [`Stream`], control plane where connections and replays come and go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::{SourceError, SourceOptions, TOPIC_BYTES_MAX, binds};
use super::socket::{Change, Frames, Hub, Monitor, Pollable, Requester, Subscriber};
use super::status::{Board, Glance, Report, State};
use super::stream::{Rest, Stream};
use super::takeover::SourceState;
use crate::{LoadError, Message, ReplayReply};

/// Messages, and their bytes, read of one source before the others have their turn.
const BURST: usize = 256;
const BURST_BYTES: usize = 4 << 20;
/// A replay that may have been cut is asked again after so little silence: its end will not come.
const CUT_TIMEOUT: Duration = Duration::from_millis(300);
/// A replay socket that said nothing is left alone for so long, then twice as long.
const SILENCE_BACK_OFF: Duration = Duration::from_secs(5);
const SILENCE_BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// After a lost connection libzmq says at once that it tries again, or never will.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// SGLang's scheduler load, if somebody points it at the same socket: not ours.
const LOAD_TOPIC: &[u8] = b"load";
/// Bytes of a topic that are worth a line of log.
const TOPIC_BYTES_TOLD: usize = 64;

/// A source as its listener thread keeps it.
pub(super) struct LiveSource {
    options: SourceOptions,
    subscriber: Subscriber,
    /// Dropped after the subscriber.
    monitor: Monitor,
    stream: Stream,
    board: Arc<Board>,
    frames: Frames,
    /// The topic its messages must have, once known.
    topic: Option<Vec<u8>>,
    replay: Option<Replay>,
    silence: Silence,
    link: Link,
    /// Messages wait in their socket until it begins.
    is_held: bool,
}

/// A gap that is being filled.
struct Replay {
    requester: Requester,
    /// The live message that showed it.
    held: Frames,
    lost_before: u64,
    cursor: Option<u64>,
    any_reply: bool,
    silent_at: Instant,
    over_at: Instant,
}

/// Whether it is worth asking.
#[derive(Debug, Default)]
struct Silence {
    until: Option<Instant>,
    back_off: Duration,
}

/// Counts of what came over the sockets.
#[derive(Debug, Default)]
struct Link {
    connections: u64,
    connects: u64,
    disconnects: u64,
    heard: bool,
    /// When to connect anew unless libzmq does.
    reconnect_at: Option<Instant>,
    bad_messages: u64,
    foreign_messages: u64,
}

impl LiveSource {
    pub(super) fn new(
        options: SourceOptions,
        subscriber: Subscriber,
        monitor: Monitor,
        stream: Stream,
        board: Arc<Board>,
    ) -> Self {
        let topic = Some(options.topic.clone()).filter(|topic| !topic.is_empty());
        Self {
            options,
            subscriber,
            monitor,
            stream,
            board,
            frames: Frames::new(),
            topic,
            replay: None,
            silence: Silence::default(),
            link: Link::default(),
            is_held: false,
        }
    }

    /// What to wait for: replies while a gap is filled, messages otherwise, nothing while it is held. Live messages wait in
    /// their socket.
    pub(super) fn input(&self) -> Option<&dyn Pollable> {
        let input =
            self.replay.as_ref().map_or(&self.subscriber as &dyn Pollable, |replay| &replay.requester);
        Some(input).filter(|_| !self.is_held)
    }

    /// Reads no further until `begin`, if another listener may know more. Says whether.
    pub(super) fn hold(&mut self) -> bool {
        self.is_held = self.replay.is_none() && self.stream.wants_more();
        self.is_held
    }

    /// Reads from now on. If it was held, first takes over what another listener knows, if that is more; says whether it was.
    pub(super) fn begin(&mut self, state: Option<&SourceState>) -> Result<bool, LoadError> {
        let taken = match state {
            Some(state) if self.is_held => self.stream.take(state),
            _ => Ok(false),
        };
        self.is_held = false;
        self.post();
        taken
    }

    /// All that another listener needs to go on from here.
    pub(super) fn state_of_stream(&self) -> SourceState {
        self.stream.state()
    }

    pub(super) const fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// When to look at it even if nothing comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let replay = self.replay.as_ref().map(|replay| replay.silent_at.min(replay.over_at));
        replay.into_iter().chain(self.link.reconnect_at).min()
    }

    /// Reads a burst from where `input` points.
    pub(super) fn read(&mut self, hub: &Hub) {
        let mut bytes = 0;
        for _ in 0..BURST {
            let more = if self.replay.is_some() { self.read_reply(hub) } else { self.read_message(hub) };
            match more {
                Ok(true) => bytes += self.frames.bytes(),
                Ok(false) => break,
                Err(error) => {
                    self.stream.fail(error.to_string());
                    break;
                }
            }
            if bytes >= BURST_BYTES {
                break;
            }
        }
        self.post();
    }

    /// One live message, if there is one.
    fn read_message(&mut self, hub: &Hub) -> Result<bool, SourceError> {
        if !self.subscriber.receive(&mut self.frames)? {
            return Ok(false);
        }
        self.link.heard = true;
        match self.frames.message() {
            Ok(message) if !is_ours(&mut self.topic, &message) => {
                self.link.foreign_messages += 1;
                if self.link.foreign_messages == 1 {
                    let topic = &message.topic[..message.topic.len().min(TOPIC_BYTES_TOLD)];
                    let topic = topic.escape_ascii();
                    self.stream.journal().warn(format_args!("messages on topic '{topic}' are passed over"));
                }
            }
            Ok(message) => {
                let lost_before = self.stream.lost_batches();
                if self.stream.live(&message).is_some() {
                    let held = std::mem::take(&mut self.frames);
                    let over_at = Instant::now() + self.options.replay_time_max;
                    self.fill(hub, held, lost_before, over_at);
                }
            }
            Err(error) => {
                self.link.bad_messages += 1;
                self.stream.fail(format!("message dropped: {error}"));
            }
        }
        Ok(true)
    }

    /// Asks for what is missing before the held message; without anyone to ask, accepts the loss.
    fn fill(&mut self, hub: &Hub, held: Frames, lost_before: u64, over_at: Instant) {
        let now = Instant::now();
        let worth_asking = now < over_at && self.silence.until.is_none_or(|until| now >= until);
        let endpoint = self.options.replay.as_deref().filter(|_| worth_asking);
        let payload_max = self.options.ingest.payload_max;
        match endpoint.map(|endpoint| hub.request(endpoint, payload_max, self.stream.request())) {
            Some(Ok(requester)) => {
                self.replay = Some(Replay {
                    requester,
                    held,
                    lost_before,
                    cursor: None,
                    any_reply: false,
                    silent_at: now + self.options.replay_timeout,
                    over_at,
                });
                return;
            }
            Some(Err(error)) => self.stream.fail(format!("no replay: {error}")),
            None => {}
        }
        self.stream.settle(lost_before);
        if let Ok(message) = held.message() {
            let missing = self.stream.live(&message);
            debug_assert!(missing.is_none(), "{missing:?}");
        }
    }

    /// One reply, if there is one.
    fn read_reply(&mut self, hub: &Hub) -> Result<bool, SourceError> {
        let Some(replay) = &mut self.replay else { return Ok(false) };
        if !replay.requester.receive(&mut self.frames)? {
            return Ok(false);
        }
        replay.any_reply = true;
        self.silence = Silence::default();
        let rest = match self.frames.reply() {
            Ok(ReplayReply::Batch(message)) => self.stream.replayed(&message),
            Ok(ReplayReply::End) => self.stream.end_replay(),
            Err(error) => {
                self.link.bad_messages += 1;
                self.stream.fail(format!("replay reply dropped: {error}"));
                Rest::More
            }
        };
        // Only what leads on earns more time.
        let cursor = self.stream.cursor();
        if replay.cursor != cursor {
            replay.cursor = cursor;
            let timeout = self.options.replay_timeout;
            let timeout = if self.stream.may_be_cut() { timeout.min(CUT_TIMEOUT) } else { timeout };
            replay.silent_at = Instant::now() + timeout;
        }
        self.go_on(hub, rest);
        Ok(true)
    }

    fn go_on(&mut self, hub: &Hub, rest: Rest) {
        if rest == Rest::More {
            return;
        }
        let Some(Replay { held, lost_before, over_at, .. }) = self.replay.take() else { return };
        // What of a reply was still to be passed over is gone with its socket.
        self.frames = Frames::new();
        if rest == Rest::AskAgain {
            self.fill(hub, held, lost_before, over_at);
            return;
        }
        self.stream.settle(lost_before);
        self.stream.tell_replayed();
        let lost_before = self.stream.lost_batches();
        let Ok(message) = held.message() else { return };
        // After a restart, what comes before the held message is another gap.
        if self.stream.live(&message).is_some() {
            self.fill(hub, held, lost_before, over_at);
        }
    }

    /// Does what has been due.
    pub(super) fn tick(&mut self, hub: &Hub, now: Instant) {
        if self.link.reconnect_at.is_some_and(|at| now >= at) {
            self.link.reconnect_at = None;
            if let Err(error) = self.subscriber.reconnect(&self.options.endpoint) {
                self.stream.fail(error.to_string());
            }
        }
        self.end_silent_replay(hub, now);
    }

    fn end_silent_replay(&mut self, hub: &Hub, now: Instant) {
        let Some(replay) = &self.replay else { return };
        if now < replay.silent_at.min(replay.over_at) {
            return;
        }
        if !replay.any_reply {
            let back_off = (self.silence.back_off * 2).clamp(SILENCE_BACK_OFF, SILENCE_BACK_OFF_MAX);
            self.silence = Silence { until: Some(now + back_off), back_off };
        }
        let is_over = now >= replay.over_at;
        let rest = if is_over { Rest::Done } else { self.stream.end_replay() };
        if rest == Rest::Done {
            self.stream.fail("the replay is given up: nothing new for too long".to_owned());
        }
        self.go_on(hub, rest);
        self.post();
    }

    /// Notes connections made and lost.
    pub(super) fn read_monitor(&mut self) {
        while let Some(change) = self.monitor.next() {
            match change {
                Change::Connected => {
                    self.link.connects += 1;
                    self.link.connections += 1;
                    self.link.reconnect_at = None;
                    // Another publisher may answer.
                    self.silence = Silence::default();
                    self.stream.journal().info(format_args!("connected"));
                }
                Change::Lost => self.lost(),
                Change::Retrying => self.link.reconnect_at = None,
            }
        }
        self.post();
    }

    fn lost(&mut self) {
        if !binds(&self.options.endpoint) {
            self.link.reconnect_at = Some(Instant::now() + RECONNECT_AFTER);
        }
        if self.link.connections == 0 {
            self.stream.fail("whoever is at the endpoint does not speak ZeroMQ's protocol".to_owned());
            return;
        }
        self.link.connections -= 1;
        self.link.disconnects += 1;
        self.link.heard = false;
        if self.options.topic.is_empty() {
            self.topic = None;
        }
        self.stream.journal().warn(format_args!("connection lost"));
    }

    fn state(&self) -> State {
        match &self.link {
            _ if self.replay.is_some() => State::Replaying,
            link if link.connections > 0 || link.heard => State::Live,
            link if link.connects == 0 => State::Connecting,
            _ => State::Disconnected,
        }
    }

    fn post(&self) {
        self.board.post(|status| {
            status.state = self.state();
            status.connects = self.link.connects;
            status.disconnects = self.link.disconnects;
            status.bad_messages = self.link.bad_messages;
            status.foreign_messages = self.link.foreign_messages;
            self.stream.post(status);
        });
    }

    /// What can be said at once.
    pub(super) fn glance(&self) -> Glance {
        self.stream.glance()
    }

    /// Sums up once all that was applied is visible.
    pub(super) fn report(&mut self) -> Report {
        let status = self.board.read();
        self.stream.report(status)
    }

    /// Gives up what is still missing, so that every message received is accounted for.
    pub(super) fn finish(&mut self) {
        if let Some(Replay { held, lost_before, .. }) = self.replay.take() {
            self.stream.settle(lost_before);
            if let Ok(message) = held.message() {
                let lost_before = self.stream.lost_batches();
                if self.stream.live(&message).is_some() {
                    self.stream.settle(lost_before);
                    self.stream.live(&message);
                }
            }
        }
        self.post();
    }

    /// Nothing more will be posted.
    pub(super) fn leave(&self) {
        self.board.post(|status| status.state = State::Stopped);
    }
}

/// Without a given topic the first one counts: numbers of two streams must never mix.
fn is_ours(topic: &mut Option<Vec<u8>>, message: &Message<'_>) -> bool {
    match topic {
        Some(topic) => topic == message.topic,
        None if message.topic == LOAD_TOPIC || message.topic.len() > TOPIC_BYTES_MAX => false,
        None => {
            *topic = Some(message.topic.to_vec());
            true
        }
    }
}

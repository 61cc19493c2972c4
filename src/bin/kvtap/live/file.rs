//! The configuration file. Every value is checked as it is read, so that a mistake is told with its line and key.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _};
use toml::Spanned;

use kvtap::server::PeerUrl;

use super::args::{Spec, read_level};
use super::limits::Limits;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) listen: Option<SocketAddr>,
    pub(super) shards: Option<u8>,
    pub(super) listeners: Option<u8>,
    pub(super) log: Option<log::LevelFilter>,
    pub(super) peers: Vec<PeerUrl>,
    pub(super) limits: Limits,
    pub(super) sources: Vec<Spec>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    listen: Option<SocketAddr>,
    shards: Option<Threads>,
    listeners: Option<Threads>,
    log: Option<Level>,
    #[serde(default)]
    peers: Vec<Peer>,
    #[serde(default)]
    limits: Limits,
    #[serde(default, rename = "source")]
    sources: Vec<Spanned<Source>>,
}

/// Keys are those of a SPEC.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    endpoint: String,
    worker: Option<Value<0>>,
    dp_rank: Option<Value<1>>,
    ranks: Option<Value<2>>,
    replay: Option<String>,
    block_size: Option<Value<3>>,
    model: Option<String>,
    group: Option<String>,
    topic: Option<String>,
    copies: Option<Value<4>>,
    digest: Option<Value<5>>,
}

/// Options whose values a SPEC checks; a `Value` holds one that has been.
const KEYS: [&str; 6] = ["worker", "dp_rank", "ranks", "block_size", "copies", "digest"];

#[derive(Debug)]
struct Value<const KEY: usize>(String);

impl<'de, const KEY: usize> Deserialize<'de> for Value<KEY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let text = value.as_integer().map(|number| number.to_string());
        let text = text.or_else(|| value.as_str().map(str::to_owned)).ok_or_else(|| {
            D::Error::custom(format_args!("a number or a word, not a {}", value.type_str()))
        })?;
        // The endpoint does not matter yet.
        Spec::new("").set(KEYS[KEY], &text).map_err(D::Error::custom)?;
        Ok(Self(text))
    }
}

#[derive(Debug)]
struct Level(log::LevelFilter);

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_level(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Debug)]
struct Peer(PeerUrl);

impl<'de> Deserialize<'de> for Peer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// 1 to 64.
#[derive(Debug)]
struct Threads(u8);

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let threads = u8::try_from(number).ok().filter(|threads| (1..=64).contains(threads));
        threads.map(Self).ok_or_else(|| D::Error::custom(format_args!("must be 1 to 64, not {number}")))
    }
}

impl Source {
    fn spec(self) -> Result<Spec, String> {
        let mut spec = Spec::new(&self.endpoint);
        let options = [
            ("worker", self.worker.map(|value| value.0)),
            ("dp_rank", self.dp_rank.map(|value| value.0)),
            ("ranks", self.ranks.map(|value| value.0)),
            ("block_size", self.block_size.map(|value| value.0)),
            ("copies", self.copies.map(|value| value.0)),
            ("digest", self.digest.map(|value| value.0)),
            ("replay", self.replay),
            ("model", self.model),
            ("group", self.group),
            ("topic", self.topic),
        ];
        for (key, value) in options {
            value.map_or(Ok(()), |value| spec.set(key, &value))?;
        }
        spec.check()?;
        Ok(spec)
    }
}

/// Settings that cannot be used; displays as one sentence, with file, line and key if they are a file's.
#[derive(Debug)]
pub(crate) struct FileError(String);

impl FileError {
    pub(super) fn new(sentence: &str) -> Self {
        Self(sentence.to_owned())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileError {}

/// Reads and checks a file.
pub(super) fn read(path: &Path) -> Result<Settings, FileError> {
    let text = fs::read_to_string(path).map_err(|error| FileError(format!("{}: {error}", path.display())))?;
    parse(&text).map_err(|(offset, sentence)| {
        let line = text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1;
        FileError(format!("{}, line {line}: {sentence}", path.display()))
    })
}

/// A mistake is given as where it is in the text, and a sentence.
fn parse(text: &str) -> Result<Settings, (usize, String)> {
    let mistake = |key: &str, error: &toml::de::Error| {
        let words: Vec<_> = error.message().split_whitespace().collect();
        let message = words.join(" ");
        let sentence = if key.is_empty() { message } else { format!("{key}: {message}") };
        (error.span().map_or(0, |span| span.start), sentence)
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| mistake("", &error))?;
    let document: Document = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        // `Spanned` is a key of its own to serde.
        let key = error.path().to_string().replace(".$__serde_spanned_private_value", "");
        mistake(key.trim_start_matches('.').trim_end_matches(".?"), error.inner())
    })?;
    let mut sources = Vec::with_capacity(document.sources.len());
    for (number, source) in document.sources.into_iter().enumerate() {
        let start = source.span().start;
        let spec = source.into_inner().spec();
        sources.push(spec.map_err(|sentence| (start, format!("source[{number}]: {sentence}")))?);
    }
    Ok(Settings {
        listen: document.listen,
        shards: document.shards.map(|threads| threads.0),
        listeners: document.listeners.map(|threads| threads.0),
        log: document.log.map(|level| level.0),
        peers: document.peers.into_iter().map(|peer| peer.0).collect(),
        limits: document.limits,
        sources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_flags_say() {
        let text = "listen = '127.0.0.1:8090'\nshards = 4\nlisteners = 2\n\n[[source]]\nendpoint = 'tcp://h:5557'\n\
                    worker = 7\nranks = 2\nblock_size = 32\nmodel = 'm'\ngroup = 'g'\ncopies = 'set'\n";
        let settings = parse(text).unwrap();
        assert_eq!((settings.shards, settings.listeners), (Some(4), Some(2)));
        assert_eq!(settings.listen, Some("127.0.0.1:8090".parse().unwrap()));
        let sources = settings.sources[0].sources(0).unwrap();
        assert_eq!((sources[1].endpoint.as_str(), sources[1].ingest.worker_id), ("tcp://h:5558", 7));
        assert_eq!(settings.sources[0].partition().to_string(), "model=m routing_group=g");
    }

    #[test]
    fn limits_that_are_not_given_are_those_of_the_library() {
        let none = parse("").unwrap().limits.of_sources();
        let library = kvtap::source::SourceLimits::default();
        assert_eq!(format!("{none:?}"), format!("{library:?}"));
        let text = "[limits]\nblocks = 1000\nranks = 8\nmessage_bytes = 2048\nqueued_messages = 10\nreplay_seconds = 2\n\
                    shard_mib = 64\nconnections = 5\nquery_body_bytes = 65536\n";
        let limits = parse(text).unwrap().limits;
        let mut options = kvtap::server::ServiceOptions::default();
        limits.limit(&mut options);
        let sources = options.source_limits;
        assert_eq!((sources.blocks, sources.ranks, sources.message_bytes), (1000, 8, 2048));
        assert_eq!((sources.queued_messages, sources.replay_time.as_secs()), (10, 2));
        assert_eq!(
            (options.shard_bytes, options.connections, options.query_body_bytes),
            (64 << 20, 5, 65_536)
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_key() {
        let source = "[[source]]\nendpoint = 'tcp://h:1'\n";
        for (text, line, part) in [
            ("shards = 65".to_owned(), 1, "shards: must be 1 to 64, not 65"),
            ("shards = 'two'".to_owned(), 1, "shards"),
            ("\nlisten = 'here'".to_owned(), 2, "listen"),
            ("\n\ncolour = 'red'".to_owned(), 3, "colour"),
            ("shards = ".to_owned(), 1, ""),
            ("log = 'loud'".to_owned(), 1, "error, warn, info or debug"),
            ("\npeers = ['http://a:1', 'https://b:1']".to_owned(), 2, "https://b:1"),
            ("[limits]\nblocks = 0".to_owned(), 2, "limits.blocks: must be 1 to 4294967295, not 0"),
            ("[limits]\nblocks = 4294967296".to_owned(), 2, "limits.blocks: must be 1 to 4294967295"),
            ("\n[limits]\n\nranks = 1025".to_owned(), 4, "limits.ranks: must be 1 to 1024, not 1025"),
            ("[limits]\nmessage_bytes = 1023".to_owned(), 2, "limits.message_bytes: must be 1024 to"),
            ("[limits]\nqueued_messages = -1".to_owned(), 2, "limits.queued_messages: must be 1 to"),
            ("[limits]\nreplay_seconds = 0".to_owned(), 2, "limits.replay_seconds: must be 1 to 3600"),
            ("[limits]\nshard_mib = 15".to_owned(), 2, "limits.shard_mib: must be 16 to 8192, not 15"),
            ("[limits]\nconnections = 0".to_owned(), 2, "limits.connections: must be 1 to 100000"),
            ("[limits]\nquery_body_bytes = 1".to_owned(), 2, "limits.query_body_bytes: must be 65536 to"),
            ("[limits]\nconnections = 'many'".to_owned(), 2, "limits.connections"),
            ("[limits]\ncolour = 1".to_owned(), 2, "colour"),
            (format!("{source}block_size = 0"), 3, "block_size must be 1 to 65536, not '0'"),
            (format!("{source}copies = 'two'"), 3, "count or set"),
            (format!("{source}worker = -1"), 3, "source[0].worker"),
            (format!("{source}colour = 'red'"), 3, "colour"),
            (format!("{source}\n{}", "[[source]]\nworker = 1\n"), 4, "endpoint"),
            ("\n[[source]]\nendpoint = 'nowhere'".to_owned(), 2, "source[0]"),
        ] {
            let (offset, sentence) = parse(&text).unwrap_err();
            let found = text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1;
            assert!(sentence.contains(part) && !sentence.contains('\n'), "{text}: {sentence}");
            assert_eq!(found, line, "{text}: {sentence}");
        }
    }
}

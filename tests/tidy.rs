//! The house rules that a compiler does not check: borders between rooms, lengths, where `unsafe` may stand, labels, and
//! that the README names what exists.

use std::fs;
use std::path::{Path, PathBuf};

use kvtap::Reason;

/// What each room may use, in the direction data flows.
const MAY_USE: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("hash", &["ids"]),
    ("frames", &["ids"]),
    ("sequence", &[]),
    ("kvcap", &["ids"]),
    ("wire", &["ids"]),
    ("policy", &["ids", "hash", "wire"]),
    ("observe", &["ids", "wire", "policy"]),
    ("counters", &["ids", "wire", "policy", "observe"]),
    ("seen", &["wire"]),
    ("judge", &["ids", "wire", "policy", "observe", "counters", "seen"]),
    ("placement", &["rare", "ids", "hash", "wire", "policy", "observe", "counters", "judge", "prefetch"]),
    ("channel", &["placement"]),
    ("prefetch", &[]),
    ("sync", &[]),
    ("rare", &[]),
    ("epoch", &["sync"]),
    ("slots", &["ids", "placement", "sync"]),
    ("shard", &["rare", "ids", "hash", "placement", "channel", "slots", "epoch", "prefetch", "sync"]),
    ("query", &["ids", "hash", "placement", "shard", "slots", "epoch", "sync"]),
    ("prefixes", &["ids", "hash", "observe"]),
    ("feed", &["ids", "judge", "ingest"]),
    ("held", &["ids", "hash", "policy", "placement"]),
    ("config", &["wire"]),
    (
        "normalizer",
        &["ids", "hash", "wire", "policy", "placement", "judge", "counters", "seen", "config", "observe"],
    ),
    (
        "ingest",
        &[
            "ids",
            "hash",
            "wire",
            "policy",
            "placement",
            "judge",
            "counters",
            "seen",
            "observe",
            "config",
            "channel",
            "shard",
            "slots",
            "held",
        ],
    ),
    ("engine", &["hash", "channel", "shard", "slots", "epoch", "query", "config", "ingest"]),
    // As an embedder: the public interface.
    ("source", &["wire"]),
    // As an embedder too.
    ("server", &["source", "wire"]),
    ("mock", &["ids", "hash"]),
];

/// Directories and files in which `unsafe` may stand; each says why on its `mod` line.
const UNSAFE_ROOMS: &[&str] = &["src/wire/simd", "src/shard/memory.rs", "src/prefetch.rs"];

const LINES_MAX: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a directory of the repository, with its text.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path.strip_prefix(root()).expect("ours").to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// The room of a file in `src`: its directory or its stem.
fn room(path: &Path) -> String {
    let first = path.strip_prefix("src").expect("in src").components().next().expect("a file");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

#[test]
fn rooms_use_only_what_is_upstream_of_them() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src") {
        let room = room(&path);
        if room == "lib" || room == "bin" {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{}: a room without a border", path.display()));
            continue;
        };
        for (number, line) in
            text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for used in line.split("crate::").skip(1) {
                let used: String = used.chars().take_while(|&c| c.is_ascii_lowercase() || c == '_').collect();
                if !used.is_empty() && used != room && !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{}:{}: {room} uses {used}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bordered_room_exists() {
    for (room, _) in MAY_USE {
        let exists =
            root().join(format!("src/{room}.rs")).exists() || root().join(format!("src/{room}")).exists();
        assert!(exists, "{room}");
    }
}

#[test]
fn files_say_what_they_are_and_stay_short() {
    let mut wrong = Vec::new();
    for (path, text) in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        if !text.starts_with("//!") {
            wrong.push(format!("{}: does not begin with what it is", path.display()));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_stands_only_in_its_rooms() {
    for (path, text) in sources("src") {
        let allowed = UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
        let has = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
        });
        assert!(allowed || !has, "{}", path.display());
    }
}

#[test]
fn the_transport_is_known_in_one_file() {
    for (path, text) in sources("src").into_iter().filter(|(path, _)| !path.starts_with("src/mock")) {
        assert!(path.ends_with("source/socket.rs") || !text.contains("zmq::"), "{}", path.display());
    }
}

#[test]
fn reason_labels_are_stable_snake_case_and_distinct() {
    let mut labels: Vec<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
    for label in &labels {
        assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{label}");
    }
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), Reason::ALL.len());
}

#[test]
fn the_readme_names_every_room_and_reason() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    for (room, _) in MAY_USE {
        assert!(readme.contains(&format!("`{room}`")), "room {room}");
    }
    for reason in Reason::ALL {
        assert!(readme.contains(reason.label()), "reason {}", reason.label());
    }
}

/// A row of SECURITY.md's table, and the constant it tells of.
const BOUNDS: &[(&str, &str, &str)] = &[
    ("| `blocks` | 16,777,216 |", "src/config.rs", "blocks_max: 1 << 24,"),
    ("| `ranks` | 1,024 |", "src/config.rs", "const RANKS_MAX: u32 = 1024;"),
    ("ranks of one index | | 4,096 |", "src/placement/record.rs", "const COUNT: usize = 8192;"),
    ("| `message_bytes` | 67,108,864 |", "src/source/options.rs", "message_bytes: 64 << 20,"),
    ("| `queued_messages` | 1,000 |", "src/source/options.rs", "queued_messages: 1000,"),
    ("| | 20,000 |", "src/source/socket.rs", "const REPLIES_MAX: i32 = 20_000;"),
    ("| `replay_seconds` | 60 |", "src/source/options.rs", "replay_time: Duration::from_secs(60),"),
    ("says nothing new | | 5 |", "src/source/options.rs", "replay_timeout: Duration::from_secs(5),"),
    ("have their turn | | 256, 4 |", "src/source/live.rs", "const BURST: usize = 256;"),
    ("have their turn | | 256, 4 |", "src/source/live.rs", "const BURST_BYTES: usize = 4 << 20;"),
    ("a thousand are passed over", "src/source/socket.rs", "const FRAMES_AT_ONCE: usize = 1000;"),
    ("bytes of a topic | | 1,024 |", "src/source/options.rs", "const TOPIC_BYTES_MAX: usize = 1024;"),
    ("groups learned of a rank | | 1,024 |", "src/policy/groups.rs", "const GROUPS_MAX: usize = 1024;"),
    ("bytes of each | | 64, 64 |", "src/seen.rs", "const DRIFTS_MAX: usize = 64;"),
    ("bytes of each | | 64, 64 |", "src/seen.rs", "const NAME_BYTES_MAX: usize = 64;"),
    ("shapes of events of a source | | 32 |", "src/seen.rs", "const SHAPES_MAX: usize = 32;"),
    ("nesting of a payload | | 64 |", "src/wire/skip.rs", "const DEPTH_MAX: usize = 64;"),
    ("| 1 a reason, 64 |", "src/source/examples.rs", "const TEXT_BYTES_MAX: usize = 64;"),
    ("in 10 seconds | | 20 |", "src/source/journal.rs", "const LINES_MAX: u32 = 20;"),
    ("in 10 seconds | | 20 |", "src/source/journal.rs", "const WINDOW: Duration = Duration::from_secs(10);"),
    ("| `shard_mib` | 8,192 |", "src/config.rs", "= 16 << 20..=8 << 30;"),
    ("on their way to a shard | | 64 |", "src/channel.rs", "const CHANNEL_BATCHES: usize = 64;"),
    (
        "sources of a listener thread | | 250 |",
        "src/source/listeners.rs",
        "const SOURCES_PER_THREAD: usize = 250;",
    ),
    ("routing group's | | 256 |", "src/server/partition.rs", "const NAME_BYTES_MAX: usize = 256;"),
    ("bytes of an endpoint | | 1,024 |", "src/source/options.rs", "const ENDPOINT_BYTES_MAX: usize = 1024;"),
    ("| `connections` | 1,024 |", "src/server/service.rs", "connections: 1024,"),
    (
        "may be silent | | 120 |",
        "src/server/connections.rs",
        "const SILENCE_MAX: Duration = Duration::from_secs(120);",
    ),
    ("| `query_body_bytes` | 16,777,216 |", "src/server/service.rs", "query_body_bytes: 16 << 20,"),
    ("any other body | | 65,536 |", "src/server/http.rs", "const BODY_BYTES_MAX: usize = 64 << 10;"),
    ("in memory | | 32 |", "src/server/body.rs", "const LONG_BODIES_MAX: usize = 32;"),
    (
        "takes to arrive | | 30 |",
        "src/server/body.rs",
        "const ARRIVAL_MAX: Duration = Duration::from_secs(30);",
    ),
    ("| peers | | 64 |", "src/server/peers.rs", "const PEERS_MAX: usize = 64;"),
    ("it may take | | 536,870,912, 60 |", "src/server/peers.rs", "const DUMP_BYTES_MAX: u64 = 1 << 29;"),
    (
        "it may take | | 536,870,912, 60 |",
        "src/server/peers.rs",
        "const FETCH_TIME: Duration = Duration::from_secs(60);",
    ),
    ("sources of a dump | | 64, 4,096 |", "src/server/restore.rs", "const PARTITIONS_MAX: usize = 64;"),
    ("sources of a dump | | 64, 4,096 |", "src/server/restore.rs", "const SOURCES_MAX: usize = 4096;"),
];

#[test]
fn security_md_tells_the_bounds_that_hold() {
    let security = fs::read_to_string(root().join("SECURITY.md")).expect("a SECURITY.md");
    for (row, file, constant) in BOUNDS {
        assert!(security.contains(row), "SECURITY.md lacks '{row}'");
        let text = fs::read_to_string(root().join(file)).expect("a file");
        assert!(text.contains(constant), "{file} has no '{constant}' any more; SECURITY.md tells of it");
    }
    let keys = fs::read_to_string(root().join("src/bin/kvtap/live/limits.rs")).expect("a file");
    let keys = keys.lines().filter_map(|line| line.split_once(": Option<Within")).map(|(key, _)| key.trim());
    for key in keys {
        assert!(security.contains(&format!("| `{key}` |")), "SECURITY.md lacks {key}");
    }
}

#[test]
fn every_deliberate_bug_has_the_one_place_it_names() {
    let bugs = fs::read_to_string(root().join("fuzz/mutants.txt")).expect("the list");
    let edits: Vec<&str> = bugs.split("\n-- ").skip(1).collect();
    assert!(edits.len() >= 10, "they are read otherwise than they are written");
    for edit in edits {
        let (file, edit) = edit.split_once('\n').expect("a file");
        let (right, _) = edit.split_once("\n=>\n").expect("what is right, and what is wrong");
        let text = fs::read_to_string(root().join(file)).expect("the file");
        assert_eq!(text.matches(right).count(), 1, "{file}: {right}");
    }
}

#[test]
fn the_core_stays_small() {
    let manifest = root().join("Cargo.toml");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = std::process::Command::new(cargo)
        .args(["tree", "--offline", "--no-default-features", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo tree");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    let mut crates: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    crates.sort_unstable();
    crates.dedup();
    assert!(crates.len() <= 45, "{crates:?}");
    for banned in ["tokio", "clap", "serde_json", "zeromq", "zmq", "axum", "hyper"] {
        assert!(!crates.contains(&banned), "{banned}");
    }
}

//! `kvtap serve --listen` as scripts see it: where it listens, what it answers, how it ends, and what is wrong with a
//! configuration.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use support::publisher::{Publisher, TCP, ipc};
use support::source::{payload, store};

fn start(args: &[&str], environment: &[(&str, &str)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kvtap"))
        .arg("serve")
        .args(args)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads stderr until it says where it listens.
fn address(process: &mut Child) -> String {
    let lines = BufReader::new(process.stderr.as_mut().unwrap()).lines();
    let mut listening =
        lines.map(Result::unwrap).filter_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
    listening.next().expect("it listens")
}

/// Ends it by SIGTERM. Gives its status and what it printed.
fn end(mut process: Child) -> (Option<i32>, Value) {
    let kill = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let mut printed = String::new();
    process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    (process.wait().unwrap().code(), serde_json::from_str(&printed).unwrap())
}

fn get(url: &str) -> Value {
    ureq::get(url).call().unwrap().body_mut().read_json().unwrap()
}

/// A file in the temporary directory, gone when dropped.
struct File(String);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kvtap-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path.to_str().unwrap().to_owned())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_source_of_the_command_line_is_served_until_sigterm() {
    let publisher = Publisher::bind(TCP, &ipc());
    let spec = format!("{},worker=7,block_size=4,model=m", publisher.endpoint);
    let mut process = start(&["--source", &spec, "--listen", "127.0.0.1:0", "--json"], &[]);
    let url = address(&mut process);
    publisher.wait_for_subscriber();
    publisher.send(0, &payload([store(&[1, 2], None, 1..=8)], 0));
    let body = serde_json::json!({"token_ids": [1, 2, 3, 4, 5, 6, 7, 8], "model_name": "m"});
    loop {
        let answer =
            ureq::post(format!("{url}/query")).send_json(&body).unwrap().body_mut().read_json::<Value>();
        if answer.unwrap()["scores"]["7"]["0"] == 8 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(get(&format!("{url}/ready"))["status"], "ok");
    let (status, summary) = end(process);
    assert_eq!(status, Some(0));
    assert_eq!((&summary["batches"], &summary["index"]["entries"]), (&1.into(), &2.into()));
    assert_eq!(summary["sources"][0]["worker"], 7);
}

#[test]
fn flags_count_before_the_environment_and_that_before_the_file() {
    let (first, second, third) = (ipc(), ipc(), ipc());
    let file = File::new(
        "order",
        &format!("listen = '127.0.0.1:0'\n[[source]]\nendpoint = '{first}'\nworker = 1\n"),
    );
    let served = |args: &[&str], environment: &[(&str, &str)]| {
        let mut process = start(&[args, &["--config", &file.0, "--json"]].concat(), environment);
        let sources = get(&format!("{}/sources", address(&mut process)));
        assert_eq!(end(process).0, Some(0));
        sources.as_array().unwrap().iter().map(|source| source["endpoint"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(served(&[], &[]), [first.as_str()]);
    let both = format!("{second},worker=1 {third},worker=2");
    assert_eq!(served(&[], &[("KVTAP_SOURCES", &both)]), [second.as_str(), third.as_str()]);
    assert_eq!(served(&["--source", &third], &[("KVTAP_SOURCES", &second)]), [third.as_str()]);
}

#[test]
fn limits_of_the_file_count_with_the_service_and_without() {
    let file = File::new("limits", "[limits]\nblocks = 2\nranks = 1\n");
    for listen in [&["--listen", "127.0.0.1:0"][..], &[]] {
        let publisher = Publisher::bind(TCP, &ipc());
        let spec = format!("{},worker=7,block_size=4", publisher.endpoint);
        let common = ["--source", &spec, "--config", &file.0, "--json", "--for", "600"];
        let mut process = start(&[&common, listen].concat(), &[]);
        publisher.wait_for_subscriber();
        publisher.send(0, &payload([store(&[1, 2, 3], None, 1..=12)], 0));
        publisher.send(1, &payload([store(&[4], None, 1..=4)], 1));
        let lines = BufReader::new(process.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
        // Told every two seconds, when something has changed.
        assert!(lines.into_iter().any(|line| line.contains("; 2 batches, 2 blocks placed;")));
        let (status, summary) = end(process);
        assert_eq!(status, Some(0));
        assert_eq!(summary["filtered"], serde_json::json!({"too_many_blocks": 1, "too_many_ranks": 1}));
    }
}

#[test]
fn what_is_wrong_with_a_configuration_is_told_with_status_2() {
    let refused = |args: &[&str], environment: &[(&str, &str)], parts: &[&str]| {
        let output = start(args, environment).wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.lines().count() == 1 && parts.iter().all(|part| stderr.contains(part)),
            "{parts:?}: {stderr}"
        );
    };
    let file = File::new("wrong", "shards = 2\n\n[[source]]\nendpoint = 'ipc:///tmp/x'\nblock_size = 0\n");
    refused(&["--config", &file.0], &[], &[&file.0, "line 5", "source[0].block_size", "1 to 65536"]);
    let file = File::new("unknown", "shards = 2\ncolour = 'red'\n");
    refused(&["--config", &file.0], &[], &[&file.0, "line 2", "colour"]);
    let file = File::new("limit", "[limits]\nblocks = 10\nranks = 2000\n");
    refused(&["--config", &file.0], &[], &[&file.0, "line 3", "limits.ranks", "1 to 1024, not 2000"]);
    refused(&["--config", "/nowhere.toml"], &[], &["/nowhere.toml"]);
    refused(&[], &[("KVTAP_LISTEN", "here")], &["here", "listen"]);
    refused(&[], &[("KVTAP_SHARDS", "65")], &["65"]);
    refused(&["--peer", "https://h:1", "--listen", "127.0.0.1:0"], &[], &["https://h:1", "http://HOST:PORT"]);
    refused(&[], &[("KVTAP_PEERS", "http://h:1")], &["--listen"]);
    refused(&["--log", "loud"], &[], &["error, warn, info or debug"]);
    let file = File::new("peer", "peers = ['http://h:1', 'h:1']\n");
    refused(&["--config", &file.0], &[], &[&file.0, "line 1", "peers[1]", "http://HOST:PORT"]);
    let (one, other) = ("ipc:///tmp/kvtap-none,block_size=16", "ipc:///tmp/kvtap-none,block_size=32");
    let listen = ["--listen", "127.0.0.1:0", "--source", one, "--source", other];
    refused(&listen, &[], &["block_size mismatch"]);
}

#[test]
fn peers_come_from_flags_else_the_environment_else_the_file() {
    let peers = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"];
    let [first, second, third] = peers;
    let file = File::new("peers", &format!("listen = '127.0.0.1:0'\npeers = ['{first}', '{second}']\n"));
    let known = |args: &[&str], environment: &[(&str, &str)]| {
        let mut process = start(&[args, &["--config", &file.0, "--json"]].concat(), environment);
        let peers = get(&format!("{}/peers", address(&mut process)));
        assert_eq!(end(process).0, Some(0));
        peers
    };
    assert_eq!(known(&[], &[]), serde_json::json!([first, second]));
    let both = format!("{third} {first}");
    assert_eq!(known(&[], &[("KVTAP_PEERS", &both)]), serde_json::json!([third, first]));
    let flags = ["--peer", second, "--peer", third];
    assert_eq!(known(&flags, &[("KVTAP_PEERS", first)]), serde_json::json!([second, third]));
}

#[test]
fn requests_are_logged_at_debug_level_alone() {
    let logged = |environment: &[(&str, &str)]| {
        let mut process = start(&["--listen", "127.0.0.1:0", "--json"], environment);
        let url = address(&mut process);
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let body = serde_json::json!({"token_ids": [1], "model_name": "m\nfake"}).to_string();
        let query = agent.post(format!("{url}/query")).content_type("application/json");
        assert_eq!(query.send(&body).unwrap().status().as_u16(), 404);
        assert_eq!(agent.get(format!("{url}/workers")).call().unwrap().status().as_u16(), 200);
        let mut stderr = process.stderr.take().unwrap();
        assert_eq!(end(process).0, Some(0));
        let mut lines = String::new();
        stderr.read_to_string(&mut lines).unwrap();
        (lines, body.len())
    };
    let (lines, bytes) = logged(&[("KVTAP_LOG", "debug")]);
    let query = format!("POST /query model=m\\nfake status=404 bytes={bytes} us=");
    assert!(lines.lines().any(|line| line.starts_with(&query)), "{query} in {lines}");
    assert!(lines.contains("GET /workers model=- status=200 bytes=- us="), "{lines}");
    assert!(!logged(&[]).0.contains("/query"));
}

#[test]
fn an_address_that_is_taken_fails_with_status_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = start(&["--listen", &address], &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("cannot listen on {address}")), "{stderr}");
}

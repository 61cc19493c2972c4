//! What a person sees of sources that live, fail and lie. Needs Debian's `chromium` and `chromium-driver`:
//!
//! ```sh
//! cargo test --manifest-path tests/browser/Cargo.toml --target-dir target
//! ```
//!
//! With `KVTAP_PAGE_PNG=$PWD/dashboards/page.png` that writes the README's picture too.

#[allow(dead_code, reason = "made for other tests too")]
#[path = "../../support/publisher.rs"]
mod publisher;
#[allow(dead_code, reason = "made for other tests too")]
#[path = "../../support/source.rs"]
mod source;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kvtap::mock::{self, Batch, Encoding, Fate, MockEngine, MockOptions, PublisherOptions, Scenario};
use kvtap::server::{Server, Service, ServiceOptions};
use kvtap_browser::{Browser, PATIENCE};
use serde_json::{Value, json};

use publisher::{Publisher, TCP, ipc};
use source::{Event, list, pack, store};

/// Dynamo's worker ids are this long: more than a number of JavaScript holds.
const LONG_ID: u64 = 7_587_888_261_534_920_193;

/// A service without sources.
fn service() -> (Arc<Service>, Server) {
    let service = Arc::new(Service::new(ServiceOptions::default()).unwrap());
    let server = Server::start(Arc::clone(&service), "127.0.0.1:0").unwrap();
    (service, server)
}

fn register(server: &Server, endpoint: &str, instance_id: u64, (model_name, block_size): (&str, u32)) {
    let body = json!({
        "instance_id": instance_id, "endpoint": endpoint, "model_name": model_name, "block_size": block_size,
    });
    let answer = ureq::post(format!("http://{}/register", server.address())).send_json(body).unwrap();
    assert_eq!(answer.status().as_u16(), 201);
}

/// Registers a publisher and waits until it is subscribed to.
fn followed(server: &Server, instance_id: u64, model_name: &str) -> Publisher {
    let publisher = Publisher::bind(TCP, TCP);
    register(server, &publisher.endpoint, instance_id, (model_name, 4));
    publisher.wait_for_subscriber();
    publisher
}

fn get(server: &Server, path: &str) -> Value {
    ureq::get(format!("http://{}{path}", server.address())).call().unwrap().body_mut().read_json().unwrap()
}

/// A payload of this moment.
fn payload(events: impl IntoIterator<Item = Event>, rank: u32) -> Vec<u8> {
    made_ago(0.0, events, rank)
}

fn made_ago(seconds: f64, events: impl IntoIterator<Item = Event>, rank: u32) -> Vec<u8> {
    let events = rmpv::Value::Array(events.into_iter().map(Into::into).collect());
    pack(&list![now() - seconds, events, rank])
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Tries again until something is so.
fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn at(event: Event, medium: &str) -> Event {
    event.set("medium", medium)
}

#[test]
fn trouble_comes_first_and_says_what_it_is() {
    let (_service, server) = service();
    let healthy = followed(&server, LONG_ID, "m");
    let lossy = followed(&server, 2, "m");
    let foreign = followed(&server, 3, "m");
    register(&server, &ipc(), 4, ("m", 4));
    healthy.send(0, &payload([store(&[1, 2], None, 1..=8)], 0));
    lossy.send(0, &payload([store(&[1], None, 1..=4)], 0));
    lossy.send(3, &payload([store(&[2], Some(1), 5..=8)], 0));
    foreign.send(0, &payload([store(&[1], None, 1..=8).set("block_size", 8)], 0));

    let browser = Browser::open(server.address(), (1280, 900));
    browser.until(
        "rows('sources').length === 4 && rows('sources')[3][7] === '2' && rows('sources')[0][10] === '2' && rows('reasons').length === 1",
    );
    let rows = browser.rows("sources");
    let states: Vec<_> = rows.iter().map(|row| (row[0].as_str(), row[2].as_str())).collect();
    let healthy_name = format!("{LONG_ID} / 0");
    let wanted = [
        ("✖ degraded", "2 / 0"),
        ("✖ connecting", "4 / 0"),
        ("▲ block size", "3 / 0"),
        ("● live", &healthy_name),
    ];
    assert_eq!(states, wanted);
    assert!(rows[0][1].starts_with("2 batches lost: it has no replay endpoint."), "{}", rows[0][1]);
    assert_eq!(rows[2][1], "It publishes blocks of 8 tokens; this index takes 4.");
    assert_eq!(rows[3][1], "");
    let verdict = browser.value("document.getElementById('verdict').textContent");
    assert_eq!(verdict, "✖ 3 of 4 sources in trouble: 1 degraded, 1 connecting, 1 block size");
    let reasons = browser.rows("reasons");
    assert_eq!((reasons[0][0].as_str(), reasons[0][2].as_str()), ("block_size_mismatch", "1 event"));
    assert!(reasons[0][5].starts_with("worker 3/0, batch 0: stored, 1 block"), "{}", reasons[0][5]);

    // Rates, and what begins while somebody looks.
    let mut sequence = 0;
    let mut send = || {
        sequence += 1;
        healthy.send(sequence, &payload([store(&[1], None, 1..=4)], 0));
        foreign.send(sequence, &payload([at(store(&[9], None, 1..=4), "TAPE")], 0));
    };
    let is_rising = "Number(rows('sources').at(-1)[6].replace(',', '')) > 0
        && rows('reasons').some(row => row[0] === 'unknown_medium' && Number(row[3].replace(',', '')) > 0)";
    wait_until(
        || {
            send();
            browser.value(is_rising) == true
        },
        "rates",
    );
    browser.until("rows('sources')[2][0] === '▲ block size, not placed'");
    let reasons = browser.rows("reasons");
    let medium = reasons.iter().find(|row| row[0] == "unknown_medium").unwrap();
    assert!(medium[5].contains("medium TAPE"), "{medium:?}");
    browser.until("/^quiet /.test(rows('sources').at(-1)[5])");
    browser.check_quiet();
}

#[test]
fn what_happens_is_shown_without_a_reload() {
    let (_service, server) = service();
    let healthy = followed(&server, LONG_ID, "m");
    let slow = followed(&server, 2, "m");
    let browser = Browser::open(server.address(), (1280, 900));
    browser.until("rows('sources').length === 2 && rows('sources').every(row => row[5] === 'nothing yet')");

    // One whose batches come late is behind, not quiet.
    let mut sequence = 0;
    let is_behind = "rows('sources').some(row => row[0] === '▲ behind')";
    let mut send_late = || {
        slow.send(sequence, &made_ago(600.0, [store(&[1], None, 1..=4)], 0));
        sequence += 1;
    };
    wait_until(
        || {
            send_late();
            browser.value(is_behind) == true
        },
        "behind",
    );

    // One that goes down moves up, with the next look.
    drop(healthy);
    wait_until(|| get(&server, "/sources").to_string().contains("disconnected"), "disconnected");
    let looks = "performance.getEntriesByType('resource').filter(it => it.name.endsWith('/sources')).length";
    let before = browser.value(looks).as_u64().unwrap();
    browser.until("rows('sources').some(row => row[0].startsWith('✖ disconnected'))");
    let after = browser.value(looks).as_u64().unwrap();
    assert!(after <= before + 2, "one may have been under way, the next shows it: {before} {after}");
    let row = &browser.rows("sources")[0];
    assert_eq!(row[2], format!("{LONG_ID} / 0"));
    assert!(row[1].starts_with("The connection is lost"), "{row:?}");
    browser.check_quiet();
}

#[test]
fn the_box_shows_the_depths_that_the_index_gives() {
    let (_service, server) = service();
    let other = followed(&server, 1, "a");
    let publisher = followed(&server, LONG_ID, "m");
    let second = followed(&server, 8, "m");
    other.send(0, &payload([store(&[1], None, 1..=4)], 0));
    let events = [
        store(&[1, 2], None, 1..=8),
        at(store(&[3], Some(2), 9..=12), "CPU"),
        at(store(&[4], Some(3), 13..=16), "DISK"),
        at(store(&[5], Some(4), 17..=20), "EXTERNAL"),
        store(&[11], None, 1..=4).set("lora_name", "ada"),
    ];
    publisher.send(0, &payload(events, 0));
    second.send(0, &payload([store(&[1], None, 1..=4)], 3));
    let entries = |server: &Server| {
        let sources = get(server, "/sources");
        sources.as_array().unwrap().iter().filter_map(|it| it["entries"].as_u64()).sum::<u64>()
    };
    wait_until(|| entries(&server) == 8, "all blocks");
    let body = json!({"model_name": "m", "token_ids": (1..=20).collect::<Vec<_>>(), "depths": true});
    let ask = || {
        let answer = ureq::post(format!("http://{}/query", server.address())).send_json(&body);
        answer.unwrap().body_mut().read_json::<Value>().unwrap()["depths"].clone()
    };
    let wanted = json!({"block_size": 4, "blocks": 5, "matches": [
        {"instance_id": 8, "dp_rank": 3, "device": 1, "host_pinned": 1, "disk": 1, "external": 1},
        {"instance_id": LONG_ID, "dp_rank": 0, "device": 2, "host_pinned": 3, "disk": 4, "external": 5},
    ]});
    wait_until(|| ask() == wanted, "visible");

    let browser = Browser::open(server.address(), (1280, 900));
    browser.until("document.forms[0].elements.partition.options.length === 2");
    browser.run("document.forms[0].elements.partition.value = JSON.stringify(['m', 'default'])");
    let long = [
        &LONG_ID.to_string(),
        "0",
        "2 blocks (8 tokens)",
        "3 blocks (12 tokens)",
        "4 blocks (16 tokens)",
        "5 blocks (20 tokens)",
    ];
    let short =
        ["8", "3", "1 block (4 tokens)", "1 block (4 tokens)", "1 block (4 tokens)", "1 block (4 tokens)"];
    for tokens in [
        "1, 2,3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21".to_owned(),
        json!((1..=21).collect::<Vec<_>>()).to_string(),
    ] {
        browser.ask(&tokens, "");
        assert_eq!(browser.told(), "21 tokens, 5 complete blocks of 4; 2 workers hold the beginning.");
        assert_eq!(browser.rows("matches"), [long, short]);
    }
    browser.ask("1 2 3 4 5 6 7 8", "ada");
    let block = "1 block (4 tokens)";
    assert_eq!(browser.rows("matches"), [[&LONG_ID.to_string(), "0", block, block, block, block]]);
    browser.ask("1 2 3 4", "nobody");
    assert_eq!(browser.rows("matches"), [["Nobody holds its first block."]]);
    browser.ask("1 2 3", "");
    assert_eq!(browser.told(), "3 tokens, 0 complete blocks of 4: too short to match anything.");
    bad_input_gets_a_sentence(&browser);
    browser.until("rows('queries').some(row => row[0] === '/query' && /s$/.test(row[4]))");
    browser.check_quiet();
}

fn bad_input_gets_a_sentence(browser: &Browser) {
    for (tokens, sentence) in [
        ("", "Paste at least one token id."),
        ("1, 2, x3", "“x3” at place 3 is not a token id: ids are whole numbers from 0 to 4,294,967,295."),
        (
            "1 4294967296",
            "“4294967296” at place 2 is not a token id: ids are whole numbers from 0 to 4,294,967,295.",
        ),
        ("-1", "“-1” at place 1 is not a token id: ids are whole numbers from 0 to 4,294,967,295."),
    ] {
        browser.ask(tokens, "");
        assert_eq!(browser.told(), sentence);
        assert_eq!(browser.rows("matches"), Vec::<Vec<String>>::new());
    }
}

#[test]
fn what_others_say_stays_text() {
    let (_service, server) = service();
    let hostile = |name: &str| {
        format!("\"><img src=//192.0.2.1/{name} onerror=\"document.title='owned'\"><script>x</script>\n\\")
    };
    let model = hostile("model");
    let publisher = followed(&server, 7, &model);
    let endpoint = format!("ipc://{}/<img src=x onerror=alert(1)>", std::env::temp_dir().display());
    register(&server, &endpoint, 8, (&model, 4));
    let events = [
        at(store(&[1], None, 1..=4), &hostile("medium")),
        store(&[2], None, 1..=4).set("<img src=x onerror=alert(2)>", 1),
        Event::new("<svg onload=alert(3)>"),
    ];
    publisher.send(0, &payload(events, 0));
    let browser = Browser::open(server.address(), (1280, 900));
    browser.until("rows('sources').length === 2 && rows('drift').length === 2");
    let sources = browser.rows("sources");
    assert_eq!((sources[0][4].as_str(), sources[1][3].as_str()), (endpoint.as_str(), model.as_str()));
    assert_eq!(browser.rows("partitions")[0][0], model);
    let reasons = browser.rows("reasons");
    assert!(
        reasons.iter().any(|row| row[5].contains("medium \"><img src=//192.0.2.1/medium")),
        "{reasons:?}"
    );
    assert!(reasons.iter().any(|row| row[5].contains("<svg onload=alert(3)>")), "{reasons:?}");
    assert!(browser.rows("drift").iter().any(|row| row[0].contains("<img src=x onerror=alert(2)>")));
    let option = browser.value("document.forms[0].elements.partition.options[0].textContent");
    assert_eq!(option, model.as_str());
    browser.ask("1 2 3 4", "");
    assert_eq!(browser.rows("matches")[0][0], "7");
    browser.check_quiet();
    // An error that repeats the name. The browser notes its status.
    let gone = json!(json!([model, "gone"]).to_string());
    browser.run(&format!("document.forms[0].elements.partition.append(new Option('', {gone}, true, true))"));
    browser.ask("1 2 3 4", "");
    let sentence = format!("no indexer for model={model} routing_group=gone");
    assert_eq!(browser.told(), sentence.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(browser.value("document.querySelectorAll('img, svg, script:not([src])').length"), 0);
    assert_ne!(browser.value("document.title"), "owned");
}

#[test]
fn a_service_that_is_gone_is_not_taken_for_a_quiet_one() {
    let (service, server) = service();
    let publisher = followed(&server, 7, "m");
    let browser = Browser::open(server.address(), (1280, 900));
    let hidden = "document.getElementById('outage').hidden";
    browser.until(&format!("rows('sources')[0][0] === '● live' && {hidden}"));
    let address = server.address();
    server.stop();
    browser.until(&format!("!{hidden} && document.querySelector('main').className === 'old'"));
    let outage = browser.value("document.getElementById('outage').textContent");
    assert!(outage.as_str().unwrap().starts_with("✖ No answer from the service since "), "{outage}");
    // And when it is back, so are the numbers.
    let _server = Server::start(service, address).unwrap();
    browser.until(&format!("{hidden} && document.querySelector('main').className === ''"));
    assert_eq!(browser.value("window.isTheFirst"), true);
    drop(publisher);
}

/// A simulated engine on a thread of its own, ended when dropped.
struct Engine {
    endpoint: String,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Publishes a step every so many milliseconds, and loses every so manieth for good.
    fn start(options: MockOptions, every_ms: u32, drop_every: u64) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut engine = MockEngine::new(&options).unwrap();
            let mut publisher = mock::Publisher::bind(PublisherOptions::new("tcp://127.0.0.1:0")).unwrap();
            tell.send(publisher.endpoints().events.clone()).unwrap();
            let is_on = || stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected);
            while is_on() && !publisher.wait_for_subscriber(20).unwrap() {}
            while is_on() {
                let events = engine.next_batch();
                let batch = Batch { timestamp: now(), events: &events, dp_rank: 0 };
                let payload = options.encoding.encode(&batch);
                let is_lost = publisher.next_sequence() % drop_every == drop_every - 1;
                publisher.publish(payload, if is_lost { Fate::Burnt } else { Fate::Sent }).unwrap();
                publisher.serve_replay(every_ms).unwrap();
            }
        });
        Self { endpoint: told.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_mixed_fleet_fits_on_a_screen() {
    let (_service, server) = service();
    let engine = |scenario, seed, every_ms, drop_every| {
        let mut options = MockOptions::new(scenario, Encoding::VllmMap);
        options.seed = seed;
        options.block_size = if seed == 4 { 32 } else { 16 };
        Engine::start(options, every_ms, drop_every)
    };
    let (llama, oss) = ("llama-3.3-70b", "gpt-oss-120b");
    let engines = [
        (21, llama, engine(Scenario::Chat, 1, 25, u64::MAX)),
        (LONG_ID, llama, engine(Scenario::Offload, 2, 20, u64::MAX)),
        (22, llama, engine(Scenario::Chat, 3, 40, 50)),
        (23, llama, engine(Scenario::Chat, 4, 50, u64::MAX)),
        (31, oss, engine(Scenario::Hybrid, 5, 20, u64::MAX)),
    ];
    for (worker, model, engine) in &engines {
        register(&server, &engine.endpoint, *worker, (model, 16));
    }
    let gone = engine(Scenario::Hybrid, 6, 10, u64::MAX);
    register(&server, &gone.endpoint, 32, (oss, 16));
    wait_until(|| get(&server, "/sources?instance_id=32")[0]["batches"].as_u64() > Some(50), "batches");
    drop(gone);
    let browser = Browser::open(server.address(), (1280, 1000));
    let query = json!({"model_name": llama, "token_ids": (1..=640).collect::<Vec<_>>()});
    let is_busy = "rows('sources').length === 6 && rows('sources')[0][0].startsWith('✖') && rows('sources')[0][6] !== '–'
        && rows('sources').some(row => row[0] === '✖ degraded') && rows('sources').some(row => row[0] === '✖ disconnected')
        && /^≤/.test(document.querySelector('#numbers div:last-child dd').textContent)
        && rows('reasons').length >= 3";
    let ask = || {
        ureq::post(format!("http://{}/query", server.address())).send_json(&query).unwrap();
        browser.value(is_busy) == true
    };
    wait_until(ask, "a busy page");
    let width = "[...document.querySelectorAll('html, .wide')].map(it => it.scrollWidth - it.clientWidth)";
    let overhang = browser.value(width);
    assert!(overhang.as_array().unwrap().iter().all(|over| *over == 0), "{overhang}");
    let png = browser.picture();
    assert!(png.len() < 200_000, "{}", png.len());
    if let Some(path) = std::env::var_os("KVTAP_PAGE_PNG") {
        std::fs::write(path, png).unwrap();
    }
    browser.check_quiet();
}

#[test]
fn hundreds_of_sources_are_paged_and_found() {
    let (_service, server) = service();
    for worker in 0..250 {
        register(&server, &ipc(), worker, ("m", 4));
    }
    let publisher = followed(&server, 1_000, "m");
    // As wide as a telephone.
    let browser = Browser::open(server.address(), (500, 900));
    let shown = "document.getElementById('shown').textContent";
    browser.until(&format!("{shown} === '100 of 251 sources, trouble first'"));
    let width = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]";
    let widths = browser.value(width);
    assert_eq!(widths[0], widths[1], "nothing sticks out");
    browser.click("#more");
    browser.until("rows('sources').length === 200");
    browser.click("#more");
    browser.until("rows('sources').length === 251 && document.getElementById('more').hidden");
    assert_eq!(browser.rows("sources")[250][2], "1000 / 0");
    browser.write("#filter", "1000 live");
    browser.until("rows('sources').length === 1 && rows('sources')[0][2] === '1000 / 0'");
    browser.check_quiet();
    drop(publisher);
}

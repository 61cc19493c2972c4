//! Requests of any kind to the service's routes, without sockets, on a service that holds blocks: nothing panics, errors are
//! JSON with one sentence under the right status, and a query is answered as the library's reader answers it.
//!
//! Input: requests, each of ten bytes that choose method, route, headers and body, changes to the body of three bytes each,
//! and text (`request.rs`). Publishers that are registered lie at abstract addresses where nobody is, and are gone after.

#![expect(clippy::disallowed_types, reason = "one service for all inputs; libFuzzer runs them one by one")]

mod bench;
mod request;

use std::sync::{Mutex, PoisonError};

use bench::Bench;
use request::Request;
use serde_json::Value;

const REQUESTS_MAX: usize = 8;
/// What the service takes, by route: `http.rs` of the service says the same.
const BODY_BYTES_MAX: usize = 64 << 10;
const QUERY_BODY_BYTES_MAX: usize = 16 << 20;

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

/// Makes the requests of one input.
pub fn run(data: &[u8]) {
    let mut kept = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = kept.get_or_insert_with(Bench::new);
    let mut rest = data;
    for _ in 0..REQUESTS_MAX {
        let Some((request, after)) = Request::read(rest) else { break };
        rest = after;
        let Some((status, body)) = bench.send(&request) else { continue };
        check(bench, &request, status, &body);
    }
    if !bench.tidy() {
        // Somebody unregistered what holds the blocks.
        *kept = None;
    }
}

fn check(bench: &mut Bench, request: &Request, status: u16, body: &[u8]) {
    let said = || format!("{request:?}: {status} {}", String::from_utf8_lossy(body));
    assert!(status < 500 || (status == 503 && request.path == "/ready"), "{}", said());
    if status >= 400 && request.method != "HEAD" {
        let error: Value = serde_json::from_slice(body).unwrap_or_else(|_| panic!("{}", said()));
        let fields = error.as_object().unwrap_or_else(|| panic!("{}", said()));
        let sentence = fields.get("error").and_then(Value::as_str).unwrap_or_else(|| panic!("{}", said()));
        assert!(fields.len() == 1 && !sentence.trim().is_empty() && !sentence.contains('\n'), "{}", said());
    }
    if let Some(refusal) = refusal(request) {
        assert_eq!(status, refusal, "{}", said());
        return;
    }
    let allowed: &[u16] = match request.path.as_str() {
        "/" | "/health" | "/dump" | "/metrics" => &[200],
        "/ready" => &[200, 503],
        "/workers" => &[200, 400],
        "/sources" | "/explain" => &[200, 400, 404],
        "/register" => &[201, 400, 409, 422],
        "/unregister" | "/query" => &[200, 400, 404, 422],
        "/query_by_hash" => &[200, 400, 404, 422],
        other => panic!("no such route: {other}"),
    };
    assert!(allowed.contains(&status), "{}", said());
    if request.method == "HEAD" {
        assert!(body.is_empty());
        return;
    }
    match request.path.as_str() {
        "/query" | "/query_by_hash" => check_answer(bench, request, status, body),
        "/dump" => bench.check_dump(body),
        "/metrics" => assert!(body.ends_with(b"# EOF\n"), "{}", said()),
        "/workers" | "/sources" | "/explain" | "/ready" | "/register" | "/unregister" => {
            serde_json::from_slice::<Value>(body).unwrap_or_else(|_| panic!("{}", said()));
        }
        _ => {}
    }
}

/// The status of what is refused before its body is looked into, in the order of the refusals.
fn refusal(request: &Request) -> Option<u16> {
    let gets = ["/", "/workers", "/health", "/ready", "/sources", "/explain", "/dump", "/metrics"];
    let posts = ["/register", "/unregister", "/query", "/query_by_hash"];
    let path = request.path.as_str();
    if gets.contains(&path) {
        return (!["GET", "HEAD"].contains(&request.method)).then_some(405);
    }
    if !posts.contains(&path) {
        return Some(404);
    }
    if request.method != "POST" {
        return Some(405);
    }
    let kind = request.content_type.as_deref().unwrap_or_default();
    let is_text = kind.bytes().all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte));
    let kind = if is_text { kind.split(';').next().unwrap_or_default().trim() } else { "" };
    if !kind.eq_ignore_ascii_case("application/json") {
        return Some(415);
    }
    let max = if path.starts_with("/query") { QUERY_BODY_BYTES_MAX } else { BODY_BYTES_MAX };
    if request.body.len() > max {
        return Some(413);
    }
    None
}

fn check_answer(bench: &mut Bench, request: &Request, status: u16, body: &[u8]) {
    let said = || format!("{request:?}: {status} {}", String::from_utf8_lossy(body));
    // A list is taken for the fields in their order, which nobody sends. What cannot be read as a value may fail earlier, at a
    // field, or not at all: what nobody asks for may be nested deeper, and its numbers be larger.
    let Ok(asked @ Value::Object(_)) = serde_json::from_slice(&request.body) else { return };
    match bench.right(request.path == "/query", &asked) {
        // A field that comes twice is refused.
        _ if status == 422 && request.is_damaged => {}
        Ok(answer) => {
            assert_eq!(status, 200, "{}", said());
            let answered: Value = serde_json::from_slice(body).unwrap_or_else(|_| panic!("{}", said()));
            assert_eq!(answered, answer, "{request:?}");
        }
        Err(refused) => assert_eq!(status, refused, "{}", said()),
    }
}

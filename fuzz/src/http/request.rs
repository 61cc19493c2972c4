//! Bytes → one request: mostly one that the service takes, with changes.

use std::fmt;

use serde_json::{Value, json};

use super::bench::{Bench, NOWHERE};

const ROUTES: [&str; 12] = [
    "/query",
    "/query_by_hash",
    "/register",
    "/unregister",
    "/workers",
    "/sources",
    "/explain",
    "/ready",
    "/dump",
    "/metrics",
    "/health",
    "/",
];
const METHODS: [&str; 8] = ["POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "query"];
/// Every field of every body, and one of none.
const FIELDS: [&str; 17] = [
    "token_ids",
    "block_hashes",
    "model_name",
    "routing_group",
    "lora_name",
    "cache_salt",
    "bigram",
    "instance_id",
    "endpoint",
    "block_size",
    "dp_rank",
    "replay_endpoint",
    "topic",
    "copies",
    "digest",
    "tenant_id",
    "nobody_asks",
];
const CHANGES_MAX: usize = 12;
/// Ids of the workers that hold blocks; these are not unregistered.
const HOLDERS: [u64; 2] = [7, 9];

/// What is sent.
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
    /// Whether the body is other than its values, written out.
    pub(super) is_damaged: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, query, content_type, body, .. } = self;
        let shown = String::from_utf8_lossy(&body[..body.len().min(2000)]);
        write!(f, "{method} {path} ?{query:?} {content_type:?} {} bytes: {shown}", body.len())
    }
}

impl Request {
    /// The request at the front, and what is left.
    pub(super) fn read(data: &[u8]) -> Option<(Self, &[u8])> {
        let (&[route, method, path, query, kind, shape, first, second, changes, text], rest) =
            data.split_first_chunk::<10>()?;
        let changes = usize::from(changes) % (CHANGES_MAX + 1);
        let (changes, rest) = rest.split_at((3 * changes).min(rest.len()));
        let (text, rest) = rest.split_at(usize::from(text).min(rest.len()));
        let route = ROUTES[usize::from(route) % ROUTES.len()];
        let takes = if ["/query", "/query_by_hash", "/register", "/unregister"].contains(&route) {
            "POST"
        } else {
            "GET"
        };
        let text_lossy = || String::from_utf8_lossy(text).into_owned();
        let mut request = Self {
            method: if method < 224 { takes } else { METHODS[usize::from(method) % METHODS.len()] },
            path: match path {
                0..240 => route.to_owned(),
                240..244 => format!("{route}/"),
                244..248 => format!("{route}{}", text_lossy()),
                _ => format!("/{}", text_lossy()),
            },
            query: (query >= 128).then(|| query_string(query, first, second, text)),
            content_type: match kind {
                0..232 => Some("application/json".to_owned()),
                232..236 => Some("application/json; charset=utf-8".to_owned()),
                236..240 => Some(" Application/JSON ;x".to_owned()),
                240..244 => Some("text/plain".to_owned()),
                244..248 => Some("application/json+x".to_owned()),
                248..252 => None,
                _ => Some(text_lossy()),
            },
            body: Vec::new(),
            is_damaged: false,
        };
        let mut body = template(route, shape, first, second);
        if shape & 64 > 0 {
            // As this route takes it, sent to the next.
            body = template(ROUTES[(usize::from(second)) % 4], shape, first, second);
        }
        let changes = changes.chunks_exact(3).map(|change| [change[0], change[1], change[2]]);
        for [field, how, value] in changes.clone().filter(|change| change[1] < 240) {
            let field = FIELDS[usize::from(field) % FIELDS.len()];
            match body.as_object_mut() {
                Some(fields) if how >= 200 => drop(fields.remove(field)),
                Some(fields) => drop(fields.insert(field.to_owned(), any_value(how, value, text))),
                None => {}
            }
        }
        request.body = if shape >= 252 { text.to_vec() } else { body.to_string().into_bytes() };
        request.is_damaged = shape >= 252;
        for [at, how, value] in changes.filter(|change| change[1] >= 240) {
            request.damage(at, how, value);
        }
        request.confine();
        Some((request, rest))
    }

    fn damage(&mut self, at: u8, how: u8, value: u8) {
        self.is_damaged = true;
        let body = &mut self.body;
        let at = usize::from(at) * (body.len() + 1) / 256;
        match how {
            240..243 => body.insert(at, value),
            243..246 => body.truncate(at),
            246..249 if at < body.len() => body[at] = value,
            249 | 250 => drop(body.drain(at..(at + usize::from(value)).min(body.len()))),
            251 => {
                let twin = body[at..].to_vec();
                body.truncate(twin.len().max(at));
                body.extend(twin);
            }
            // As long as a body may be, or a little longer.
            252 => body.resize(
                (super::BODY_BYTES_MAX + usize::from(value % 3)).saturating_sub(1).max(body.len()),
                b' ',
            ),
            253 if value == 0 => body.resize(super::QUERY_BODY_BYTES_MAX + 1, b' '),
            253 if value == 1 => body.resize(super::QUERY_BODY_BYTES_MAX, b' '),
            // Text behind the last brace.
            _ => body.insert(body.len() - usize::from(!body.is_empty()), value),
        }
    }

    /// What would open sockets somewhere, or take away what holds blocks, means something else instead.
    fn confine(&mut self) {
        if !["/register", "/unregister"].contains(&self.path.as_str()) {
            return;
        }
        let Ok(mut body) = serde_json::from_slice::<Value>(&self.body) else {
            // Hardly a request, but it might be one for a parser that passes over what is not asked for.
            if self.body.windows(3).any(|three| three == b"://") || self.body.contains(&b'\\') {
                self.body.clear();
            }
            return;
        };
        let before = body.clone();
        if self.path == "/unregister" && HOLDERS.iter().any(|&holder| body["instance_id"] == holder) {
            body["instance_id"] = 100.into();
        }
        confine_texts(&mut body);
        if body != before {
            self.body = body.to_string().into_bytes();
        }
    }
}

fn confine_texts(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") && !text.starts_with(NOWHERE) => {
            *text = format!("{NOWHERE}0");
        }
        Value::Array(values) => values.iter_mut().for_each(confine_texts),
        Value::Object(fields) => fields.values_mut().for_each(confine_texts),
        _ => {}
    }
}

/// A body that the route takes.
fn template(route: &str, shape: u8, first: u8, second: u8) -> Value {
    let group = if shape & 1 == 0 { "default" } else { "g" };
    let mut body = match route {
        "/query" => json!({"token_ids": (1..=u32::from(first)).collect::<Vec<_>>()}),
        "/query_by_hash" => json!({"block_hashes": Bench::held_hashes(u32::from(first % 8), group)}),
        _ => {
            let mut body = json!({"instance_id": 100 + first % 4, "dp_rank": second % 3});
            if route == "/register" {
                body["endpoint"] = format!("{NOWHERE}{}", second % 4).into();
                body["block_size"] = if shape & 1 == 0 { 4.into() } else { 2.into() };
            }
            body
        }
    };
    body["model_name"] = if shape & 2 == 0 { "m".into() } else { "other".into() };
    if shape & 5 > 0 {
        body["routing_group"] = group.into();
    }
    match shape >> 3 & 7 {
        1 => body["lora_name"] = "a".into(),
        2 => body["cache_salt"] = "s".into(),
        3 => body["bigram"] = true.into(),
        4 => body["replay_endpoint"] = format!("{NOWHERE}replay").into(),
        5 => body["copies"] = "set".into(),
        6 => body["topic"] = "kv".into(),
        _ => {}
    }
    body
}

fn any_value(how: u8, value: u8, text: &[u8]) -> Value {
    match how % 24 {
        0 => Value::Null,
        1 => true.into(),
        2 => (-1).into(),
        3 => u64::from(u32::MAX).into(),
        4 => (u64::from(u32::MAX) + 1).into(),
        5 => u64::MAX.into(),
        6 => i64::MIN.into(),
        7 => 1e300.into(),
        8 => 0.5.into(),
        9 => "".into(),
        10 => "m".into(),
        11 => ["default", "g", "a", "s", "set", "high", "count", "low"][usize::from(value % 8)].into(),
        12 => json!([]),
        13 => json!([value, value]),
        14 => json!({}),
        15 => (0..value).fold(json!(1), |inner, _| json!([inner])),
        16 => json!([1, 2, 3, 4, -1]),
        17 => json!([u64::MAX]),
        18 => "x".repeat(usize::from(value) * 16).into(),
        19 => format!("{NOWHERE}{}", String::from_utf8_lossy(text)).into(),
        20 => format!("{NOWHERE}{}", "y".repeat(value.into())).into(),
        21 => String::from_utf8_lossy(text).into_owned().into(),
        22 => (1..=u32::from(value) * 64).collect::<Vec<_>>().into(),
        _ => value.into(),
    }
}

fn query_string(how: u8, first: u8, second: u8, text: &[u8]) -> String {
    let instance = [u64::from(first), 7, 9, 100][usize::from(second % 4)];
    match how % 8 {
        0 => format!("instance_id={instance}"),
        1 => format!("instance_id={instance}&dp_rank={}", first % 3),
        2 => "model_name=m&routing_group=default".to_owned(),
        3 => "model_name=other&tenant_id=x".to_owned(),
        4 => "dp_rank=-1".to_owned(),
        5 => "instance_id=7&instance_id=8".to_owned(),
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

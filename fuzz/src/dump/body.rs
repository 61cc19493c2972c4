//! Bytes → what a peer answers: mostly a dump as kvtap or Dynamo writes it, with changes.

use serde_json::{Map, Value, json};

const CHANGES_MAX: usize = 8;
const PARTITIONS: [(&str, &str); 6] =
    [("m", "default"), ("m", "g"), ("other", "default"), ("a:b", "c"), ("a", "b:c"), ("", "\"\n\\")];
const WORKERS: [u64; 4] = [7, 9, 0, u64::MAX];
const RANKS: [u32; 4] = [0, 1, 2, u32::MAX];
const TIERS: [&str; 4] = ["device", "host_pinned", "disk", "external"];
const KINDS: [&str; 3] = ["main", "other", "unknown"];
/// Names that kvtap gives to places without one, and those around.
const ODD_HASHES: [u64; 4] = [u64::MAX, u64::MAX - 1, u64::MAX - 2, 0];
const COPIES: [u32; 8] = [0, 1, 2, 3, 4, 5, u32::MAX - 1, u32::MAX];
const NUMBERS: [u64; 6] = [0, 1, 17, u64::MAX - 1, u64::MAX, 1 << 53];
const SECONDS: [f64; 6] = [0.0, -0.0, 1.5, -1e300, 1_785_000_000.123_456_7, 5e-324];
/// Every field there is, and one of none.
const FIELDS: [&str; 26] = [
    "block_size",
    "events",
    "model_name",
    "routing_group",
    "severed",
    "sources",
    "instance_id",
    "dp_rank",
    "next",
    "timestamp",
    "watermark",
    "degraded",
    "ranks",
    "has_full_block",
    "groups",
    "worker_id",
    "storage_tier",
    "event",
    "source_rank",
    "event_id",
    "data",
    "parent_hash",
    "blocks",
    "copies",
    "salt",
    "nobody_asks",
];

/// What is answered.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether it is other than its values, written out.
    pub(super) is_damaged: bool,
}

impl Body {
    pub(super) fn read(data: &[u8]) -> Self {
        let mut choices = Choices(data);
        if choices.next() >= 250 {
            return Self { bytes: choices.0.to_vec(), is_damaged: true };
        }
        let [changes, damages] = [(); 2].map(|()| usize::from(choices.next()) % (CHANGES_MAX + 1));
        let changes: Vec<[u8; 4]> = (0..changes).map(|_| choices.some()).collect();
        let damages: Vec<[u8; 3]> = (0..damages).map(|_| choices.some()).collect();
        let mut dump = dump(&mut choices);
        for [at, among, how, value] in changes {
            let mut at = usize::from(at) << 8 | usize::from(among);
            let mut nodes = 0;
            count(&dump, &mut nodes);
            at %= nodes;
            if let Some(node) = find(&mut dump, &mut at) {
                change(node, how, value);
            }
        }
        let mut body = Self { bytes: dump.to_string().into_bytes(), is_damaged: false };
        damages.into_iter().for_each(|damage| body.damage(damage));
        body
    }

    fn damage(&mut self, [at, how, value]: [u8; 3]) {
        self.is_damaged = true;
        let bytes = &mut self.bytes;
        let at = usize::from(at) * (bytes.len() + 1) / 256;
        match how % 8 {
            0 => bytes.insert(at, value),
            1 => bytes.truncate(at),
            2 | 3 if at < bytes.len() => bytes[at] = value,
            4 => drop(bytes.drain(at..(at + usize::from(value)).min(bytes.len()))),
            5 => {
                let again = bytes[at..(at + usize::from(value)).min(bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
            6 => bytes.extend(std::iter::repeat_n(b' ', usize::from(value) << 8)),
            _ => bytes.push(value),
        }
    }
}

/// Bytes, and zeros when these are used up.
struct Choices<'d>(&'d [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn some<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.next())
    }
}

fn pick<T: Copy>(from: &[T], choice: u8) -> T {
    from[usize::from(choice) % from.len()]
}

fn dump(choices: &mut Choices<'_>) -> Value {
    let mut dump = Map::new();
    let partitions = match choices.next() {
        count @ 0..240 => count % 4,
        count => 60 + count % 8, // about as many as are taken
    };
    for number in 0..partitions {
        let [name, shape, more] = choices.some();
        let (model_name, routing_group) = pick(&PARTITIONS, name);
        let mut key = format!("{model_name}:{routing_group}");
        if shape & 8 > 0 {
            // Several of one name: only if it stands inside.
            key = format!("{key}{number}");
        }
        let mut partition = partition(choices, shape, more);
        if shape & 4 > 0 {
            partition["model_name"] = model_name.into();
            partition["routing_group"] = routing_group.into();
        }
        dump.insert(key, partition);
    }
    dump.into()
}

fn partition(choices: &mut Choices<'_>, shape: u8, more: u8) -> Value {
    let block_size = if shape < 240 { 4 } else { pick(&[0, 1, 65_536, 65_537, 16], shape) };
    let mut partition = json!({"block_size": block_size});
    let locals = more >> 6;
    for (part, count) in [("events", more & 15), ("severed", more >> 4 & 3)] {
        let mut last = None;
        let events: Vec<_> = (0..count).map(|_| event(choices, locals, &mut last)).collect();
        if part == "events" || shape & 16 > 0 {
            partition[part] = events.into();
        }
    }
    if shape & 3 > 0 {
        partition["sources"] = (0..shape & 3).map(|number| source(choices, number)).collect();
    }
    partition
}

fn source(choices: &mut Choices<'_>, number: u8) -> Value {
    let [who, position, ranks] = choices.some();
    let rank = |choices: &mut Choices<'_>, number: u8| {
        let [which, groups, kinds] = choices.some();
        let group = |at: u8| json!([at, pick(&KINDS, kinds >> (at % 4))]);
        let groups: Vec<_> = match groups {
            0..252 => (0..groups % 4).map(group).collect(),
            _ => (0..groups).flat_map(|at| vec![group(at); 4 + usize::from(groups % 2)]).collect(),
        };
        json!({"dp_rank": pick(&RANKS, number.wrapping_add(which)), "has_full_block": kinds > 127, "groups": groups})
    };
    let seconds = |choice| if choice % 8 < 6 { json!(pick(&SECONDS, choice)) } else { Value::Null };
    json!({
        "instance_id": pick(&WORKERS, who), "dp_rank": pick(&RANKS, (who >> 2) + number),
        "next": if position & 1 > 0 { Value::Null } else { pick(&NUMBERS, position >> 1).into() },
        "timestamp": seconds(position >> 3), "watermark": seconds(position >> 5), "degraded": ranks & 8 > 0,
        "ranks": (0..ranks & 3).map(|number| rank(choices, number)).collect::<Vec<_>>(),
    })
}

/// Some blocks in a row. `last` is the one before.
fn event(choices: &mut Choices<'_>, locals: u8, last: &mut Option<u64>) -> Value {
    let [who, place, parent, start, shape, extra] = choices.some();
    let hash = |number: u8| if number < 248 { number.into() } else { pick(&ODD_HASHES, number) };
    let parent = match parent {
        0..96 => *last,
        96..144 => None,
        _ => Some(hash(parent - 144)),
    };
    let count = if shape < 248 { shape % 6 } else { 31 * (shape - 247) };
    let step = shape / 64;
    let blocks: Vec<_> = (0..count)
        .map(|number| {
            let name = hash(start.wrapping_add(number.wrapping_mul(step)));
            // Several names for one block, unless `locals` says otherwise; two of one name are a contradiction.
            let local_hash = [name, name % 5, name % 2, u64::MAX - name % 3][usize::from(locals)];
            let mut block = json!({"block_hash": name, "tokens_hash": local_hash, "mm_extra_info": null});
            if extra % 4 == 1 || (extra % 4 == 2 && number % 2 == 1) || extra >= 252 {
                block["copies"] = pick(&COPIES, extra >> 2).into();
            }
            if extra & 32 > 0 {
                block["salt"] = pick(&NUMBERS, extra >> 6).into();
            }
            if extra & 128 > 0 && number == 0 {
                block["ambiguous"] = (extra & 64 > 0).into();
            }
            *last = Some(name);
            block
        })
        .collect();
    let data = json!({"stored": {"parent_hash": parent, "start_position": null, "blocks": blocks}});
    let mut event = json!({
        "worker_id": pick(&WORKERS, who >> 6 & who), "storage_tier": pick(&TIERS, place),
        "event": {"event_id": number_of(place), "data": data, "dp_rank": pick(&RANKS, who >> 1 & who)},
    });
    if place & 8 > 0 {
        event["source_rank"] = pick(&RANKS, who >> 4 & 1).into();
    }
    event
}

fn number_of(choice: u8) -> u64 {
    pick(&NUMBERS, choice >> 4)
}

/// Values within a value, itself among them.
fn count(value: &Value, nodes: &mut usize) {
    *nodes += 1;
    match value {
        Value::Array(values) => values.iter().for_each(|value| count(value, nodes)),
        Value::Object(fields) => fields.values().for_each(|value| count(value, nodes)),
        _ => {}
    }
}

/// The value before which there are so many.
fn find<'v>(value: &'v mut Value, before: &mut usize) -> Option<&'v mut Value> {
    if *before == 0 {
        return Some(value);
    }
    *before -= 1;
    match value {
        Value::Array(values) => values.iter_mut().find_map(|value| find(value, before)),
        Value::Object(fields) => fields.values_mut().find_map(|value| find(value, before)),
        _ => None,
    }
}

fn change(node: &mut Value, how: u8, value: u8) {
    let at = |len: usize| usize::from(value) % len.max(1);
    match (how % 8, &mut *node) {
        (0, Value::Object(fields)) => {
            let key = fields.keys().nth(at(fields.len())).cloned();
            key.and_then(|key| fields.remove(&key));
        }
        (1, Value::Object(fields)) => drop(fields.insert(pick(&FIELDS, value).to_owned(), any(how, value))),
        (2, Value::Object(fields)) => {
            let key = fields.keys().nth(at(fields.len())).cloned();
            let gone = key.and_then(|key| fields.remove(&key));
            fields.insert(pick(&FIELDS, how).to_owned(), gone.unwrap_or_default());
        }
        // A list of what it has, as its fields were in their order.
        (3, Value::Object(fields)) => *node = fields.values().cloned().collect(),
        (0, Value::Array(values)) if !values.is_empty() => drop(values.remove(at(values.len()))),
        (1, Value::Array(values)) if !values.is_empty() => values.push(values[at(values.len())].clone()),
        (2, Value::Array(values)) => values.reverse(),
        (3, Value::Array(values)) if !values.is_empty() => {
            let first = at(values.len());
            values.rotate_left(first);
        }
        (4, Value::String(name)) => *node = json!({name.as_str(): null}),
        (5, Value::String(name)) if name.len() < 64 => *name = name.repeat(value.into()),
        _ => *node = any(how, value),
    }
}

fn any(how: u8, value: u8) -> Value {
    match how / 8 % 24 {
        0 => Value::Null,
        1 => true.into(),
        2 => (-1).into(),
        3 => u32::MAX.into(),
        4 => (u64::from(u32::MAX) + 1).into(),
        5 => u64::MAX.into(),
        6 => i64::MIN.into(),
        7 => 1e300.into(),
        8 => 4.0.into(),
        9 => "".into(),
        10 => pick(&TIERS, value).into(),
        11 => pick(&KINDS, value).into(),
        12 => json!([]),
        13 => json!({}),
        14 => (0..value).fold(json!(1), |inner, _| json!([inner])),
        15 => json!([value, value]),
        16 => json!({pick(&TIERS, value): null}),
        17 => json!({pick(&TIERS, value): value}),
        18 => "x".repeat(usize::from(value) * 2).into(),
        19 => json!([value, "main"]),
        20 => 65_536.into(),
        _ => value.into(),
    }
}

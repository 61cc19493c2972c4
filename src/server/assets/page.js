// The page: asks /sources, /explain and /metrics every two seconds and writes down what they say. Everything that comes
// from publishers or requests goes in as text, never as markup.
"use strict";

const EVERY_MS = 2000, PATIENCE_MS = 10000, WINDOW_S = 10, ROWS = 100, BEHIND_S = 5, TOKEN_MAX = 4294967295;

// What a reason means, and whether an engine in good health gives it too.
const REASONS = {
  too_many_ranks: ["more ranks than the source may bring, or the index is full"],
  unsupported_ownership: ["blocks of another layer (kvcr)", "usual"],
  unknown_ownership: ["an ownership nobody documents"],
  non_local_locality: ["the blocks are not on this worker", "usual"],
  unknown_medium: ["a medium with no known tier"],
  non_main_attention_kind: ["a cache group that does not decide reuse", "usual"],
  non_main_attention_group: ["a cache group that does not decide reuse, as learned", "usual"],
  unknown_kind: ["a kind of attention nobody documents"],
  unlearned_group_idx: ["a cache group whose kind was never named"],
  ambiguous_cache_namespace: ["the parent is known under two salts", "usual"],
  partial_block: ["a tail smaller than a block", "usual"],
  block_size_mismatch: ["the engine's block size is not the index's"],
  no_hashes: ["a store without hashes"],
  self_referencing: ["a store that repeats a hash or is its own parent"],
  excess_tokens: ["more tokens than hashes: blocks were skipped", "usual"],
  too_many_blocks: ["the source holds as many blocks as it may"],
  unknown_parent: ["the parent was never placed, or is gone", "usual"],
  short_tokens: ["too few tokens for the block", "usual"],
  unresolved_hash: ["stored by hash alone, and not known", "usual"],
  unknown_block: ["removed, but not known at that tier", "usual"],
  rehashed: ["placed, and replaced another prefix", "usual"],
  unknown: ["an event with a tag nobody documents"],
  malformed: ["an event with a field of the wrong type"],
};

const $ = id => document.getElementById(id);
const NONE = "–";

// --- Numbers as text

const number = value => value === null || value === undefined ? NONE : value.toLocaleString("en");
const count = (value, one, many = one + "s") => `${number(value)} ${value === 1 ? one : many}`;
const perSecond = value => value === null ? NONE
  : value === 0 || value >= 10 ? number(Math.round(value)) : value.toFixed(value < 0.1 ? 2 : 1);
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}
function time(s) {
  if (s === Infinity) return "over 1 s";
  if (s < 1e-3) return `${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${Math.round(s * 1e3)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${number(Math.round(s / 86400))} days`;
}

// --- Tables

// Writes only what has changed, so that what a reader has selected stays selected.
function put(element, text, kind = "") {
  if (element.textContent !== text) element.textContent = text;
  if (element.className !== kind) element.className = kind;
}

function resize(parent, length, tag) {
  while (parent.children.length > length) parent.lastElementChild.remove();
  while (parent.children.length < length) parent.append(document.createElement(tag));
}

// Heads are [text, kind]; a row is { kind, cells }, a cell text or [text, kind]. Cells take their column's kind.
function fill(table, heads, rows, empty) {
  if (!table.tBodies.length) {
    const head = document.createElement("tr");
    for (const [text, kind] of heads) {
      const cell = document.createElement("th");
      cell.scope = "col";
      put(cell, text, kind);
      head.append(cell);
    }
    table.createTHead().append(head);
    head.className = "heads";
    table.createTBody();
  }
  const body = table.tBodies[0];
  table.tHead.hidden = rows.length === 0;
  if (!rows.length) {
    body.replaceChildren();
    resize(body, 1, "tr");
    resize(body.rows[0], 1, "td");
    put(body.rows[0].cells[0], empty, "long");
    return;
  }
  resize(body, rows.length, "tr");
  let row = body.firstElementChild;
  for (const { kind = "", cells } of rows) {
    if (row.className !== kind) row.className = kind;
    resize(row, cells.length, "td");
    cells.forEach((cell, column) => {
      const [text, own] = Array.isArray(cell) ? cell : [cell, ""], element = row.cells[column];
      put(element, text, [heads[column][1], own].filter(Boolean).join(" "));
      if (element.dataset.head !== heads[column][0]) element.dataset.head = heads[column][0];
    });
    row = row.nextElementSibling;
  }
}

// --- What the service says

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS), ...options });
  const text = await answer.text();
  if (answer.ok) return text;
  let sentence = `status ${answer.status}`;
  try { sentence = JSON.parse(text).error || sentence; } catch { /* a proxy's page, say */ }
  throw new Error(sentence);
}

// Worker ids have 64 bits, numbers here 53. Inside a JSON string the quotes are escaped, so nothing there is taken for a key.
const json = text => JSON.parse(text.replace(/"instance_id":(\d+)/g, '"instance_id":"$1"'));

const SHOWN = "index_entries|index_bytes|engine_hash_bytes|channel_batches|refused_blocks|query_seconds_bucket";
const SAMPLE = new RegExp(`^kvtap_(${SHOWN})\\{(.*)\\} (\\S+)$`, "s");
const LABEL = /([a-z_]+)="((?:[^"\\]|\\[^])*)"/g;

// The samples the page shows: name, labels, value.
function* samples(text) {
  for (const line of text.split("\n")) {
    const found = SAMPLE.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, key, value] of found[2].matchAll(LABEL)) {
      labels[key] = value.replace(/\\([^])/g, (_, escaped) => escaped === "n" ? "\n" : escaped);
    }
    yield { name: found[1], labels, value: Number(found[3]) };
  }
}

const partitionKey = it => JSON.stringify([it.model_name, it.routing_group]);
const partitionName = it => it.routing_group === "default" ? it.model_name : `${it.model_name} / ${it.routing_group}`;
const sourceKey = it => `${it.instance_id}/${it.dp_rank}`;

// One look: sources with their explanations, partitions, and answers by the time they took.
async function look() {
  const [sources, explained, metrics] = await Promise.all(["sources", "explain", "metrics"].map(path => ask(path)));
  const at = performance.now() / 1000, byKey = new Map(json(explained).map(it => [sourceKey(it), it]));
  const partitions = new Map(), buckets = new Map();
  for (const { name, labels, value } of samples(metrics)) {
    if (name === "query_seconds_bucket") {
      const of = buckets.get(labels.endpoint) || new Map();
      of.set(labels.le === "+Inf" ? Infinity : Number(labels.le), value);
      buckets.set(labels.endpoint, of);
    } else {
      const key = partitionKey(labels), it = partitions.get(key) || { ...labels, sources: 0, block_size: null };
      it[name] = value;
      partitions.set(key, it);
    }
  }
  const known = json(sources).map(it => {
    // One that came between the two answers has nothing to explain yet.
    const explanation = byKey.get(sourceKey(it)) || { events: {}, not_placed: [], block_size_mismatches: [], drift: {} };
    const events = Object.values(explanation.events).reduce((all, one) => all + one, 0);
    const partition = partitions.get(partitionKey(it));
    if (partition) { partition.sources += 1; partition.block_size = it.block_size; }
    const reasons = new Map(explanation.not_placed.map(one => [one.reason, one.count]));
    return { ...it, explanation, events, reasons };
  });
  return { at, sources: known, byKey: new Map(known.map(it => [sourceKey(it), it])), partitions, buckets };
}

// --- Changes between looks

const looks = [];

// What a count grew by per second over the last ten seconds; null if nobody knows.
function growth(now, of) {
  const then = looks[0];
  if (!then || then === now) return null;
  const [from, to] = [of(then), of(now)];
  return from === undefined || to < from ? null : (to - from) / (now.at - then.at);
}
const sourceGrowth = (now, key, of) => growth(now, one => { const it = one.byKey.get(key); return it && of(it); });

// The bucket in which the quantile lies: answers took at most so long.
function quantile(counts, q) {
  const limits = [...counts.keys()].sort((a, b) => a - b), all = counts.get(Infinity) || 0;
  return all ? limits.find(limit => counts.get(limit) >= q * all) : null;
}

// Answers of the last seconds if there were any, else of all.
function recent(now, endpoint) {
  const all = now.buckets.get(endpoint), then = looks[0] && looks[0].buckets.get(endpoint);
  const difference = new Map([...all].map(([limit, counted]) => [limit, counted - (then ? then.get(limit) || 0 : 0)]));
  return then && difference.get(Infinity) > 0 ? [difference, "last seconds"] : [all, "since the start"];
}

// --- What is wrong with a source

function troubles(it, now, before) {
  const found = [], key = sourceKey(it), error = it.last_error ? ` Last error: ${it.last_error}` : "";
  const grows = of => sourceGrowth(now, key, of) > 0;
  const add = (level, word, sentence) => found.push({ level, word, sentence });
  if (it.state === "disconnected") add("bad", "disconnected", `The connection is lost; it is tried again.${error}`);
  if (it.state === "connecting") add("bad", "connecting", `Nobody has answered at its endpoint yet.${error}`);
  if (it.state === "stopped") add("bad", "stopped", `It is no longer followed.${error}`);
  if (it.degraded) {
    const why = it.replay_endpoint ? "its replay did not have them" : "it has no replay endpoint";
    const lost = count(it.lost_batches, "batch", "batches");
    add("bad", "degraded", `${lost} lost: ${why}. Answers about it may be wrong until its blocks are cleared.`);
  }
  if (it.state === "replaying") add("warn", "replaying", "A gap is being filled; live messages wait.");
  // A batch that came since the last look may have waited here as long as that.
  const age = before && before.byKey.has(key) && it.batches > before.byKey.get(key).batches
    ? it.lag_s - (now.at - before.at) : null;
  if (age > BEHIND_S) add("warn", "behind", `Batches come ${time(age)} after they were made, or its clock is wrong.`);
  if (it.explanation.block_size_mismatches.length) {
    const sizes = new Set(it.explanation.block_size_mismatches.map(one => number(one.block_size)));
    add("warn", "block size", `It publishes blocks of ${[...sizes].join(", ")} tokens; this index takes ${number(it.block_size)}.`);
  }
  if (it.batches === 0 && it.foreign_messages > 0) add("warn", "topic", "All of its messages are on another topic.");
  if (grows(one => one.explanation.malformed_batches)) add("warn", "refused", `It sends batches that cannot be read.${error}`);
  if (grows(one => one.bad_messages)) add("warn", "frames", `It sends messages of no known shape.${error}`);
  if (grows(one => one.back_pressure)) add("warn", "held up", "The index takes its blocks slower than it sends them.");
  const odd = [...it.reasons.keys()].filter(reason => reason !== "block_size_mismatch"
    && !(REASONS[reason] && REASONS[reason][1]) && grows(one => one.reasons.get(reason) || 0));
  if (odd.length) add("warn", "not placed", `Events are not placed: ${odd.join(", ")}.`);
  return found;
}

const MARK = { bad: "✖", warn: "▲", good: "●" };

// A quiet engine's last batch grows old too; only batches that come late mean that it is behind.
function lag(it, before) {
  if (it.lag_s === null) return "nothing yet";
  const then = before && before.byKey.get(sourceKey(it));
  return then && it.batches === then.batches ? `quiet ${time(it.lag_s)}` : time(it.lag_s);
}

// --- Drawing

let rowsShown = ROWS, last = null;

function draw(now, before) {
  for (const it of now.sources) {
    it.troubles = troubles(it, now, before);
    it.level = it.troubles.some(one => one.level === "bad") ? "bad" : it.troubles.length ? "warn" : "good";
    it.text = [it.level === "good" ? it.state : it.troubles.map(one => one.word).join(" "), it.instance_id,
      it.model_name, it.routing_group, it.endpoint].join(" ").toLowerCase();
  }
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), inTrouble = $("trouble").checked;
  const order = { bad: 0, warn: 1, good: 2 };
  now.sources.sort((a, b) => order[a.level] - order[b.level]);
  const shown = now.sources.filter(it => words.every(word => it.text.includes(word)) && !(inTrouble && it.level === "good"));
  drawVerdict(now);
  drawNumbers(now);
  drawSources(shown, now, before);
  drawReasons(shown, now);
  drawPartitions(now);
  drawQueries(now);
  drawDrift(shown);
  choosePartitions(now);
}

function drawVerdict(now) {
  const bad = now.sources.filter(it => it.level !== "good"), by = new Map();
  for (const it of bad) by.set(it.troubles[0].word, (by.get(it.troubles[0].word) || 0) + 1);
  const kinds = [...by].map(([word, sources]) => `${number(sources)} ${word}`).join(", ");
  const level = bad.some(it => it.level === "bad") ? "bad" : bad.length ? "warn" : "good";
  const sentence = !now.sources.length ? "No source is registered." : bad.length
    ? `${MARK[level]} ${number(bad.length)} of ${count(now.sources.length, "source")} in trouble: ${kinds}`
    : `${MARK.good} ${now.sources.length === 1 ? "The source is" : `All ${number(now.sources.length)} sources are`} live.`;
  put($("verdict"), sentence, now.sources.length ? level : "warn");
  document.title = bad.length ? `(${bad.length}) kvtap` : "kvtap";
}

function drawNumbers(now) {
  const sum = (one, of) => one.sources.reduce((all, it) => all + of(it), 0);
  const total = of => growth(now, one => sum(one, of));
  const inPartitions = name => [...now.partitions.values()].reduce((all, it) => all + (it[name] || 0), 0);
  const answered = one => [...one.buckets.values()].reduce((all, of) => all + (of.get(Infinity) || 0), 0);
  const [counts] = now.buckets.has("query") ? recent(now, "query") : [new Map()];
  const atMost = q => {
    const limit = quantile(counts, q);
    return limit === null ? NONE : limit === Infinity ? time(limit) : `≤ ${time(limit)}`;
  };
  const facts = [
    ["sources live", `${number(now.sources.filter(it => it.state === "live").length)} / ${number(now.sources.length)}`],
    ["events/s", perSecond(total(it => it.events))],
    ["blocks placed/s", perSecond(total(it => it.explanation.blocks_placed || 0))],
    ["batches lost", number(sum(now, it => it.lost_batches))],
    ["index entries", number(inPartitions("index_entries"))],
    ["index memory", bytes(inPartitions("index_bytes") + inPartitions("engine_hash_bytes"))],
    ["queries/s", perSecond(growth(now, answered))],
    ["query p50", atMost(0.5)],
    ["query p99", atMost(0.99)],
  ];
  resize($("numbers"), facts.length, "div");
  facts.forEach(([name, value], at) => {
    const box = $("numbers").children[at];
    if (!box.children.length) box.append(document.createElement("dt"), document.createElement("dd"));
    put(box.children[0], name);
    put(box.children[1], value);
  });
}

const SOURCE_HEADS = [["state", ""], ["what is wrong", "long"], ["worker / rank", "n"], ["index", "name"], ["endpoint", "place"],
  ["lag", "n"], ["events/s", "n"], ["entries", "n"], ["gaps", "n"], ["replayed", "n"], ["lost", "n"], ["restarts", "n"]];

function drawSources(shown, now, before) {
  const rows = shown.slice(0, rowsShown).map(it => {
    const states = it.level === "good" ? [it.state] : it.troubles.map(one => one.word);
    const lost = it.lost_batches ? [number(it.lost_batches), "bad"] : "0";
    return { kind: it.level === "good" ? "" : it.level, cells: [
      [`${MARK[it.level]} ${states.join(", ")}`, it.level], it.troubles.map(one => one.sentence).join(" "),
      `${it.instance_id} / ${it.dp_rank}`, partitionName(it), it.endpoint, lag(it, before),
      perSecond(sourceGrowth(now, sourceKey(it), one => one.events)), number(it.entries), number(it.gaps),
      number(it.replayed_batches), lost, number(it.restarts)] };
  });
  const none = "No source is registered: start with --source, or POST /register.";
  fill($("sources"), SOURCE_HEADS, rows, now.sources.length ? "No source is like that." : none);
  put($("shown"), `${number(rows.length)} of ${count(now.sources.length, "source")}, trouble first`);
  $("more").hidden = shown.length <= rows.length;
}

const REASON_HEADS = [["reason", ""], ["what it means", "long"], ["count", "n"], ["per second", "n"], ["sources", "n"],
  ["last one", "long"]];

function drawReasons(shown, now) {
  const by = new Map();
  for (const it of shown) {
    for (const one of it.explanation.not_placed) {
      const all = by.get(one.reason) || { ...one, count: 0, rate: 0, sources: 0, most: 0 };
      const rate = sourceGrowth(now, sourceKey(it), then => then.reasons.get(one.reason) || 0);
      all.rate = rate === null || all.rate === null ? null : all.rate + rate;
      if (one.last && one.count > all.most) [all.most, all.example] = [one.count, example(it, one.last)];
      all.count += one.count;
      all.sources += 1;
      by.set(one.reason, all);
    }
  }
  const rows = [...by.values()].sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.count - a.count).map(it => {
    const [meaning, usual] = REASONS[it.reason] || [""];
    return { cells: [[it.reason, usual ? "" : "warn"], meaning, count(it.count, it.counted_in.slice(0, -1)), perSecond(it.rate),
      number(it.sources), it.example || ""] };
  });
  fill($("reasons"), REASON_HEADS, rows, "Everything was placed.");
}

function example(it, last) {
  const hash = last.first_block_hash && `first hash ${last.first_block_hash}`;
  const group = last.group_idx !== null && `group ${last.group_idx}`;
  const parts = [last.kind, last.blocks && count(last.blocks, "block"), last.medium && `medium ${last.medium}`, group,
    last.spec_kind, last.detail, hash];
  return `worker ${it.instance_id}/${last.dp_rank ?? it.dp_rank}, batch ${last.sequence}: ${parts.filter(Boolean).join(", ")}`;
}

const PARTITION_HEADS = [["model", "name"], ["group", "name"], ["block size", "n"], ["sources", "n"], ["entries", "n"], ["shards", "n"],
  ["engine hashes", "n"], ["bytes per entry", "n"], ["batches waiting", "n"], ["blocks without room", "n"]];

function drawPartitions(now) {
  const rows = [...now.partitions.values()].map(it => {
    const [entries, shards, hashes] = [it.index_entries, it.index_bytes, it.engine_hash_bytes];
    return { cells: [it.model_name, it.routing_group, number(it.block_size), number(it.sources), number(entries), bytes(shards),
      bytes(hashes), entries ? number(Math.round((shards + hashes) / entries)) : NONE, number(it.channel_batches),
      it.refused_blocks ? [number(it.refused_blocks), "bad"] : "0"] };
  });
  fill($("partitions"), PARTITION_HEADS, rows, "There is no index yet: the first source makes one.");
}

const QUERY_HEADS = [["endpoint", ""], ["answers", "n"], ["per second", "n"], ["p50, at most", "n"], ["p99, at most", "n"], ["of", ""]];

function drawQueries(now) {
  const rows = [...now.buckets].map(([endpoint, all]) => {
    const [counts, of] = recent(now, endpoint), answers = all.get(Infinity) || 0;
    const at = q => { const limit = quantile(counts, q); return limit === null ? NONE : time(limit); };
    const rate = growth(now, one => one.buckets.get(endpoint)?.get(Infinity));
    return { cells: [`/${endpoint}`, number(answers), perSecond(rate), at(0.5), at(0.99), answers ? of : ""] };
  });
  fill($("queries"), QUERY_HEADS, rows, "Nobody has asked yet.");
}

function drawDrift(shown) {
  const by = new Map();
  for (const it of shown) {
    for (const [field, seen] of Object.entries(it.explanation.drift)) {
      const [all, sources] = by.get(field) || [0, 0];
      by.set(field, [all + seen, sources + 1]);
    }
  }
  const rows = [...by].sort((a, b) => b[1][0] - a[1][0]).slice(0, ROWS)
    .map(([field, [seen, sources]]) => ({ cells: [field, number(seen), number(sources)] }));
  fill($("drift"), [["field or tag", "long"], ["seen", "n"], ["sources", "n"]], rows, "None.");
}

// --- Matching a prompt

let choices = "";

function choosePartitions(now) {
  const select = $("ask").elements.partition, keys = [...now.partitions.keys()];
  if (keys.join() === choices) return;
  const chosen = select.value;
  choices = keys.join();
  select.replaceChildren(...keys.map(key => {
    const it = now.partitions.get(key);
    return new Option(partitionName(it), key, key === chosen, key === chosen);
  }));
}

// Ids between commas or blanks, or a JSON array of them.
function tokenIds(text) {
  const words = text.trim().replace(/^\[|\]$/g, "").split(/[\s,]+/).filter(Boolean);
  const wrong = words.findIndex(word => !/^\d+$/.test(word) || Number(word) > TOKEN_MAX);
  if (wrong >= 0) {
    const shown = words[wrong].length > 40 ? words[wrong].slice(0, 40) + "…" : words[wrong];
    const range = `ids are whole numbers from 0 to ${number(TOKEN_MAX)}`;
    throw new Error(`“${shown}” at place ${number(wrong + 1)} is not a token id: ${range}.`);
  }
  if (!words.length) throw new Error("Paste at least one token id.");
  return words.map(Number);
}

const TIERS = ["device", "host_pinned", "disk", "external"];
const MATCH_HEADS = [["worker", "n"], ["rank", "n"], ["device", "n"], ["+ host", "n"], ["+ disk", "n"], ["+ external", "n"]];

async function match(form) {
  const { tokens, partition, lora, salt, bigram } = form.elements;
  if (!partition.value) throw new Error("There is no index to ask yet.");
  const ids = tokenIds(tokens.value), [model_name, routing_group] = JSON.parse(partition.value);
  const body = { token_ids: ids, model_name, routing_group, bigram: bigram.checked, depths: true };
  if (lora.value) body.lora_name = lora.value;
  if (salt.value) body.cache_salt = salt.value;
  const answer = await ask("query", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const { block_size, blocks, matches } = json(answer).depths;
  const total = it => TIERS.reduce((all, tier) => all * 1e6 + it[tier], 0);
  matches.sort((a, b) => b.external - a.external || total(b) - total(a));
  const rows = matches.slice(0, ROWS).map(it => ({ cells: [it.instance_id, String(it.dp_rank),
    ...TIERS.map(tier => `${count(it[tier], "block")} (${count(it[tier] * block_size, "token")})`)] }));
  fill($("matches"), MATCH_HEADS, rows, "Nobody holds its first block.");
  const asked = `${count(ids.length, "token")}, ${count(blocks, "complete block")} of ${number(block_size)}`;
  if (!blocks) return `${asked}: too short to match anything.`;
  const more = matches.length > rows.length ? `, the best ${number(rows.length)} of them below` : "";
  return `${asked}; ${matches.length === 1 ? "1 worker holds" : `${number(matches.length)} workers hold`} the beginning${more}.`;
}

$("ask").addEventListener("submit", async event => {
  event.preventDefault();
  put($("told"), "Asking …");
  try {
    put($("told"), await match(event.target));
  } catch (error) {
    $("matches").replaceChildren();
    put($("told"), error.message, "bad");
  }
});

// --- Again and again

function redraw() {
  if (last) draw(last, looks.at(-2));
}
$("filter").addEventListener("input", redraw);
$("trouble").addEventListener("change", redraw);
$("more").addEventListener("click", () => { rowsShown += ROWS; redraw(); });

const clock = date => date.toLocaleTimeString("en-GB");
let answeredAt = null;

async function keepLooking() {
  try {
    const now = await look();
    // A service that has started anew counts from the beginning.
    if (last && now.sources.some(it => it.batches < (last.byKey.get(sourceKey(it))?.batches || 0))) looks.length = 0;
    while (looks.length > 1 && now.at - looks[0].at > WINDOW_S) looks.shift();
    looks.push(now);
    last = now;
    answeredAt = new Date();
    redraw();
    put($("clock"), `as of ${clock(answeredAt)}`);
    $("outage").hidden = true;
    document.querySelector("main").className = "";
  } catch (error) {
    const since = answeredAt ? `since ${clock(answeredAt)}: all below is from then` : "yet";
    put($("outage"), `✖ No answer from the service ${since}. It is asked again every ${EVERY_MS / 1000} s. (${error.message})`);
    $("outage").hidden = false;
    document.querySelector("main").className = "old";
    document.title = "✖ kvtap";
  }
  setTimeout(keepLooking, EVERY_MS);
}
keepLooking();

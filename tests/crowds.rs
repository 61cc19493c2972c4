//! One prompt in the hands of many ranks, in many pieces: the same answers as from lists of who holds what.

mod support;

use std::collections::BTreeSet;

use kvtap::{Config, Copies, Engine, Ingest, Prompt, Reader, SourceConfig};
use support::pack::Choices;
use support::sized;
use support::source::{Event, clear, payload, remove, store};

/// An engine, and a source of which every repeated store counts once.
fn start(shards: usize) -> (Engine, Ingest) {
    let mut config = Config::default();
    config.shards = shards;
    let engine = Engine::new(config).expect("a good configuration");
    let mut config = SourceConfig::new(7);
    (config.block_size, config.copies) = (1, Copies::Set);
    let source = engine.ingest(config).expect("a good source");
    (engine, source)
}

fn apply(source: &mut Ingest, rank: u32, events: impl IntoIterator<Item = Event>) {
    source.apply(&payload(events, rank)).expect("a sound payload");
}

/// Blocks of the prompt, the first after the one before it. Block n has token n and hash n.
fn blocks(range: std::ops::RangeInclusive<u32>) -> Event {
    let hashes: Vec<u64> = range.clone().map(u64::from).collect();
    let parent = range.start() - 1;
    store(&hashes, (parent > 0).then(|| parent.into()), range).set("block_size", 1)
}

fn at_tier(event: Event, tier: usize) -> Event {
    if tier == 0 { event } else { event.set("medium", "CPU") }
}

/// What a rank holds of the prompt at each of two tiers.
type Held = [BTreeSet<u32>; 2];

/// How far it holds the prompt, on the device and with host memory.
fn depths(held: &Held) -> [u32; 2] {
    let is_held = |tiers: usize, block: &u32| held[..tiers].iter().any(|tier| tier.contains(block));
    [1, 2].map(|tiers| (1..).take_while(|block| is_held(tiers, block)).last().unwrap_or(0))
}

fn check(reader: &mut Reader, ranks: &[Held], blocks: u32) {
    let tokens: Vec<u32> = (1..=blocks).collect();
    let mut matches = Vec::new();
    reader.find_matches(&Prompt::new(&tokens, 1), &mut matches);
    let mut seen: Vec<_> =
        matches.iter().map(|found| (found.worker.dp_rank, [found.depths[0], found.depths[1]])).collect();
    seen.sort_unstable();
    let wanted: Vec<_> = (0..).zip(ranks.iter().map(depths)).filter(|&(_, [_, depth])| depth > 0).collect();
    assert_eq!(seen, wanted);
}

/// A random change of one rank, in the list and as an event; `None` if it would change nothing.
fn change(choices: &mut Choices, held: &mut Held, blocks_max: u32) -> Option<Event> {
    if choices.percent(1) {
        held.iter_mut().for_each(BTreeSet::clear);
        return Some(clear());
    }
    let tier = usize::from(choices.percent(20));
    let some = u32::try_from(choices.below(blocks_max as usize)).expect("few") + 1;
    // Growth and holes by turns, so that there are many pieces most of the time, and few now and then.
    if choices.percent(60) {
        return held[tier].remove(&some).then(|| at_tier(remove(&[some.into()]), tier));
    }
    let is_known = some == 1 || held.iter().any(|tier| tier.contains(&(some - 1)));
    let last = blocks_max.min(some + u32::try_from(choices.below(8)).expect("few"));
    is_known.then(|| {
        held[tier].extend(some..=last);
        at_tier(blocks(some..=last), tier)
    })
}

#[test]
fn random_pieces_of_many_ranks_answer_as_lists() {
    const BLOCKS: u32 = 90;
    for shards in [1, 3] {
        let (engine, mut source) = start(shards);
        let mut reader = engine.reader();
        let mut choices = Choices::new(shards as u64);
        let mut ranks: Vec<Held> = (0..70).map(|_| Held::default()).collect();
        for (rank, held) in (0..).zip(&mut ranks) {
            held[0].extend(1..=BLOCKS);
            apply(&mut source, rank, [blocks(1..=BLOCKS)]);
        }
        for round in 0..sized(60_000, 500) {
            let rank = choices.below(ranks.len());
            if let Some(event) = change(&mut choices, &mut ranks[rank], BLOCKS) {
                apply(&mut source, u32::try_from(rank).expect("few"), [event]);
            }
            if round % 250 == 0 {
                source.flush();
                check(&mut reader, &ranks, BLOCKS);
            }
        }
        let entries: usize = ranks.iter().flatten().map(BTreeSet::len).sum();
        assert_eq!(source.entries(), entries);
        for rank in (0..).take(ranks.len()) {
            apply(&mut source, rank, [clear()]);
        }
        source.flush();
        check(&mut reader, &[], BLOCKS);
    }
}

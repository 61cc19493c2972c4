//! Two prompts with equal tokens that must not be taken for one another: adapters, salts, images.

use kvtap::{Reason, Verdict};
use rmpv::Value;

use crate::support::source::{Counts, Event, Seen, Source, list, record, remove, store};

const HELD: [u32; 4] = [1; 4];
const IMAGE_A: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const IMAGE_B: &str = "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Local hashes of a fresh source's only event.
fn local_hashes(event: Event) -> Vec<u64> {
    let seen: Seen = Source::new().apply([event]);
    assert_eq!(seen.verdicts, [Verdict::Place]);
    seen.local_hashes()
}

fn plain() -> Event {
    store(&[1, 2], None, 1..=8)
}

/// B43
#[test]
fn an_adapter_and_the_base_model_do_not_share_blocks() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), store(&[2], None, 1..=4).set("lora_name", "a")]);
    assert_eq!(source.depths(1..=4), HELD);
    assert_eq!(source.depths_in("a", "", 1..=4), HELD);
    assert_eq!(source.depths_in("b", "", 1..=4), [0; 4]);
    source.apply([Event::new("BlockRemoved").set("block_hashes", list![1])]);
    assert_eq!(source.depths(1..=4), [0; 4], "the base model's is gone");
    assert_eq!(source.depths_in("a", "", 1..=4), HELD, "the adapter's is not");
}

/// B43: a number alone names no adapter; it is never read.
#[test]
fn an_adapter_number_without_a_name_is_not_looked_at() {
    for number in [Value::from(7), Value::from("seven"), list![1, 2], Value::Nil] {
        assert_eq!(local_hashes(plain().set("lora_id", number)), local_hashes(plain()));
    }
}

/// B44
#[test]
fn extra_keys_that_identify_nothing_leave_the_block_plain() {
    let entries = [
        Value::Nil,
        list![],
        list![Value::Nil],
        list![record! { "a": 1 }],
        list![1.5, true, 7],
        list![list![]],
        list![list![3, "img"]],
        list![Value::Ext(1, vec![2])],
    ];
    for entry in entries {
        for keys in [list![entry.clone(), entry.clone()], list![entry.clone()], list![]] {
            assert_eq!(
                local_hashes(plain().set("extra_keys", keys.clone())),
                local_hashes(plain()),
                "{keys}"
            );
        }
    }
    assert_eq!(local_hashes(plain().set("extra_keys", Value::Nil)), local_hashes(plain()));
}

/// B44
#[test]
fn every_shape_of_an_identifier_tells_blocks_apart() {
    // In the second block, where no string is a salt.
    let items = [
        Value::from("image"),
        list!["imghash", -3],
        list!["h", 1, 2],
        Value::Binary(vec![1, 2]),
        Value::Binary(vec![]),
        Value::from(IMAGE_A),
        Value::from(IMAGE_B),
    ];
    let mut seen = vec![local_hashes(plain())];
    for item in items {
        let hashes = local_hashes(plain().set("extra_keys", list![Value::Nil, list![item.clone()]]));
        assert_eq!(hashes[0], seen[0][0], "{item}: the first block has none");
        assert!(seen.iter().all(|other| other[1] != hashes[1]), "{item}");
        seen.push(hashes);
    }
    let offset =
        |offset: i32| local_hashes(plain().set("extra_keys", list![Value::Nil, list![list!["h", offset]]]));
    assert_eq!(offset(1), offset(-1), "only the identifier counts, not where it starts");
    assert_eq!(offset(1)[1], seen[3][1]);
}

/// B44
#[test]
fn a_wrong_number_of_entries_is_tolerated() {
    let image = || list![list!["h", 1]];
    let short = local_hashes(plain().set("extra_keys", list![image()]));
    let full = local_hashes(plain().set("extra_keys", list![image(), Value::Nil]));
    let long = local_hashes(plain().set("extra_keys", list![image(), Value::Nil, image(), image()]));
    assert_eq!(short, full);
    assert_eq!(long, full);
    assert_ne!(full[0], local_hashes(plain())[0]);
}

/// B44
#[test]
fn two_images_under_equal_tokens_never_match_each_other() {
    let image = |name: &str| list![Value::Nil, list![list![name, 0]]];
    let (a, b) = (plain().set("extra_keys", image("a")), plain().set("extra_keys", image("b")));
    let mut source = Source::new();
    source.apply([a]);
    let seen = source.apply([b]);
    assert_eq!(seen.verdicts, [Verdict::Place]);
    assert_eq!(source.ingest.counters().filtered(Reason::Rehashed), 1, "the second block is another one");
    assert_eq!(source.depths(1..=8), HELD, "and neither is the text's");
}

/// B44
#[test]
fn the_adapter_name_among_the_extra_keys_is_no_identifier() {
    let named = |keys: Value| local_hashes(plain().set("lora_name", "lora").set("extra_keys", keys));
    let without = local_hashes(plain().set("lora_name", "lora"));
    assert_eq!(named(list![list!["lora"], list!["lora"]]), without);
    assert_ne!(named(list![Value::Nil, list!["lora", "lora"]])[1], without[1], "one item only is skipped");
}

/// B45
#[test]
fn a_hash_stored_again_under_another_salt_replaces_the_first() {
    let mut source = Source::new();
    let salted = |salt: &str| store(&[1], None, 1..=4).set("cache_salt", salt);
    source.apply([salted("a")]);
    assert_eq!(source.depths_in("", "a", 1..=4), HELD);
    source.apply([salted("b")]);
    assert_eq!((source.depths_in("", "a", 1..=4), source.depths_in("", "b", 1..=4)), ([0; 4], HELD));

    let seen = source.apply([store(&[2], Some(1), 5..=8)]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::AmbiguousCacheNamespace)]);
    let seen = source.apply([store(&[2], Some(1), 5..=8).set("cache_salt", "b")]);
    assert_eq!(seen.verdicts, [Verdict::Place], "a salt of its own is not ambiguous");
    assert_eq!(source.depths_in("", "b", 1..=8), [2; 4]);

    source.apply([Event::new("BlockRemoved").set("block_hashes", list![1])]);
    assert_eq!((source.depths_in("", "a", 1..=4), source.depths_in("", "b", 1..=4)), ([0; 4], [0; 4]));
    let filtered = vec![("ambiguous_cache_namespace", 1), ("rehashed", 1)];
    assert_eq!(
        source.counts(),
        Counts { stored: 4, removed: 1, placed: 3, evicted: 1, filtered, ..Counts::default() }
    );
}

/// B45: once out of the map, the hash has one namespace again.
#[test]
fn an_ambiguous_hash_is_clear_again_after_it_left() {
    let mut source = Source::new();
    let salted = |salt: &str| store(&[1], None, 1..=4).set("cache_salt", salt);
    source.apply([salted("a"), salted("b"), Event::new("BlockRemoved").set("block_hashes", list![1])]);
    let seen = source.apply([salted("b"), store(&[2], Some(1), 5..=8)]);
    assert_eq!(seen.verdicts, [Verdict::Place; 2]);
    assert_eq!(source.depths_in("", "b", 1..=8), [2; 4]);
}

/// B59
#[test]
fn sixty_four_hex_digits_are_an_image_not_the_salt() {
    for keys in [list![list![IMAGE_A], Value::Nil], list![list![list![IMAGE_A, 0]], Value::Nil]] {
        let mut source = Source::new();
        let seen = source.apply([plain().set("extra_keys", keys), store(&[3], Some(2), 9..=12)]);
        let image = seen.local_hashes();
        let seen = Source::new().apply([plain(), store(&[3], Some(2), 9..=12)]);
        let text = seen.local_hashes();
        assert_ne!(image[0], text[0], "an identifier of that block");
        assert_eq!(image[1..], text[1..], "and of no other: no namespace was made of it");
    }
}

/// B59: what is not 64 hex digits there is the salt, tagged or not, and reaches the children.
#[test]
fn a_plain_string_in_the_first_block_is_the_salt_of_the_whole_prompt() {
    for text in ["tenant", "dynamo-cache-salt:tenant"] {
        let mut source = Source::new();
        let keys = list![list![IMAGE_A, text], Value::Nil];
        source.apply([store(&[1], None, 1..=4).set("extra_keys", list![list![text]])]);
        source.apply([store(&[2], Some(1), 5..=8)]);
        assert_eq!(source.depths_in("", "tenant", 1..=8), [2; 4], "{text}");
        assert_eq!(source.depths(1..=8), [0; 4]);
        // Below a parent the same string is an identifier.
        let seen = source.apply([store(&[3], Some(2), 9..=12).set("extra_keys", list![list![text]])]);
        let other = source.apply([store(&[4], Some(2), 9..=12)]);
        assert_ne!(seen.local_hashes(), other.local_hashes());
        // An image beside it stays an image.
        let image = Source::new().apply([store(&[1], None, 1..=4).set("extra_keys", keys)]);
        let salted = Source::new().apply([store(&[1], None, 1..=4).set("cache_salt", "tenant")]);
        assert_ne!(image.local_hashes(), salted.local_hashes());
    }
}

#[test]
fn a_block_that_comes_again_has_the_salt_with_which_it_comes() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4).set("cache_salt", "a"), remove(&[1])]);
    source.apply([store(&[1], None, 1..=4), store(&[2], Some(1), 5..=8)]);
    assert_eq!(source.depths_in("", "", 1..=8), [2; 4], "its child has none either");
    assert_eq!(source.depths_in("", "a", 1..=8), [0; 4]);
    source.apply([remove(&[2]), remove(&[1]), store(&[1], None, 1..=4).set("cache_salt", "b")]);
    source.apply([store(&[2], Some(1), 5..=8)]);
    assert_eq!((source.depths_in("", "b", 1..=8), source.depths_in("", "", 1..=8)), ([2; 4], [0; 4]));
}

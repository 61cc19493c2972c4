//! Conversations: who asks next, with which tokens. A few system prompts are shared; a conversation comes back with all
//! that was said and something new, until it is too long and another takes its place.

use std::sync::Arc;

use fastrand::Rng;

use super::event::{Identity, Lora};

const SYSTEM_PROMPTS: usize = 4;
const VOCABULARY: u32 = 151_936;
const ADAPTERS: [&str; 3] = ["sql-lora", "chat-lora", "tool-lora"];
const SALTS: [&str; 3] = ["tenant-a", "tenant-b", "tenant-c"];

/// One request: a prompt and the reply that the model will give.
#[derive(Debug)]
pub(super) struct Turn {
    conversation: usize,
    /// Prompt, then reply.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_tokens: usize,
    pub(super) identity: Arc<Identity>,
}

#[derive(Debug, Default)]
struct Conversation {
    tokens: Vec<u32>,
    identity: Arc<Identity>,
    waiting: bool,
}

#[derive(Debug)]
pub(super) struct Traffic {
    rng: Rng,
    system_prompts: Vec<Vec<u32>>,
    conversations: Vec<Conversation>,
    clients: Clients,
    started: u32,
}

/// Who is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients {
    pub(super) conversations: usize,
    /// Longest conversation, replies included.
    pub(super) tokens_max: usize,
    /// Some with adapters and cache salts.
    pub(super) have_namespaces: bool,
}

impl Traffic {
    pub(super) fn new(mut rng: Rng, clients: Clients) -> Self {
        let system_prompts = (0..SYSTEM_PROMPTS)
            .map(|_| {
                let count = rng.usize(clients.tokens_max / 8..=clients.tokens_max / 3);
                tokens(&mut rng, count)
            })
            .collect();
        let conversations = (0..clients.conversations).map(|_| Conversation::default()).collect();
        Self { rng, system_prompts, conversations, clients, started: 0 }
    }

    /// A request of a conversation that has none running; `None` if all have.
    pub(super) fn next_turn(&mut self) -> Option<Turn> {
        let number = self.idle()?;
        let (asked, replied) = (self.some(), self.some());
        let old = &self.conversations[number].tokens;
        if old.is_empty() || old.len() + asked + replied > self.clients.tokens_max {
            self.conversations[number] = self.start();
        }
        let conversation = &mut self.conversations[number];
        conversation.waiting = true;
        let mut all = conversation.tokens.clone();
        all.extend(tokens(&mut self.rng, asked + replied));
        let prompt_tokens = all.len() - replied;
        let identity = Arc::clone(&conversation.identity);
        Some(Turn { conversation: number, tokens: all, prompt_tokens, identity })
    }

    /// The same prompt once more with another reply, as clients do that sample several. They start together, so that the
    /// engine computes their blocks twice. `None` for most, and if all conversations are waiting.
    pub(super) fn sample_again(&mut self, turn: &Turn) -> Option<Turn> {
        if self.rng.u32(0..8) > 0 {
            return None;
        }
        let number = self.idle()?;
        let replied = turn.tokens.len() - turn.prompt_tokens;
        let mut all = turn.tokens[..turn.prompt_tokens].to_vec();
        all.extend(tokens(&mut self.rng, replied));
        let identity = Arc::clone(&turn.identity);
        self.conversations[number] =
            Conversation { tokens: Vec::new(), identity: Arc::clone(&identity), waiting: true };
        Some(Turn { conversation: number, tokens: all, prompt_tokens: turn.prompt_tokens, identity })
    }

    fn idle(&mut self) -> Option<usize> {
        let idle: Vec<usize> =
            (0..self.conversations.len()).filter(|&number| !self.conversations[number].waiting).collect();
        self.rng.choice(idle)
    }

    /// Tokens of a question or a reply.
    fn some(&mut self) -> usize {
        self.rng.usize(1..=(self.clients.tokens_max / 8).max(1))
    }

    /// The reply was given in full.
    pub(super) fn finish(&mut self, turn: Turn) {
        let conversation = &mut self.conversations[turn.conversation];
        conversation.tokens = turn.tokens;
        conversation.waiting = false;
    }

    /// The request was given up; its client will ask something else.
    pub(super) fn abort(&mut self, turn: &Turn) {
        self.conversations[turn.conversation].waiting = false;
    }

    fn start(&mut self) -> Conversation {
        let tokens = self.system_prompts[self.rng.usize(0..SYSTEM_PROMPTS)].clone();
        self.started += 1;
        let session_id = self.rng.bool().then(|| format!("session-{}", self.started));
        let mut identity = Identity { session_id, ..Identity::default() };
        if self.clients.have_namespaces {
            // As many conversations have an adapter as have none; salts likewise.
            let adapter = self.rng.usize(0..2 * ADAPTERS.len());
            let lora = |(id, name): (u32, &&str)| Lora { id, name: (*name).to_owned() };
            identity.lora = (1..).zip(&ADAPTERS).nth(adapter).map(lora);
            let salt = self.rng.usize(0..2 * SALTS.len());
            identity.cache_salt = SALTS.get(salt).map(|salt| (*salt).to_owned());
        }
        Conversation { tokens, identity: Arc::new(identity), waiting: false }
    }
}

fn tokens(rng: &mut Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| rng.u32(0..VOCABULARY)).collect()
}

//! Which part of a conversation is to be summarised, and the request that asks the model for it. Everything here blocks:
//! it runs on the blocking pool, alone with the transcript file.
//!
//! The request is the session's usual one, cut off behind the part: what the provider has in its cache begins so.

use std::io;
use std::sync::Arc;

use domain::body::TurnBody;
use domain::budget::{Ratio, budget};
use domain::compaction::archive::{archive_instruction, raw};
use domain::compaction::{Cut, Room, Spared, Stays, behind_boundary, cut};
use domain::history::{Kept, Render, Runtime, Trim};
use domain::ids::{SessionKey, TurnId};
use domain::keys::{Key, SessionKind};
use domain::prompt::{Built, Frame, RequestParts, Round, chat_request, past_of};
use domain::request::ChatRequest;
use domain::scope::Scope;
use domain::transcript::{Entry, Position, Transcript, read_entry};
use protocol::edit::Part;

use crate::reading::{Reading, Source};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::turn::COMPACTIONS_MAX;

/// How often a smaller part is tried when one does not fit into a request.
const TRIES: u32 = 3;
/// How many parts that fill a request are summarised; what comes before them is left out as it is. One turn makes as many.
const PARTS_MAX: u64 = COMPACTIONS_MAX as u64;

/// What is to be summarised.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Of whose conversation.
    pub key: SessionKey,
    /// What its turns may do.
    pub kind: SessionKind,
    /// Its model.
    pub settings: Settings,
    /// Where it works.
    pub scope: Option<Arc<Scope>>,
    /// A turn of which the part has nothing.
    pub turn: TurnId,
    /// How much of it stays.
    pub stays: Wanted,
    /// What stays in any case.
    pub spared: Spared,
    /// Nothing is done unless it has more messages than that behind its last boundary.
    pub more_than: Option<usize>,
    /// What the summary is to keep above all.
    pub asked: Option<String>,
}

/// How much of a conversation stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// At least so many of the last messages.
    Messages(u32),
    /// So much that a whole request has no more tokens.
    Request(u64),
}

/// What a summary needs.
#[derive(Debug)]
pub struct Prepared {
    /// The part.
    pub part: Part,
    /// What the model is asked, unless no request holds the part.
    pub request: Option<ChatRequest>,
    /// The part as text.
    pub raw: Arc<str>,
}

/// Prepares the summary of what has to go; `None` if nothing has.
pub fn prepare(shared: &Shared, read: &Reading, source: &Source, wish: &Wish) -> io::Result<Option<Prepared>> {
    let config = &shared.config;
    let project = wish.scope.as_ref().map(|scope| &*scope.project_path);
    let frame = shared.system.frame(wish.kind, &Key::from(&wish.key), project);
    let replies = read.window.transcript.entries().iter().rev().filter_map(Entry::assistant);
    let preset = &wish.settings.preset;
    let most = budget(preset.context_window_tokens, preset.max_tokens, config.context_block_limit);
    let most = Ratio::of(replies.map(|reply| &*reply.message)).estimated(most);
    let stays = match wish.stays {
        Wanted::Messages(count) => Stays::Messages(count),
        Wanted::Request(tokens) => Stays::Tokens(tokens.saturating_sub(frame.tokens)),
    };
    let tree = &read.tree;
    if wish.more_than.is_some_and(|most| behind_boundary(tree) <= most) {
        return Ok(None);
    }
    let entry =
        |at: Position| -> io::Result<Option<Entry>> { Ok(read_entry(tree, at, &source.range(tree.place(at))?)) };
    let key = Key::from(&wish.key);
    let render = render(shared, &key);
    let part = most.saturating_sub(frame.tokens);
    let mut room = Room { part, all: part.saturating_mul(PARTS_MAX) };
    let mut prepared = None;
    for _ in 0..TRIES {
        let Some(Cut { first, last, messages, shown, as_it_is, .. }) =
            cut(tree, stays, wish.spared, room, &render, entry)?
        else {
            return Ok(None);
        };
        let (part, raw) = (Part { first, last }, raw(messages, &shown.iter().collect::<Vec<_>>()).into());
        if as_it_is {
            return Ok(Some(Prepared { part, request: None, raw }));
        }
        let built = request(shared, &frame, wish, shown);
        let fits = built.turns_left_out == 0 && built.tokens <= most;
        prepared = Some(Prepared { part, request: fits.then_some(built.request), raw });
        if fits {
            break;
        }
        room.part /= 2;
    }
    Ok(prepared)
}

fn render<'a>(shared: &'a Shared, key: &'a Key) -> Render<'a> {
    let runtime = Runtime { key, zone: &shared.config.reset.zone };
    Render { runtime: shared.config.runtime_context.then_some(runtime), trim: Trim::Usual }
}

fn request(shared: &Shared, frame: &Frame, wish: &Wish, shown: Vec<Entry>) -> Built {
    let (config, system, preset) = (&shared.config, &shared.system, &wish.settings.preset);
    let (key, past) = (Key::from(&wish.key), system.past());
    let parts = RequestParts {
        render: render(shared, &key),
        mark: None,
        model: &preset.model,
        max_tokens: preset.max_tokens,
        temperature: preset.temperature,
        effort: preset.effort.as_ref(),
        context_window_tokens: preset.context_window_tokens,
        context_block_limit: config.context_block_limit,
        frame,
        past: &past_of(&past, &key, system.remembers(wish.kind)),
        transcript: &Transcript::part(shown),
        turn: wish.turn,
        body: &TurnBody::text(archive_instruction(wish.asked.as_deref())),
        round: Round::Archive,
        goal: None,
        nudge: None,
        begins_anew: false,
    };
    chat_request(&parts, &mut Kept::default())
}

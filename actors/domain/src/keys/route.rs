//! From a message to the session that it belongs to.

use std::collections::BTreeMap;

use super::{Base, Binding, Branch, Key, Place, bind};
use crate::ids::{BadId, SessionKey};

/// How the direct messages of several people share sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmScope {
    /// All in the main session.
    Main,
    /// A session for each person, whatever the platform.
    PerPeer,
    /// A session for each person and platform.
    PerChannelPeer,
    /// A session for each person, platform and account of the bot.
    PerAccountChannelPeer,
}

/// The names of one person on several platforms: a name of the owner's choice, then ids, as they are or as
/// `<channel>:<id>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityLinks(pub BTreeMap<String, Vec<String>>);

/// What a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// One person.
    Direct,
    /// A group.
    Group,
    /// A room (`channel` in keys).
    Room,
}

/// With whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer<'a> {
    /// What it is.
    pub kind: PeerKind,
    /// Its id on the platform.
    pub id: &'a str,
}

/// A message, as far as its session depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound<'a> {
    /// Platform.
    pub channel: &'a str,
    /// Account of the bot there.
    pub account: Option<&'a str>,
    /// With whom.
    pub peer: Peer<'a>,
    /// The conversation that this one, a thread, belongs to.
    pub parent: Option<Peer<'a>>,
    /// Thread in the conversation.
    pub thread: Option<&'a str>,
    /// Discord server.
    pub guild: Option<&'a str>,
    /// The sender's roles there.
    pub roles: Vec<&'a str>,
    /// Slack or Teams workspace.
    pub team: Option<&'a str>,
}

/// Settings of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// How direct messages share sessions.
    pub scope: DmScope,
    /// Who is the same person.
    pub links: IdentityLinks,
    /// The last part of the main session's key.
    pub main_key: String,
    /// Which agent a message is for.
    pub bindings: Vec<Binding>,
    /// Whether the main session is part of the unified one.
    pub unified: bool,
}

// === impl Inbound ===

impl<'a> Inbound<'a> {
    /// A message about which nothing else is known.
    pub fn of(channel: &'a str, peer: Peer<'a>) -> Self {
        Self { channel, account: None, peer, parent: None, thread: None, guild: None, roles: Vec::new(), team: None }
    }
}

// === impl Router ===

impl Router {
    /// The session of a message. Fails only on ids with control characters or of more than a key may hold.
    pub fn route(&self, message: &Inbound<'_>) -> Result<SessionKey, BadId> {
        let agent = bind::agent(&self.bindings, message);
        let (channel, id) = (message.channel.to_owned(), escaped(message.peer.id, false));
        let place = match message.peer.kind {
            PeerKind::Direct => self.direct(message),
            PeerKind::Group => Place::Group { channel, id },
            PeerKind::Room => Place::Room { channel, id },
        };
        let branch = message.thread.map(|thread| match message.channel {
            "telegram" => Branch::Topic(thread.to_owned()),
            _ => Branch::Thread(thread.to_owned()),
        });
        let key = Key::canonical(&Key { base: Base::Agent(agent, place), branch, heartbeat: false }.to_string())?;
        Ok(if self.unified { Key::unified(key, &self.main_key) } else { key })
    }

    fn direct(&self, message: &Inbound<'_>) -> Place {
        let peer = match self.links.name_of(message.channel, message.peer.id) {
            Some(name) => name.to_owned(),
            None => self.stranger(message),
        };
        let channel = Some(message.channel.to_owned());
        let account = Some(message.account.unwrap_or(bind::ACCOUNT).to_owned());
        match self.scope {
            DmScope::Main => Place::Main(self.main_key.clone()),
            DmScope::PerPeer => Place::Direct { channel: None, account: None, peer },
            DmScope::PerChannelPeer => Place::Direct { channel, account: None, peer },
            DmScope::PerAccountChannelPeer => Place::Direct { channel, account, peer },
        }
    }
}

impl Router {
    /// The id of somebody who has no other name: never one of those names, and never that of another.
    fn stranger(&self, message: &Inbound<'_>) -> String {
        let lowered = self.scope == DmScope::PerPeer && tells_case_apart(message.channel);
        let id = escaped(message.peer.id, lowered);
        if !self.links.0.keys().any(|name| name.to_lowercase() == id.to_lowercase()) {
            return id;
        }
        let mut letters = id.chars();
        let first = letters.next().map(encoded).unwrap_or_default();
        format!("{first}{}", letters.as_str())
    }
}

/// Whether two ids there may differ by case alone.
pub(super) fn tells_case_apart(channel: &str) -> bool {
    channel == "webhook"
}

/// An id as part of a key: two ids never become one, and none passes for a thread of another. `lowered` says that the
/// key does not keep case.
fn escaped(id: &str, lowered: bool) -> String {
    let like_a_branch = id.contains(":thread:") || id.contains(":topic:") || id.ends_with(":heartbeat");
    let is_kept =
        |letter: char| letter != '%' && !(like_a_branch && letter == ':') && !(lowered && letter.is_uppercase());
    id.chars().map(|letter| if is_kept(letter) { letter.to_string() } else { encoded(letter) }).collect()
}

/// `%3a` for `:`.
fn encoded(letter: char) -> String {
    letter.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect()
}

// === impl IdentityLinks ===

impl IdentityLinks {
    /// What the owner calls that person.
    fn name_of(&self, channel: &str, id: &str) -> Option<&str> {
        let full = format!("{channel}:{id}");
        let same = |known: &str, id: &str| match tells_case_apart(channel) {
            true => known == id,
            false => known.eq_ignore_ascii_case(id),
        };
        let is = |known: &String| same(known, id) || same(known, &full);
        self.0.iter().find(|(_, ids)| ids.iter().any(is)).map(|(name, _)| name.as_str())
    }
}

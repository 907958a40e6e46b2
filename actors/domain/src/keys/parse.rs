//! A key from its text.
//!
//! What a stranger can choose of a key (the id of a person, chat or thread) stands last, so it is looked at last: no
//! such id makes its conversation pass for another kind with more rights.

use uuid::Uuid;

use super::route::tells_case_apart;
use super::{AgentId, Base, Branch, Key, Place, UNIFIED_KEY};
use crate::ids::{BadId, SessionKey};

/// Channels of nanobot that write a thread behind the chat without a word between.
const PLAIN_THREADS: [&str; 3] = ["slack", "mattermost", "feishu"];

// === impl Key ===

impl Key {
    /// Reads a key. Never fails: what has no known form is kept as it is.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        match strip_word(text, "agent") {
            Some(rest) => agent_key(rest).unwrap_or_else(|| Self::of(Base::Other(text.to_lowercase()))),
            None => plain_key(text),
        }
    }

    /// The one spelling of all that name the same conversation, so that there is one owner for each.
    pub fn canonical(text: &str) -> Result<SessionKey, BadId> {
        SessionKey::new(&Self::parse(text).to_string())
    }
}

impl From<&SessionKey> for Key {
    fn from(key: &SessionKey) -> Self {
        Self::parse(key.as_str())
    }
}

fn agent_key(rest: &str) -> Option<Key> {
    let (agent, rest) = rest.split_once(':')?;
    if rest.is_empty() {
        return None;
    }
    let agent = AgentId::new(agent);
    let known = |key: &Key| !matches!(key.base, Base::Agent(_, Place::Other(_)));
    if let Some(inner) = rest.strip_suffix(":heartbeat").filter(|inner| !inner.is_empty()) {
        let key = Key { heartbeat: true, ..in_agent(agent.clone(), inner) };
        if known(&key) {
            return Some(key);
        }
    }
    Some(in_agent(agent, rest))
}

fn in_agent(agent: AgentId, rest: &str) -> Key {
    let (base, branch) = split_branch(rest);
    let place = place(base);
    let keep = keeps_case(&place);
    let threads_keep = keep || place.whereabouts().0 == Some("matrix");
    let branch = branch.map(|branch| if threads_keep { branch } else { lower_branch(branch) });
    let place = if keep { place } else { lower(place) };
    Key { base: Base::Agent(agent, place), branch, heartbeat: false }
}

fn plain_key(text: &str) -> Key {
    let exact = match text {
        "global" => Some(Base::Global),
        "unknown" => Some(Base::Unknown),
        "heartbeat" => Some(Base::Heartbeat),
        UNIFIED_KEY => Some(Base::Unified),
        _ => None,
    };
    if let Some(base) = exact {
        return Key::of(base);
    }
    if let Some(rest) = text.strip_prefix("acp-bridge").filter(|rest| rest.is_empty() || rest.starts_with(':')) {
        return Key::of(Base::AcpBridge(rest.to_owned()));
    }
    let Some((word, rest)) = text.split_once(':').filter(|(word, rest)| !word.is_empty() && !rest.is_empty()) else {
        return Key::of(Base::Other(text.to_owned()));
    };
    let own = rest.to_owned();
    Key::of(match word {
        "websocket" => Base::WebSocket(own),
        "api" => Base::Api(own),
        "cli" => Base::Cli(own),
        "hook" => Base::Hook(own),
        "cron" => Base::Cron(own),
        "dream" => Base::Dream(own),
        "node" => Base::Node(own),
        _ => return chat_key(word, rest),
    })
}

fn chat_key(channel: &str, rest: &str) -> Key {
    let (chat, branch) = match (split_branch(rest), rest.split_once(':')) {
        ((base, Some(branch)), _) => (base, Some(branch)),
        ((_, None), Some((chat, thread)))
            if PLAIN_THREADS.contains(&channel) && !chat.is_empty() && !thread.is_empty() =>
        {
            (chat, Some(Branch::Reply(thread.to_owned())))
        }
        ((base, None), _) => (base, None),
    };
    let base = Base::Chat { channel: channel.to_owned(), chat: chat.to_owned() };
    Key { base, branch, heartbeat: false }
}

/// What comes before the first `:thread:` or `:topic:`, and what comes after.
fn split_branch(text: &str) -> (&str, Option<Branch>) {
    let thread = text.split_once(":thread:").map(|(base, id)| (base, Branch::Thread(id.to_owned()), id));
    let topic = text.split_once(":topic:").map(|(base, id)| (base, Branch::Topic(id.to_owned()), id));
    let first = [thread, topic].into_iter().flatten().min_by_key(|(base, ..)| base.len());
    match first {
        Some((base, branch, id)) if !base.is_empty() && !id.is_empty() => (base, Some(branch)),
        Some(_) | None => (text, None),
    }
}

/// `rest` behind `word:`, whatever its case.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_once(':').filter(|(found, _)| found.eq_ignore_ascii_case(word)).map(|(_, rest)| rest)
}

/// Reads what stands behind the agent. Names are lower-cased, ids are not yet.
fn place(rest: &str) -> Place {
    let parts: Vec<String> = rest.splitn(5, ':').map(str::to_lowercase).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let tail = |n: usize| rest.splitn(n + 1, ':').nth(n).filter(|tail| !tail.is_empty()).map(str::to_owned);
    let is_direct = |word: &str| word == "direct" || word == "dm";
    let found = match parts.as_slice() {
        [main] => Some(Place::Main((*main).to_owned())),
        ["cron", ..] => tail(1).map(cron),
        ["subagent", ..] => tail(1).map(Place::Subagent),
        ["hook", ..] => tail(1).map(Place::Hook),
        ["dashboard", ..] => tail(1).map(Place::Dashboard),
        ["acp", ..] => tail(1).map(Place::Acp),
        [word, ..] if is_direct(word) => tail(1).map(|peer| Place::Direct { channel: None, account: None, peer }),
        ["", ..] | [_, "", ..] => None,
        [channel, word, ..] if is_direct(word) => direct(channel, None, tail(2)),
        [channel, "group", ..] => tail(2).map(|id| Place::Group { channel: (*channel).to_owned(), id }),
        [channel, "channel", ..] => tail(2).map(|id| Place::Room { channel: (*channel).to_owned(), id }),
        [channel, account, word, _, ..] if is_direct(word) => direct(channel, Some(account), tail(3)),
        [_, channel, account, word, _] if is_direct(word) => direct(channel, Some(account), tail(4)),
        [_, channel, _, "group", _] => tail(4).map(|id| Place::Group { channel: (*channel).to_owned(), id }),
        [_, channel, _, "channel", _] => tail(4).map(|id| Place::Room { channel: (*channel).to_owned(), id }),
        [word, ..] => api(word, tail(1)),
        [] => None,
    };
    found.unwrap_or_else(|| Place::Other(rest.to_owned()))
}

fn direct(channel: &str, account: Option<&str>, peer: Option<String>) -> Option<Place> {
    Some(Place::Direct { channel: Some(channel.to_owned()), account: account.map(str::to_owned), peer: peer? })
}

fn cron(rest: String) -> Place {
    match rest.split_once(":run:").filter(|(job, run)| !job.is_empty() && !run.is_empty()) {
        Some((job, run)) => Place::Cron { job: job.to_owned(), run: Some(run.to_owned()) },
        None => Place::Cron { job: rest, run: None },
    }
}

fn api(word: &str, rest: Option<String>) -> Option<Place> {
    let rest = rest?;
    if let Some(prefix) = word.strip_suffix("-user").filter(|prefix| !prefix.is_empty()) {
        return Some(Place::ApiUser { prefix: prefix.to_owned(), user: rest });
    }
    let is_uuid = Uuid::try_parse(&rest).is_ok_and(|uuid| uuid.hyphenated().to_string() == rest.to_lowercase());
    is_uuid.then(|| Place::ApiRequest { prefix: word.to_owned(), id: rest })
}

/// Whether ids there may differ by case alone.
fn keeps_case(place: &Place) -> bool {
    match place {
        Place::Direct { channel: Some(channel), .. } => tells_case_apart(channel),
        Place::Group { channel, .. } => channel == "signal" || channel == "matrix" || tells_case_apart(channel),
        Place::Room { channel, .. } => channel == "matrix" || tells_case_apart(channel),
        Place::Direct { channel: None, .. }
        | Place::Main(_)
        | Place::Cron { .. }
        | Place::Subagent(_)
        | Place::Hook(_)
        | Place::Dashboard(_)
        | Place::Acp(_)
        | Place::ApiUser { .. }
        | Place::ApiRequest { .. }
        | Place::Other(_) => false,
    }
}

fn lower_branch(branch: Branch) -> Branch {
    match branch {
        Branch::Thread(id) => Branch::Thread(id.to_lowercase()),
        Branch::Topic(id) => Branch::Topic(id.to_lowercase()),
        Branch::Reply(id) => Branch::Reply(id.to_lowercase()),
    }
}

fn lower(place: Place) -> Place {
    match place {
        Place::Main(key) => Place::Main(key),
        Place::Direct { channel, account, peer } => Place::Direct { channel, account, peer: peer.to_lowercase() },
        Place::Group { channel, id } => Place::Group { channel, id: id.to_lowercase() },
        Place::Room { channel, id } => Place::Room { channel, id: id.to_lowercase() },
        Place::Cron { job, run } => Place::Cron { job: job.to_lowercase(), run: run.map(|run| run.to_lowercase()) },
        Place::Subagent(id) => Place::Subagent(id.to_lowercase()),
        Place::Hook(id) => Place::Hook(id.to_lowercase()),
        Place::Dashboard(id) => Place::Dashboard(id.to_lowercase()),
        Place::Acp(id) => Place::Acp(id.to_lowercase()),
        Place::ApiUser { prefix, user } => Place::ApiUser { prefix, user: user.to_lowercase() },
        Place::ApiRequest { prefix, id } => Place::ApiRequest { prefix, id: id.to_lowercase() },
        Place::Other(rest) => Place::Other(rest.to_lowercase()),
    }
}

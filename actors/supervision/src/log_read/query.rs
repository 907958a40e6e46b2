//! What is asked of the log, and its form as the query of an address:
//! `path=…&kind=a,b&event=a,b&session=…&turn=…&since=…&until=…&after=…&tail=…`.

use domain::ids::{SessionKey, TurnId};
use protocol::supervision::{Event, EventName, Kind};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most events that [`Query::tail`] may ask for.
const TAIL_MAX: usize = 100_000;

/// Which events are wanted; an empty filter wants all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `*` stands for any text, `/` included; `?` for one character.
    pub path: Option<String>,
    /// Any of these; empty: all.
    pub kinds: Vec<Kind>,
    /// Any of these; empty: all.
    pub events: Vec<EventName>,
    /// Of this session.
    pub session: Option<SessionKey>,
    /// Of this turn.
    pub turn: Option<TurnId>,
    /// Not before this time, in the log's own form (`2026-11-29T20:53:29.000001Z`; any prefix of it works).
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
}

impl Filter {
    /// Whether `event` is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        self.path.as_ref().is_none_or(|glob| glob_matches(glob, &event.path.0))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && (self.events.is_empty() || self.events.contains(&event.event))
            && self.session.as_ref().is_none_or(|key| event.session.as_ref() == Some(key))
            && self.turn.is_none_or(|turn| event.turn == Some(turn))
            && self.since.as_ref().is_none_or(|since| *event.ts >= **since)
            && self.until.as_ref().is_none_or(|until| *event.ts < **until)
    }
}

/// `*` matches any text, `?` one character.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        if glob.get(g) == Some(&'*') {
            retry = Some((g, t));
            g += 1;
        } else if glob.get(g).is_some_and(|c| *c == '?' || *c == text[t]) {
            g += 1;
            t += 1;
        } else if let Some((star, from)) = retry {
            retry = Some((star, from + 1));
            g = star + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

/// A filter, and where to begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Which events.
    pub filter: Filter,
    /// Only those after the event with this id; one that is no longer kept asks for all.
    pub after: Option<String>,
    /// Only the last so many of those that are there at the start.
    pub tail: Option<usize>,
}

/// Why a query is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct BadQuery {
    /// The parameter.
    pub name: String,
    /// What is wrong, or what is expected.
    pub why: String,
}

impl Query {
    /// Reads the parameters of an address. Parameters that are not of the log's are left to others.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, BadQuery> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let bad = |why: String| BadQuery { name: name.to_owned(), why };
            let filter = &mut query.filter;
            match name {
                "path" => filter.path = Some(value.to_owned()),
                "kind" => filter.kinds = words(value).map_err(bad)?,
                "event" => filter.events = words(value).map_err(bad)?,
                "session" => {
                    filter.session = Some(value.parse().map_err(|why: domain::ids::BadId| bad(why.to_string()))?)
                }
                "turn" => filter.turn = Some(value.parse().map_err(|why: domain::ids::BadId| bad(why.to_string()))?),
                "since" => filter.since = Some(instant(value).map_err(bad)?),
                "until" => filter.until = Some(instant(value).map_err(bad)?),
                "after" => query.after = Some(value.to_owned()),
                "tail" => {
                    let count = value.parse().ok().filter(|count| *count <= TAIL_MAX);
                    let count = count.ok_or_else(|| bad(format!("a number up to {TAIL_MAX} is expected")))?;
                    query.tail = Some(count);
                }
                _ => {}
            }
        }
        Ok(query)
    }

    /// The parameters that [`parse`](Self::parse) reads back.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let filter = &self.filter;
        let list = |words: Vec<&'static str>| (!words.is_empty()).then(|| words.join(","));
        let pairs = [
            ("path", filter.path.clone()),
            ("kind", list(filter.kinds.iter().map(|kind| kind.word()).collect())),
            ("event", list(filter.events.iter().map(|event| event.word()).collect())),
            ("session", filter.session.as_ref().map(|key| key.as_str().to_owned())),
            ("turn", filter.turn.map(|turn| turn.to_string())),
            ("since", filter.since.clone()),
            ("until", filter.until.clone()),
            ("after", self.after.clone()),
            ("tail", self.tail.map(|count| count.to_string())),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Comma-separated words of an enum.
fn words<T: DeserializeOwned>(list: &str) -> Result<Vec<T>, String> {
    let word =
        |word: &str| serde_json::from_value(Value::String(word.trim().to_owned())).map_err(|why| why.to_string());
    list.split(',').map(word).collect()
}

/// A point in time in the log's own form.
fn instant(text: &str) -> Result<String, String> {
    let at: jiff::Timestamp = text.parse().map_err(|_| "a time such as 2026-11-29T20:53:00Z is expected".to_owned())?;
    Ok(format!("{at:.6}"))
}

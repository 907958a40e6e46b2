//! Gathers what is known of a session or a turn, for [`supervision::why`]: from the log, the dead letters' own events,
//! the journal, the live session and the transcripts. Works with and without a running gateway.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use domain::ids::{SessionKey, TurnId};
use domain::transcript::{TurnClose, read_lines, turn_record};
use protocol::journal::{DeadLetter, Journal, LetterKind};
use protocol::session::{Mail, TurnRecord};
use protocol::supervision::{Event, Kind};
use protocol::transcripts::{Summary, TranscriptReader};
use protocol::turn::TurnResult;
use supervision::log::timestamp;
use supervision::log_read::Events;
use supervision::ports::{Disk, Offload, offload};
use supervision::why::{Facts, Letter, Standing, Story, Subject, Tried, TurnState, Undelivered, Window, tell};
use tokio::sync::oneshot;

use super::sessions::all_known;
use crate::control::{self, Asked};
use crate::doors::Doors;

/// Events of one session that are looked at, the newest.
const OWN_EVENTS_MAX: usize = 20_000;
/// Events about the whole process that are looked at, the newest.
const SHARED_EVENTS_MAX: usize = 5_000;
/// Transcripts that are searched for a turn of which no event tells.
const SEARCHED_MAX: usize = 5_000;
/// Names that somebody may have meant.
const NAMES_MAX: usize = 100_000;
/// A transcript may end this much before one of its turns began: clocks are set.
const CLOCK_SLACK_MS: u64 = 10 * 60 * 1000;

/// Where to look.
#[derive(Clone)]
pub struct Sources {
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// The blocking pool.
    pub offload: Arc<dyn Offload>,
    /// Directory of the supervision log.
    pub logs: PathBuf,
    /// The transcripts.
    pub transcripts: Arc<dyn TranscriptReader>,
}

/// Tells the story. `journal` is missing when it cannot be opened, `doors` when no gateway runs.
pub async fn why(
    sources: &Sources,
    journal: Option<&dyn Journal>,
    doors: Option<&Doors>,
    subject: Subject,
    window: &Window,
) -> io::Result<Story> {
    let letters = match journal {
        Some(journal) => journal.dead_letters().await.unwrap_or_default(),
        None => Vec::new(),
    };
    // Otherwise it is told of what is known so far.
    all_known(&*sources.transcripts).await;
    let letters: Vec<DeadLetter> = letters.into_iter().filter(|letter| is_of(letter, &subject)).collect();
    // A turn that waits stands in no log and no transcript yet.
    let open_in = match (&subject, journal) {
        (Subject::Turn(turn), Some(journal)) => journal.find_turn(*turn).await.ok().flatten(),
        (Subject::Turn(_) | Subject::Session(_), _) => None,
    };
    let hint = letters.first().map(|letter| letter.key.clone()).or_else(|| open_in.clone());
    let (looking, wanted) = (sources.clone(), subject.clone());
    let found = blocking(sources, move || find(&looking, &wanted, hint)).await?;
    let mut facts = Facts {
        serving: doors.is_some(),
        key: found.key,
        transcript: found.transcript,
        turn: found.turn.unwrap_or_default(),
        ended: found.ended,
        letters: letters.iter().map(letter).collect(),
        ..Facts::default()
    };
    if let Subject::Turn(turn) = subject {
        facts.accepted = accepted(turn);
        if letters.iter().any(|letter| letter.kind == LetterKind::Turn) {
            facts.turn = TurnState::Dead;
        }
    }
    if let (Some(journal), Some(key)) = (journal, facts.key.clone()) {
        let open_turn = if let Subject::Turn(turn) = subject { open_in.is_some().then_some(turn) } else { None };
        facts.standing = Some(standing(journal, doors, &key, &subject, open_turn, &mut facts.turn).await);
        facts.undelivered = undelivered(journal, doors, key, &subject).await;
    }
    let (looking, known) = (sources.clone(), letters);
    let mut events = found.events;
    if !known.is_empty() {
        let kept = blocking(sources, move || letter_events(&looking, &known)).await?;
        let there: HashSet<String> = events.iter().map(|event| event.id.clone()).collect();
        // What the log no longer has is older than what it has.
        let older: Vec<Event> = kept.into_iter().filter(|event| !there.contains(&event.id)).collect();
        events.splice(0..0, older);
    }
    let mut story = tell(&subject, &events, &facts, window);
    if !story.known {
        let looking = sources.clone();
        facts.names = blocking(sources, move || names(&looking)).await?;
        story = tell(&subject, &events, &facts, window);
    }
    Ok(story)
}

fn is_of(letter: &DeadLetter, subject: &Subject) -> bool {
    match subject {
        Subject::Session(key) => letter.key == *key,
        Subject::Turn(turn) => letter.turn == *turn,
    }
}

fn letter(letter: &DeadLetter) -> Letter {
    Letter { id: letter.id.to_string(), turn: letter.turn, delivery: letter.kind == LetterKind::Delivery }
}

async fn blocking<T: Send + 'static>(
    sources: &Sources,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    offload(&*sources.offload, job).await.unwrap_or_else(|_| Err(io::Error::other("the search panicked")))
}

/// When a turn was accepted: its id says so.
fn accepted(turn: TurnId) -> Option<String> {
    let (seconds, nanos) = turn.0.get_timestamp()?.to_unix();
    Some(timestamp(seconds.saturating_mul(1_000_000).saturating_add(u64::from(nanos / 1000))))
}

fn accepted_ms(turn: TurnId) -> u64 {
    turn.0.get_timestamp().map_or(0, |at| at.to_unix().0).saturating_mul(1000)
}

// --- files ---

/// What log and transcripts have.
struct Found {
    key: Option<SessionKey>,
    events: Vec<Event>,
    transcript: bool,
    turn: Option<TurnState>,
    ended: Option<String>,
}

fn find(sources: &Sources, subject: &Subject, hint: Option<SessionKey>) -> io::Result<Found> {
    let key = match subject {
        Subject::Session(key) => Some(key.clone()),
        Subject::Turn(turn) => match hint {
            Some(key) => Some(key),
            None => match logged_key(sources, *turn)? {
                Some(key) => Some(key),
                None => searched_key(sources, *turn)?,
            },
        },
    };
    let events = collect(sources, subject, key.as_ref())?;
    let lines = match &key {
        Some(key) => sources.transcripts.read(key)?,
        None => None,
    };
    let mut found = Found { key, events, transcript: lines.is_some(), turn: None, ended: None };
    if let (Subject::Turn(turn), Some(lines)) = (subject, lines) {
        let text = lines.join("\n");
        let transcript = read_lines(text.as_bytes());
        let end = turn_record(&transcript, *turn).map(|record| record.end);
        found.turn = end.map(|end| match end {
            None => TurnState::Begun,
            Some(TurnClose::Done) => TurnState::Done,
            Some(TurnClose::Failed) => TurnState::Failed,
            Some(TurnClose::Dead) => TurnState::Dead,
            Some(TurnClose::Cancelled) => TurnState::Cancelled,
        });
        let last = transcript.entries().iter().rev().find(|entry| entry.turn() == Some(*turn));
        found.ended = last.filter(|_| end.flatten().is_some()).map(|entry| timestamp(entry.timestamp_ms * 1000));
    }
    Ok(found)
}

fn logged_key(sources: &Sources, turn: TurnId) -> io::Result<Option<SessionKey>> {
    for event in Events::open(sources.disk.clone(), &sources.logs)? {
        let event = event?;
        if event.turn == Some(turn) && event.session.is_some() {
            return Ok(event.session);
        }
    }
    Ok(None)
}

fn everything(sources: &Sources) -> Vec<Summary> {
    sources.transcripts.page(None, usize::MAX).items
}

/// The session in whose transcript a turn stands; the likely ones are read first.
fn searched_key(sources: &Sources, turn: TurnId) -> io::Result<Option<SessionKey>> {
    let from = accepted_ms(turn).saturating_sub(CLOCK_SLACK_MS);
    let mut sessions = everything(sources);
    sessions.retain(|session| session.updated_ms >= from);
    sessions.sort_by(|a, b| a.updated_ms.cmp(&b.updated_ms).then_with(|| a.key.cmp(&b.key)));
    let name = turn.to_string();
    for session in sessions.into_iter().take(SEARCHED_MAX) {
        let lines = sources.transcripts.read(&session.key)?.unwrap_or_default();
        if lines.iter().any(|line| line.contains(&name)) {
            return Ok(Some(session.key));
        }
    }
    Ok(None)
}

/// The events of the session or turn, and those about the whole process.
fn collect(sources: &Sources, subject: &Subject, key: Option<&SessionKey>) -> io::Result<Vec<Event>> {
    let (mut own, mut shared) = (VecDeque::new(), VecDeque::new());
    for (at, event) in Events::open(sources.disk.clone(), &sources.logs)?.enumerate() {
        let event = event?;
        let mine = match subject {
            Subject::Session(key) => event.session.as_ref() == Some(key),
            Subject::Turn(turn) => event.turn == Some(*turn) || (key.is_some() && event.session.as_ref() == key),
        };
        let (list, most) = if mine {
            (&mut own, OWN_EVENTS_MAX)
        } else if is_shared(&event) {
            (&mut shared, SHARED_EVENTS_MAX)
        } else {
            continue;
        };
        list.push_back((at, event));
        if list.len() > most {
            list.pop_front();
        }
    }
    let mut all: Vec<(usize, Event)> = own.into_iter().chain(shared).collect();
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, event)| event).collect())
}

fn is_shared(event: &Event) -> bool {
    event.session.is_none()
        && match event.kind {
            Kind::Process
            | Kind::Log
            | Kind::Journal
            | Kind::Registry
            | Kind::Provider
            | Kind::Tools
            | Kind::Memory
            | Kind::Cron
            | Kind::Subagent => true,
            Kind::Session | Kind::ToolCall | Kind::Channel | Kind::Outbox => false,
        }
}

/// The events that were kept with dead letters.
fn letter_events(sources: &Sources, letters: &[DeadLetter]) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for one in letters {
        let path = sources.logs.join("letters").join(format!("{}.jsonl", one.turn));
        let bytes = match sources.disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // A line that is no event tells nothing here.
        events.extend(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Event>(line).ok()));
    }
    events.sort_by(|a, b| a.ts.cmp(&b.ts));
    events.dedup_by(|a, b| a.id == b.id);
    Ok(events)
}

/// Everything that could have been meant.
fn names(sources: &Sources) -> io::Result<Vec<String>> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for session in everything(sources).into_iter().take(NAMES_MAX) {
        names.insert(session.key.as_str().to_owned());
    }
    for event in Events::open(sources.disk.clone(), &sources.logs)? {
        let event = event?;
        if names.len() >= NAMES_MAX {
            break;
        }
        names.extend(event.session.map(|key| key.as_str().to_owned()));
        names.extend(event.turn.map(|turn| turn.to_string()));
    }
    Ok(names.into_iter().collect())
}

// --- present ---

/// How the session stands; of a turn that is open in the journal, how far it is.
async fn standing(
    journal: &dyn Journal,
    doors: Option<&Doors>,
    key: &SessionKey,
    subject: &Subject,
    open_turn: Option<TurnId>,
    state: &mut TurnState,
) -> Standing {
    let mut standing = Standing::default();
    let unfinished = journal.unfinished().await.unwrap_or_default();
    let open = unfinished.into_iter().find(|one| one.key == *key);
    if let Some(one) = &open {
        standing.open = one.turns;
        standing.quarantined_until_ms = one.quarantined_until_ms;
    }
    let turn = match subject {
        Subject::Turn(turn) => Some(*turn),
        Subject::Session(_) => None,
    };
    if let Some(doors) = doors
        && let Asked::Answer(status) = control::status(doors, key).await
    {
        standing.state = Some(status.state.word().to_owned());
        standing.running = status.turn.map(|running| (running, status.attempt, status.running_ms));
        if let Some(turn) = turn
            && let Some(record) = ask_record(doors, key, turn).await
        {
            *state = match record {
                TurnRecord::Open if status.turn == Some(turn) => TurnState::Begun,
                TurnRecord::Open => TurnState::Waiting,
                TurnRecord::Ended { result: TurnResult::Done | TurnResult::Joined, .. } => TurnState::Done,
                TurnRecord::Ended { result: TurnResult::Failed, .. } => TurnState::Failed,
                TurnRecord::Ended { result: TurnResult::Cancelled, .. } => TurnState::Cancelled,
                TurnRecord::Ended { result: TurnResult::DeadLettered, .. } => TurnState::Dead,
            };
        }
    }
    // Its session is not in memory, or cannot be asked.
    if let Some(turn) = open_turn.filter(|_| *state == TurnState::Unknown) {
        let cut = open.and_then(|one| one.cut).is_some_and(|(started, _)| started.turn == turn);
        *state = if cut { TurnState::Begun } else { TurnState::Waiting };
    }
    standing
}

/// Replies of the subject that are on their way.
async fn undelivered(
    journal: &dyn Journal,
    doors: Option<&Doors>,
    key: SessionKey,
    subject: &Subject,
) -> Vec<Undelivered> {
    let open = journal.open_of(key).await.unwrap_or_default();
    let wanted = |turn: TurnId| match subject {
        Subject::Turn(wanted) => turn == *wanted,
        Subject::Session(_) => true,
    };
    let tried = |id| {
        let failing = doors?.outbox.failing(id)?;
        Some(Tried { tries: failing.tries, error: failing.error.to_string(), next_ms: Some(failing.next_ms) })
    };
    let rows = open.rows.into_iter().filter(|row| wanted(row.id.turn));
    rows.map(|row| Undelivered { id: row.id, channel: row.channel.to_string(), tried: tried(row.id) }).collect()
}

/// What a live session knows of the turn.
async fn ask_record(doors: &Doors, key: &SessionKey, turn: TurnId) -> Option<TurnRecord> {
    let (reply, answer) = oneshot::channel();
    doors.sessions.tell_live(key, Mail::ReadTurn { turn, reply }).ok()?;
    tokio::time::timeout(control::ANSWER_MAX, answer).await.ok()?.ok()?
}

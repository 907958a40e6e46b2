//! What all clients together sent and were told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::PATIENCE;

/// Where the clients find the gateway of this round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doors {
    pub websocket: String,
    pub api: String,
    pub webhook: String,
}

/// What may become of a message without anybody being at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It has an id: its sender asks until it knows the end.
    Kept,
    /// Its sender left without an id to come back with: it may have been accepted or not, but never twice.
    Loose,
}

/// One message.
#[derive(Debug, Clone)]
pub struct Entry {
    pub id: String,
    pub promise: Promise,
    pub effects: Vec<String>,
    /// Its sender was told that it is durable, under this turn.
    pub turn: Option<String>,
    /// Its sender was told the end: the word and the text.
    pub end: Option<(String, String)>,
    /// Its sender asked for a stop while it was open.
    pub may_be_cancelled: bool,
    /// Its sender asked that what waits be dropped, while it was open.
    pub may_be_dropped: bool,
}

/// How often what happened.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub connections: u64,
    pub resent: u64,
    pub duplicates: u64,
    pub replayed: u64,
    pub restarted: u64,
    pub untold: u64,
    pub unread: u64,
    pub stops: u64,
    pub controls: u64,
    pub hurried: u64,
    pub cut: u64,
}

#[derive(Default)]
struct Books {
    /// By the stem of the session's file, in the order of sending.
    sessions: BTreeMap<String, Vec<Entry>>,
    places: HashMap<String, (String, usize)>,
    counts: Counts,
    violations: Vec<String>,
}

/// The books of one run, and what its clients share.
pub struct Ledger {
    pub seed: u64,
    books: Mutex<Books>,
    doors: watch::Sender<Option<Arc<Doors>>>,
    progress: watch::Sender<u64>,
    /// Nothing new is sent from now on; what is open is seen to its end.
    pub closing: CancellationToken,
}

/// How long a client waits for another gateway before it tries the same one again.
const RETRY: Duration = Duration::from_millis(300);

/// Broken promises that are kept; the first ones tell the most.
const VIOLATIONS_MAX: usize = 20;

impl Ledger {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            books: Mutex::default(),
            doors: watch::Sender::new(None),
            progress: watch::Sender::new(0),
            closing: CancellationToken::new(),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    // === for the clients ===

    /// Writes down that a message is about to be sent.
    pub fn sent(&self, stem: &str, id: &str, promise: Promise, effects: Vec<String>) {
        let mut books = self.books();
        let entries = books.sessions.entry(stem.to_owned()).or_default();
        let place = entries.len();
        let id = id.to_owned();
        entries.push(Entry {
            id: id.clone(),
            promise,
            effects,
            turn: None,
            end: None,
            may_be_cancelled: false,
            may_be_dropped: false,
        });
        assert!(books.places.insert(id, (stem.to_owned(), place)).is_none(), "ids are given once");
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Entry) -> Option<String>) {
        let mut books = self.books();
        let Some((stem, place)) = books.places.get(id).cloned() else {
            drop(books);
            return self.violation(format!("told of the message {id:?} that nobody sent"));
        };
        let entry = books.sessions.get_mut(&stem).and_then(|entries| entries.get_mut(place)).unwrap();
        let broken = change(entry);
        drop(books);
        if let Some(broken) = broken {
            self.violation(broken);
        }
    }

    /// The gateway says that it has a message, under this turn.
    pub fn acknowledged(&self, id: &str, turn: &str) {
        self.change(id, |entry| match entry.turn.as_deref() {
            Some(known) if known != turn => Some(format!("{id} was accepted as turn {known} and as turn {turn}")),
            _ => {
                entry.turn = Some(turn.to_owned());
                None
            }
        });
        self.progress.send_modify(|progress| *progress += 1);
    }

    /// The gateway says how a message ended.
    pub fn ended(&self, id: &str, word: &str, text: &str) {
        self.change(id, |entry| {
            let end = (word.to_owned(), text.to_owned());
            match &entry.end {
                Some(known) if known.0 != end.0 || (word == "done" && *known != end) => {
                    Some(format!("{id} ended as {known:?} and as {end:?}"))
                }
                Some(_) => None,
                None => {
                    entry.end = Some(end);
                    None
                }
            }
        });
        self.progress.send_modify(|progress| *progress += 1);
    }

    /// The sender of these messages is about to ask for a stop, also of what waits if it wants `all`.
    pub fn stopping<'a>(&self, ids: impl IntoIterator<Item = &'a str>, all: bool) {
        for id in ids {
            self.change(id, |entry| {
                entry.may_be_cancelled = true;
                entry.may_be_dropped |= all;
                None
            });
        }
    }

    pub fn may_be_dropped(&self, id: &str) -> bool {
        let books = self.books();
        let entry = books.places.get(id).and_then(|(stem, place)| books.sessions.get(stem)?.get(*place));
        entry.is_some_and(|entry| entry.may_be_dropped)
    }

    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.books().counts);
    }

    /// A promise was broken.
    pub fn violation(&self, what: String) {
        let mut books = self.books();
        if books.violations.len() < VIOLATIONS_MAX {
            books.violations.push(what);
        }
    }

    /// The doors of the present gateway. After a failure ask again for others than these.
    pub async fn doors(&self, failed: Option<&Arc<Doors>>) -> Arc<Doors> {
        let mut doors = self.doors.subscribe();
        let others = async {
            let others = doors.wait_for(|doors| doors.is_some() && doors.as_ref() != failed).await;
            others.ok().and_then(|doors| doors.clone())
        };
        // A place may also have been refused by a gateway that lives on.
        let same = async {
            match failed {
                Some(failed) => {
                    tokio::time::sleep(RETRY).await;
                    Arc::clone(failed)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            others = others => others.unwrap(),
            same = same => same,
        }
    }

    // === for whoever runs the rounds ===

    /// Sends the clients to a new gateway.
    pub fn open(&self, doors: Doors) {
        self.doors.send_replace(Some(Arc::new(doors)));
    }

    /// Waits until clients were told `steps` more things.
    pub async fn moved(&self, steps: u64) {
        let mut progress = self.progress.subscribe();
        let target = *progress.borrow() + steps;
        let moved = tokio::time::timeout(PATIENCE, progress.wait_for(|progress| *progress >= target)).await;
        assert!(moved.is_ok(), "seed {}: the clients were told nothing for {PATIENCE:?}", self.seed);
    }

    /// All entries by the stem of their session's file, and the counts.
    pub fn close(&self) -> (BTreeMap<String, Vec<Entry>>, Counts) {
        let books = self.books();
        (books.sessions.clone(), books.counts.clone())
    }

    /// Panics with what was broken, if anything was.
    pub fn check(&self) {
        let violations = self.books().violations.clone();
        assert!(violations.is_empty(), "seed {}:\n{}", self.seed, violations.join("\n"));
    }
}

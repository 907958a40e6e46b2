//! What is shown, and what keys and snapshots make of it. Pure.
//!
//! ```text
//!            /                     Enter                  s
//!  Filter ◀──── List ─────▶ Inspect        List ─────▶ Confirm ──y──▶ stop, List
//!     └─Enter, Esc─▶ List ◀──Esc──┘           ◀──any other key──┘
//! ```

use domain::ids::{SessionKey, TurnId};
use protocol::supervision::{ActorPath, Event};
use protocol::top::{Top, TopRow, TopSort};

/// Rows that a page key moves.
const PAGE: usize = 10;
/// Longest filter, in characters.
const FILTER_CHARS_MAX: usize = 200;

/// What is asked of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// Part of a path, or a glob; empty for all.
    pub filter: String,
    /// Which first.
    pub sort: TopSort,
}

impl Ask {
    /// The filter as a glob.
    pub fn glob(&self) -> Option<String> {
        match self.filter.as_str() {
            "" => None,
            glob if glob.contains(['*', '?']) => Some(glob.to_owned()),
            part => Some(format!("*{part}*")),
        }
    }
}

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Char(char),
    Interrupt,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Msg {
    /// It is time for another snapshot.
    Tick,
    /// The terminal has changed.
    Redraw,
    /// A snapshot came.
    Snapshot(Box<Top>),
    /// The last events of an actor came.
    Events(ActorPath, Vec<Event>),
    /// A session was told to stop its turn.
    Stopped(SessionKey),
    /// The gateway could not be asked.
    Failed(String),
    /// A key.
    Key(Key),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Ask for a snapshot.
    Fetch(Ask),
    /// Ask for the last events of an actor.
    FetchEvents(ActorPath),
    /// Cancel the running turn of a session.
    Stop(SessionKey),
    /// Leave.
    Quit,
}

/// What the user is doing.
#[derive(Debug)]
pub(super) enum Mode {
    /// Looks at the list.
    List,
    /// Types a filter; what it was before.
    Filter(String),
    /// Looks at one actor.
    Inspect { path: ActorPath, events: Option<Vec<Event>> },
    /// Is asked whether this turn is to be cancelled.
    Confirm { key: SessionKey, turn: TurnId },
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Model {
    pub ask: Ask,
    pub top: Option<Box<Top>>,
    /// The chosen actor; it stays chosen when the order changes.
    pub chosen: Option<ActorPath>,
    pub mode: Mode,
    /// The last thing worth saying.
    pub notice: Option<String>,
    /// Whether a snapshot is under way: one at a time.
    fetching: bool,
}

impl Model {
    pub fn new(ask: Ask) -> Self {
        Self { ask, top: None, chosen: None, mode: Mode::List, notice: None, fetching: false }
    }

    /// The actors in the list.
    pub fn rows(&self) -> &[TopRow] {
        self.top.as_ref().map(|top| top.items.as_slice()).unwrap_or_default()
    }

    /// Which row is chosen.
    pub fn position(&self) -> Option<usize> {
        let at = self.chosen.as_ref().and_then(|path| self.rows().iter().position(|row| row.path == *path));
        at.or((!self.rows().is_empty()).then_some(0))
    }

    /// The chosen actor.
    pub fn row(&self) -> Option<&TopRow> {
        self.rows().get(self.position()?)
    }

    /// Takes what happened; the answer is what to do.
    pub fn update(&mut self, message: Msg) -> Vec<Effect> {
        match message {
            Msg::Tick => self.refresh(),
            Msg::Redraw => Vec::new(),
            Msg::Snapshot(top) => {
                self.fetching = false;
                self.top = Some(top);
                Vec::new()
            }
            Msg::Events(of, came) => {
                if let Mode::Inspect { path, events } = &mut self.mode
                    && *path == of
                {
                    *events = Some(came);
                }
                Vec::new()
            }
            Msg::Stopped(key) => {
                self.notice = Some(format!("the running turn of {key} is being cancelled"));
                self.refresh()
            }
            Msg::Failed(why) => {
                self.fetching = false;
                self.notice = Some(why);
                Vec::new()
            }
            Msg::Key(Key::Interrupt) => vec![Effect::Quit],
            Msg::Key(key) => self.key(key),
        }
    }

    fn refresh(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !std::mem::replace(&mut self.fetching, true) {
            effects.push(Effect::Fetch(self.ask.clone()));
        }
        if let Mode::Inspect { path, .. } = &self.mode {
            effects.push(Effect::FetchEvents(path.clone()));
        }
        effects
    }

    /// Asks anew, whatever is under way: it answers another question.
    fn ask_anew(&mut self) -> Vec<Effect> {
        self.fetching = false;
        self.refresh()
    }

    fn key(&mut self, key: Key) -> Vec<Effect> {
        match &self.mode {
            Mode::List => self.key_in_list(key),
            Mode::Filter(_) => self.key_in_filter(key),
            Mode::Inspect { .. } => match key {
                Key::Escape | Key::Enter | Key::Char('q') => {
                    self.mode = Mode::List;
                    Vec::new()
                }
                Key::Char('s') => self.ask_to_stop(),
                Key::Up
                | Key::Down
                | Key::PageUp
                | Key::PageDown
                | Key::Home
                | Key::End
                | Key::Backspace
                | Key::Char(_)
                | Key::Interrupt => Vec::new(),
            },
            Mode::Confirm { key: session, turn } => {
                let (session, turn) = (session.clone(), *turn);
                self.mode = Mode::List;
                self.confirmed(matches!(key, Key::Char('y' | 'Y')), session, turn)
            }
        }
    }

    /// Another turn than the one that was asked about is left alone.
    fn confirmed(&mut self, yes: bool, key: SessionKey, turn: TurnId) -> Vec<Effect> {
        let runs = self.rows().iter().any(|row| row.session.as_ref() == Some(&key) && row.turn == Some(turn));
        let why_not = match (yes, runs) {
            (true, true) => return vec![Effect::Stop(key)],
            (true, false) => "that turn runs no longer",
            (false, _) => "nothing was cancelled",
        };
        self.notice = Some(why_not.to_owned());
        Vec::new()
    }

    fn key_in_list(&mut self, key: Key) -> Vec<Effect> {
        self.notice = None;
        let last = self.rows().len().saturating_sub(1);
        let at = self.position().unwrap_or(0);
        match key {
            Key::Up | Key::Char('k') => self.choose(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.choose((at + 1).min(last)),
            Key::PageUp => self.choose(at.saturating_sub(PAGE)),
            Key::PageDown => self.choose((at + PAGE).min(last)),
            Key::Home | Key::Char('g') => self.choose(0),
            Key::End | Key::Char('G') => self.choose(last),
            Key::Char('q') | Key::Interrupt => return vec![Effect::Quit],
            Key::Char('/') => self.mode = Mode::Filter(self.ask.filter.clone()),
            Key::Char('o') => {
                let at = TopSort::ALL.iter().position(|sort| *sort == self.ask.sort).unwrap_or(0);
                self.ask.sort = TopSort::ALL[(at + 1) % TopSort::ALL.len()];
                return self.ask_anew();
            }
            Key::Char('s') => return self.ask_to_stop(),
            Key::Enter => {
                if let Some(path) = self.row().map(|row| row.path.clone()) {
                    self.chosen = Some(path.clone());
                    self.mode = Mode::Inspect { path: path.clone(), events: None };
                    return vec![Effect::FetchEvents(path)];
                }
            }
            Key::Escape => {
                if !self.ask.filter.is_empty() {
                    self.ask.filter.clear();
                    return self.ask_anew();
                }
            }
            Key::Backspace | Key::Char(_) => {}
        }
        Vec::new()
    }

    fn choose(&mut self, at: usize) {
        self.chosen = self.rows().get(at).map(|row| row.path.clone());
    }

    fn key_in_filter(&mut self, key: Key) -> Vec<Effect> {
        let Mode::Filter(before) = &self.mode else { return Vec::new() };
        match key {
            Key::Char(c) if self.ask.filter.chars().count() < FILTER_CHARS_MAX => self.ask.filter.push(c),
            Key::Backspace => {
                self.ask.filter.pop();
            }
            Key::Enter => self.mode = Mode::List,
            Key::Escape => {
                self.ask.filter.clone_from(before);
                self.mode = Mode::List;
            }
            Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Char(_)
            | Key::Interrupt => return Vec::new(),
        }
        self.ask_anew()
    }

    fn ask_to_stop(&mut self) -> Vec<Effect> {
        match self.row().map(|row| (row.session.clone(), row.turn)) {
            Some((Some(key), Some(turn))) => self.mode = Mode::Confirm { key, turn },
            Some(_) | None => self.notice = Some("no turn is running here".to_owned()),
        }
        Vec::new()
    }
}

//! `greenroom top`: a live view of the running gateway; one snapshot with `--once`, `--json`, or without a terminal.
//!
//! The model decides what a key or a snapshot means (`model`), the view draws it (`view`); only this file talks to
//! the terminal and to the gateway.

mod model;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use protocol::top::{Top, TopSort};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::json;
use tokio::sync::mpsc;

use super::admin::{Admin, encode};
use super::{print, print_json};
use crate::cli::{Sort, TopArgs};
use crate::config::Loaded;
use model::{Ask, Effect, Key, Model, Msg};

/// How long the thread that reads keys waits before it looks whether it is still wanted.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Messages that may wait for the model.
const MESSAGES_MAX: usize = 64;
/// Events shown of the chosen actor.
const EVENTS_SHOWN: usize = 20;

/// Shows the gateway until the user leaves.
pub async fn run(loaded: &Loaded, arguments: TopArgs) -> anyhow::Result<()> {
    let admin = Arc::new(Admin::require(&loaded.paths).await?);
    let sort = match arguments.sort {
        Sort::Running => TopSort::Running,
        Sort::Inbox => TopSort::Inbox,
        Sort::Mailbox => TopSort::Mailbox,
        Sort::Restarts => TopSort::Restarts,
    };
    let ask = Ask { filter: arguments.path.unwrap_or_default(), sort };
    if arguments.output.json {
        return print_json(&admin.get(&address(&ask)).await?);
    }
    if arguments.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print(&text::once(&fetch(&admin, &ask).await?));
    }
    let every = arguments.interval;
    let model = Model::new(ask);
    let terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let shown = show(terminal, model, admin, every).await;
    ratatui::try_restore().context("the terminal cannot be given back")?;
    shown
}

async fn show(
    mut terminal: DefaultTerminal,
    mut model: Model,
    admin: Arc<Admin>,
    every: Duration,
) -> anyhow::Result<()> {
    let (to_model, mut messages) = mpsc::channel(MESSAGES_MAX);
    let keys = Keys::start(to_model.clone())?;
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| view::draw(frame, &model))?;
        let effects = tokio::select! {
            biased;
            message = messages.recv() => match message {
                Some(message) => model.update(message),
                None => break,
            },
            _ = clock.tick() => model.update(Msg::Tick),
        };
        for effect in effects {
            if effect == Effect::Quit {
                drop(keys);
                return Ok(());
            }
            let (admin, to_model) = (Arc::clone(&admin), to_model.clone());
            tokio::spawn(async move {
                let message = perform(&admin, effect).await;
                // The view may have been left meanwhile.
                let _ = to_model.send(message).await;
            });
        }
    }
    Ok(())
}

async fn perform(admin: &Admin, effect: Effect) -> Msg {
    match effect {
        Effect::Fetch(ask) => match fetch(admin, &ask).await {
            Ok(top) => Msg::Snapshot(Box::new(top)),
            Err(error) => Msg::Failed(format!("{error:#}")),
        },
        Effect::FetchEvents(path) => {
            let address = format!("logs?path={}&tail={EVENTS_SHOWN}", encode(&path.0));
            match admin.lines(&address).await {
                Ok(lines) => {
                    // A line of another version is left out.
                    Msg::Events(path, lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
                }
                Err(error) => Msg::Failed(format!("{error:#}")),
            }
        }
        Effect::Stop(key) => match admin.post(&format!("sessions/{}/stop", encode(key.as_str())), &json!({})).await {
            Ok(_) => Msg::Stopped(key),
            Err(error) => Msg::Failed(format!("{error:#}")),
        },
        Effect::Quit => Msg::Tick,
    }
}

async fn fetch(admin: &Admin, ask: &Ask) -> anyhow::Result<Top> {
    Ok(serde_json::from_value(admin.get(&address(ask)).await?)?)
}

fn address(ask: &Ask) -> String {
    let path = ask.glob().map(|glob| format!("&path={}", encode(&glob))).unwrap_or_default();
    format!("top?sort={}{path}", ask.sort.word())
}

/// The thread that reads keys; ends soon after this is dropped.
struct Keys(Arc<AtomicBool>);

impl Keys {
    fn start(to: mpsc::Sender<Msg>) -> anyhow::Result<Self> {
        let wanted = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&wanted);
        let read = move || {
            while still.load(Ordering::Relaxed) {
                let message = match event::poll(KEY_WAIT).and_then(|ready| ready.then(event::read).transpose()) {
                    Ok(None) => continue,
                    Ok(Some(event)) => match key(&event) {
                        Some(key) => Msg::Key(key),
                        // A new size, for example: drawn anew.
                        None => Msg::Redraw,
                    },
                    Err(error) => {
                        tracing::warn!(%error, "keys cannot be read");
                        Msg::Key(Key::Interrupt)
                    }
                };
                if to.blocking_send(message).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("greenroom-keys".to_owned()).spawn(read)?;
        Ok(Self(wanted))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn key(event: &event::Event) -> Option<Key> {
    let event::Event::Key(pressed) = event else { return None };
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return (pressed.code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    // Other programs' enum: keys that mean nothing here are many.
    if let KeyCode::Char(c) = pressed.code {
        return Some(Key::Char(c));
    }
    [
        (KeyCode::Up, Key::Up),
        (KeyCode::Down, Key::Down),
        (KeyCode::PageUp, Key::PageUp),
        (KeyCode::PageDown, Key::PageDown),
        (KeyCode::Home, Key::Home),
        (KeyCode::End, Key::End),
        (KeyCode::Enter, Key::Enter),
        (KeyCode::Esc, Key::Escape),
        (KeyCode::Backspace, Key::Backspace),
    ]
    .into_iter()
    .find_map(|(code, key)| (code == pressed.code).then_some(key))
}

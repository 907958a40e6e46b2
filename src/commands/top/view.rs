//! Draws the model. Pure: the same model is the same picture.

use protocol::supervision::Event;
use protocol::top::TopRow;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState, Wrap};

use super::model::{Mode, Model};
use super::text::{head, name, running};
use crate::commands::words::span;

const KEYS: &str = "↑↓ choose  Enter inspect  / filter  o order  s stop turn  q quit";

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let kinds = model.top.as_ref().map_or(0, |top| top.kinds.len());
    let kinds = u16::try_from(kinds).unwrap_or(u16::MAX).saturating_add(1);
    let parts = [Constraint::Length(4), Constraint::Length(kinds), Constraint::Fill(1), Constraint::Length(1)];
    let [top, middle, below, bottom] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, model, top);
    draw_kinds(frame, model, middle);
    match &model.mode {
        Mode::Inspect { events, .. } => draw_actor(frame, model, events.as_deref(), below),
        Mode::List | Mode::Filter(_) | Mode::Confirm { .. } => draw_rows(frame, model, below),
    }
    frame.render_widget(Paragraph::new(bottom_line(model)), bottom);
}

fn draw_head(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let lines = match &model.top {
        Some(top) => head(top),
        None => vec!["waiting for the gateway".to_owned()],
    };
    frame.render_widget(Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()), area);
}

fn draw_kinds(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let kinds = model.top.as_ref().map(|top| top.kinds.as_slice()).unwrap_or_default();
    let rows = kinds.iter().map(|row| {
        let counts = [row.actors, row.mailbox, row.inbox, row.restarts].map(|count| count.to_string());
        Row::new(std::iter::once(row.kind.word().to_owned()).chain(counts))
    });
    let widths = [12, 8, 8, 8, 8].map(Constraint::Length);
    let header = Row::new(["KIND", "ACTORS", "MAILBOX", "INBOX", "RESTARTS"]).style(bold());
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn draw_rows(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.rows().iter().map(cells);
    let widths = [
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    let header = Row::new(["STATE", "RUNNING", "INBOX", "MAILBOX", "RESTARTS", "ACTOR"]).style(bold());
    let filter = if model.ask.filter.is_empty() { String::new() } else { format!(", only {}", model.ask.filter) };
    let title = format!(" by {}{filter} ", model.ask.sort.word());
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(title));
    let mut state = TableState::default().with_selected(model.position());
    frame.render_stateful_widget(table, area, &mut state);
}

fn cells(row: &TopRow) -> Row<'_> {
    Row::new([
        row.state.clone(),
        running(row),
        row.inbox.to_string(),
        row.mailbox.to_string(),
        row.restarts.to_string(),
        name(row).to_owned(),
    ])
}

fn draw_actor(frame: &mut Frame<'_>, model: &Model, events: Option<&[Event]>, area: Rect) {
    let Mode::Inspect { path, .. } = &model.mode else { return };
    let mut lines = match model.rows().iter().find(|row| row.path == *path) {
        Some(row) => details(model, row),
        None => vec!["It is no longer among those shown.".to_owned()],
    };
    lines.push(String::new());
    match events {
        None => lines.push("its last events are being read".to_owned()),
        Some([]) => lines.push("the log has no event of it".to_owned()),
        Some(events) => lines.extend(events.iter().rev().map(event_line)),
    }
    let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    let block = Block::bordered().title(format!(" {path} "));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}

fn details(model: &Model, row: &TopRow) -> Vec<String> {
    let now_ms = model.top.as_ref().map_or(0, |top| top.at_ms);
    let mut lines = vec![format!("{} {}, {}", row.kind.word(), name(row), row.state.replace('_', " "))];
    if let Some(turn) = row.turn {
        lines.push(format!("turn {turn}, running for {}", running(row)));
    }
    lines.push(format!("inbox {}, mailbox {}, restarts {}", row.inbox, row.mailbox, row.restarts));
    if row.since > 0 {
        lines.push(format!("alive for {}", span(now_ms.saturating_sub(row.since))));
    }
    lines
}

fn event_line(event: &Event) -> String {
    let mut text = format!("{}  {}", event.ts, event.event.word());
    if let Some(reason) = &event.reason {
        text.push_str(&format!("  {reason}"));
    }
    if let Some(panic) = &event.panic {
        text.push_str(&format!("  \"{}\" at {}", panic.text, panic.at));
    }
    text
}

fn bottom_line(model: &Model) -> String {
    match (&model.mode, &model.notice) {
        (Mode::Filter(_), _) => format!("filter: {}▏  Enter keep  Esc undo", model.ask.filter),
        (Mode::Confirm { key, turn }, _) => {
            format!("cancel turn {turn} of {key}? y cancels it, any other key does not")
        }
        (Mode::Inspect { .. }, None) => "Esc back  s stop turn".to_owned(),
        (Mode::List, None) => KEYS.to_owned(),
        (Mode::List | Mode::Inspect { .. }, Some(notice)) => notice.clone(),
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

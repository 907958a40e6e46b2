//! `/subagents`: the keeper of runs is asked, whatever the session does.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use domain::chat::plain_text;
use domain::ids::{SessionKey, Source};
use domain::run::{RunAsk, Saying};
use domain::text::{ellipsis, one_line};
use domain::transcript::{Entry, read_lines};
use protocol::subagent::{RunMail, RunRow, find};
use supervision::ports::offload;
use supervision::tell;
use tokio::sync::oneshot;

use super::ANSWER_MAX;
use crate::doors::Doors;

/// Characters of what a run said last that a list shows, and of a message in a log.
const SHOWN_CHARS_MAX: usize = 200;
/// Characters of what a run said last.
const SAID_CHARS_MAX: usize = 4000;
/// Letters of an id that a list shows.
const ID_LETTERS: usize = 8;
const NONE: &str = "This session has sent no sub-agents.";
const SILENT: &str = "The keeper of sub-agents does not answer right now.";

/// Does what is asked of the runs of `parent`. `by`: the door, of people who need not be the owner.
pub(super) async fn follow(doors: &Doors, by: Option<&Source>, parent: &SessionKey, ask: RunAsk) -> String {
    let listed = ask_keeper(doors, |reply| RunMail::List { parent: Some(parent.clone()), reply }).await;
    let Some(rows) = listed else { return SILENT.to_owned() };
    let now_ms = doors.ports.clock.wall_ms();
    let named = |run: &str| find(&rows, run).ok_or_else(|| unknown(run));
    let answer = match ask {
        RunAsk::List if rows.is_empty() => Ok(NONE.to_owned()),
        RunAsk::List => Ok(rows.iter().map(|row| line(row, now_ms)).collect::<Vec<_>>().join("\n")),
        RunAsk::Inspect { run } => named(&run).map(|row| inspected(row, now_ms)),
        RunAsk::Log { run, messages } => match named(&run) {
            Ok(row) => Ok(log(doors, row, messages).await),
            Err(unknown) => Err(unknown),
        },
        RunAsk::Say { run, saying, text } => match named(&run) {
            Ok(row) => Ok(say(doors, by, row, (saying, text)).await),
            Err(unknown) => Err(unknown),
        },
        RunAsk::Cancel { run: None } => Ok(cancel(doors, rows.iter()).await),
        RunAsk::Cancel { run: Some(run) } => match named(&run) {
            Ok(row) => Ok(cancel(doors, [row].into_iter()).await),
            Err(unknown) => Err(unknown),
        },
    };
    answer.unwrap_or_else(|unknown| unknown)
}

fn unknown(run: &str) -> String {
    let run = ellipsis(run, 40);
    format!("There is no sub-agent {run} of this session; /subagents shows which there are.")
}

async fn ask_keeper<T>(doors: &Doors, mail: impl FnOnce(oneshot::Sender<T>) -> RunMail) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    tell(doors.runs.as_ref()?, mail(reply)).ok()?;
    tokio::time::timeout(ANSWER_MAX, answer).await.ok()?.ok()
}

/// As lists show it.
fn line(row: &RunRow, now_ms: u64) -> String {
    let id = row.run.to_string();
    let id: String = id.chars().take(ID_LETTERS).collect();
    let since = super::uptime(Duration::from_millis(now_ms.saturating_sub(row.since_ms)));
    let mut text = format!("{id}  {}: {}, begun {since} ago", one_line(&row.label), row.state);
    // Writing to a string cannot fail.
    if let Some(usage) = row.usage {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        write!(text, ", {tokens} tokens").unwrap_or_default();
    }
    if row.detached {
        text.push_str(", detached");
    }
    if let Some(said) = row.text.as_deref().map(one_line).filter(|said| !said.is_empty()) {
        write!(text, ": {}", ellipsis(&said, SHOWN_CHARS_MAX)).unwrap_or_default();
    }
    text
}

fn inspected(row: &RunRow, now_ms: u64) -> String {
    let head = line(&RunRow { text: None, ..row.clone() }, now_ms);
    let (run, key) = (row.run, &row.key);
    let said = row.text.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let said = said.map(|said| format!("\n\n{}", ellipsis(said, SAID_CHARS_MAX))).unwrap_or_default();
    format!("{head}\nRun {run}, session {key}.{said}")
}

/// The last messages of its conversation, as far as its transcript has them.
async fn log(doors: &Doors, row: &RunRow, messages: usize) -> String {
    let (transcripts, key) = (doors.transcripts.clone(), row.key.clone());
    let read = move || -> io::Result<Vec<String>> {
        let lines = transcripts.read(&key)?.unwrap_or_default();
        let read = read_lines(lines.join("\n").as_bytes());
        let mut last: Vec<String> = read.entries().iter().rev().filter_map(message_line).take(messages).collect();
        last.reverse();
        Ok(last)
    };
    match offload(&*doors.ports.offload, read).await {
        Ok(Ok(lines)) if lines.is_empty() => "It has said nothing yet.".to_owned(),
        Ok(Ok(lines)) => lines.join("\n"),
        Ok(Err(_)) | Err(_) => "Its conversation cannot be read right now.".to_owned(),
    }
}

/// A message, or what was called, on one line.
fn message_line(entry: &Entry) -> Option<String> {
    let (who, text) = match (entry.user(), entry.assistant()) {
        (Some(user), _) => ("told", plain_text(&user.content)),
        (None, Some(assistant)) if assistant.message.text.trim().is_empty() => {
            let calls: Vec<&str> = assistant.message.calls.iter().map(|call| call.name.as_str()).collect();
            ("calls", calls.join(", "))
        }
        (None, Some(assistant)) => ("said", assistant.message.text.clone()),
        (None, None) => return None,
    };
    let text = one_line(text.trim());
    (!text.is_empty()).then(|| format!("{who}: {}", ellipsis(&text, SHOWN_CHARS_MAX)))
}

async fn say(doors: &Doors, by: Option<&Source>, row: &RunRow, (saying, text): (Saying, String)) -> String {
    let id = doors.ports.ids.uuid_v7().to_string().into();
    let (parent, run, by) = (row.parent.clone(), row.run, by.cloned());
    let mail = |reply| RunMail::Say { parent, run, id, saying, text, by, reply };
    match (ask_keeper(doors, mail).await, saying) {
        (None, _) => SILENT.to_owned(),
        (Some(Err(why)), _) => format!("{} was not told: {why}.", one_line(&row.label)),
        (Some(Ok(())), Saying::Send) => format!("{} takes it up next.", one_line(&row.label)),
        (Some(Ok(())), Saying::Steer) => format!("{} sees it at its next step.", one_line(&row.label)),
    }
}

async fn cancel(doors: &Doors, rows: impl Iterator<Item = &RunRow>) -> String {
    let mut stopped = Vec::new();
    for row in rows {
        let (parent, run) = (Some(row.parent.clone()), row.run);
        match ask_keeper(doors, |reply| RunMail::Cancel { parent, run, reply }).await {
            None => return SILENT.to_owned(),
            Some(true) => stopped.push(one_line(&row.label)),
            Some(false) => {}
        }
    }
    if stopped.is_empty() {
        "Nothing of that is running.".to_owned()
    } else {
        format!("Stops: {}.", stopped.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use domain::chat::Usage;
    use domain::ids::{RunId, TurnId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_is_one_line_of_a_list_and_more_where_it_is_looked_at() {
        let row = RunRow {
            run: RunId(Uuid::from_u128(0xabcd_ef01 << 96)),
            parent: SessionKey::new("cli:direct").unwrap(),
            key: SessionKey::new("agent:main:subagent:7").unwrap(),
            label: "toads".into(),
            state: "done",
            turn: TurnId(Uuid::nil()),
            since_ms: 1000,
            detached: true,
            text: Some("5\ntoads".into()),
            usage: Some(Usage { input_tokens: 12, output_tokens: 3, cached_tokens: 0 }),
            delivery: None,
        };
        let head = "abcdef01  toads: done, begun 7 s ago, 15 tokens, detached";
        assert_eq!(line(&row, 8000), format!("{head}: 5 toads"));
        let whole = format!("{head}\nRun {}, session agent:main:subagent:7.\n\n5\ntoads", row.run);
        assert_eq!(inspected(&row, 8000), whole);
    }
}

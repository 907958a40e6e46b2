//! The queue's own rules: what a new message does to the running turn and to those that wait, and `/queue`.

use domain::attachment;
use domain::body::TurnBody;
use domain::chat::{Content, plain_text};
use domain::command::{self, Parsed};
use domain::queue::{QueueAsk, QueueDrop, QueueMode, QueueRules, QueueSet};
use domain::text::{ellipsis, one_line};
use protocol::journal::{Accepted, InboxItem};
use protocol::session::QueueState;

use super::steer::Fellow;
use super::{Machine, Own};
use crate::inbox::{Cancelled, Offered};
use crate::turn::running::{Running, Why};
use crate::turn::{Batch, Effect, Now, Record};

/// Characters that are told of a dropped message.
const DROPPED_CHARS_MAX: usize = 160;
/// Characters of one that people are shown.
const DROPPED_CHARS_SHOWN: usize = 60;
const DROPPED_NOW: &str = "Too many messages are waiting, so the oldest was dropped";
const DROPPED_LEAD: &str = "[Messages that were dropped]";

// === impl Running ===

impl Running {
    /// What is told of a message that is dropped while this turn runs. Its words are for those who could read them anyway.
    fn dropped_text(&self, accepted: Option<&Accepted>) -> String {
        let same = |accepted: &&Accepted| {
            let host = self.accepted.as_deref();
            host.is_some_and(|host| (&host.source, &host.route) == (&accepted.source, &accepted.route))
        };
        let body = accepted.filter(same).and_then(|accepted| TurnBody::decode(&accepted.body).ok());
        let said = body.map(|body| one_line(&plain_text(&body.content))).filter(|said| !said.is_empty());
        let said = said.map(|said| format!(": {}", ellipsis(&said, DROPPED_CHARS_SHOWN))).unwrap_or_default();
        format!("{DROPPED_NOW}{said}")
    }
}

// === impl Machine ===

impl Machine {
    /// A message is durable.
    pub(super) fn queued(&mut self, item: InboxItem, now: Now, out: &mut Vec<Effect>) {
        let quiet = self.is_quiet();
        match self.inbox.offer(item) {
            Offered::Added => self.prompt |= quiet,
            Offered::Known | Offered::Ended | Offered::Full => return,
        }
        self.heard = now.mono;
        self.drop_surplus(out);
        self.interrupt(now, out);
        self.begin_next(now, out);
    }

    /// Drops the oldest messages, if too many wait and that is the rule. Whoever watches the running turn is told at once;
    /// each ends, with a word of its own, when it would have begun.
    pub(super) fn drop_surplus(&mut self, out: &mut Vec<Effect>) {
        let dropped = match self.queue().drop {
            QueueDrop::Refuse => return,
            QueueDrop::Old | QueueDrop::Summarize => self.inbox.drop_oldest(self.queue().cap as usize),
        };
        let Some(turn) = self.turn.as_deref_mut() else { return };
        for item in dropped {
            let text = turn.dropped_text(item.inline.as_deref());
            turn.tell(text.into(), out);
        }
    }

    /// Cancels the running turn, if that is the rule and a message came after it began.
    pub(super) fn interrupt(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref().filter(|_| self.queue().mode == QueueMode::Interrupt) else { return };
        let newer = self.inbox.wanted().filter(|item| !item.event && Some(item.seq) > turn.behind);
        let first = newer.map(|item| self.fellow(item)).find(|fellow| *fellow != Fellow::No);
        match first.unwrap_or(Fellow::No) {
            Fellow::No | Fellow::Aside => {}
            Fellow::Yes => self.stop_running(Why::Cancelled(Cancelled::Interrupted), now, out),
            Fellow::Unread(at) => self.read_body(at, out),
        }
    }

    /// Keeps what a dropped message said for the turn behind it.
    pub(super) fn summarize_dropped(&mut self) {
        let Some(turn) = self.turn.as_deref() else { return };
        if turn.stop == Some(Why::Cancelled(Cancelled::Dropped)) && turn.refusals == 0 {
            let said = plain_text(&turn.body.content);
            self.keep_dropped(&said);
        }
    }

    /// Keeps the beginning of what a dropped message said, if that is the rule; of too many the newest.
    pub(super) fn keep_dropped(&mut self, said: &str) {
        let QueueRules { drop: QueueDrop::Summarize, cap, .. } = self.queue() else { return };
        // No model is told of commands.
        if matches!(command::parse(attachment::split(said).0), Parsed::Turn(_)) {
            return;
        }
        let line = ellipsis(&one_line(said), DROPPED_CHARS_MAX).into_owned();
        self.own_mut(|own| {
            own.dropped.push_back(line);
            if own.dropped.len() > (cap as usize).max(1) {
                own.dropped.pop_front();
                own.dropped_before += 1;
            }
        });
    }

    /// Tells the model of the messages that were dropped before the running turn, in its message.
    pub(super) fn tell_dropped(&mut self) {
        let none = self.own.as_deref().is_none_or(|own| own.dropped.is_empty());
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.round == 0 && !turn.user_written) else { return };
        if none || turn.open_to_others().is_none() || turn.body.event.is_some() {
            return;
        }
        let take = |own: &mut Own| (std::mem::take(&mut own.dropped), std::mem::take(&mut own.dropped_before));
        let (dropped, before) = self.own.as_deref_mut().map(take).unwrap_or_default();
        let before = (before > 0).then(|| format!("({before} older ones are left out)"));
        let lead = [DROPPED_LEAD.to_owned()].into_iter().chain(before);
        let text = lead.chain(dropped.iter().map(|said| format!("- {said}"))).collect::<Vec<_>>().join("\n");
        let content = [Content::text(text)].into_iter().chain(turn.body.content.iter().cloned()).collect();
        turn.body.content = content;
    }

    /// Shows or sets the rules. `None`: it is on its way out, and nothing is kept any more. What is set holds from now on;
    /// when it is durable, [`Effect::QueueKept`] says so, once for each call that set something.
    pub fn ask_queue(&mut self, ask: QueueAsk, now: Now) -> Option<(QueueState, Vec<Effect>)> {
        let own = match ask {
            QueueAsk::Show => return Some((self.queue_state(), Vec::new())),
            QueueAsk::Set(set) => set.or(self.own_queue()),
            QueueAsk::Default => QueueSet::default(),
        };
        if self.is_leaving() {
            return None;
        }
        let mut out = Vec::new();
        self.own_mut(|of_session| of_session.queue = own);
        self.commit(Batch { records: vec![Record::Queue(own)], ..Batch::default() }, &mut out);
        self.drop_surplus(&mut out);
        self.begin_next(now, &mut out);
        Some((self.queue_state(), out))
    }

    /// The rules that hold.
    pub(super) fn queue(&self) -> QueueRules {
        self.own_queue().over(&self.rules.queue)
    }

    fn own_queue(&self) -> QueueSet {
        self.own.as_deref().map(|own| own.queue).unwrap_or_default()
    }

    /// Changes what the session has of its own, and keeps it if it is anything.
    pub(super) fn own_mut(&mut self, change: impl FnOnce(&mut Own)) {
        let mut own = self.own.take().unwrap_or_default();
        change(&mut own);
        self.own = Some(own).filter(|own| own.queue != QueueSet::default() || !own.dropped.is_empty());
    }

    /// The bound of those that wait, if it is this session's own.
    pub fn own_bound(&self) -> Option<u32> {
        let own = self.own_queue();
        (own.cap.is_some() || own.drop.is_some()).then(|| self.queue().refuses_above().unwrap_or(u32::MAX))
    }

    fn queue_state(&self) -> QueueState {
        let waiting = self.inbox.len() - self.inbox.cancelled();
        QueueState { rules: self.queue(), waiting: u32::try_from(waiting).unwrap_or(u32::MAX) }
    }
}

use domain::ids::{Attempt, DeliveryId, MessageId};
use protocol::supervision::{ActorPath, Panic};
use uuid::Uuid;

use super::*;

const TURN: TurnId = TurnId(Uuid::from_u128(0x0193_7a00_0000_7000_8000_0000_0000_0001));
const OTHER: TurnId = TurnId(Uuid::from_u128(0x0193_7a00_0000_7000_8000_0000_0000_0002));

fn key() -> SessionKey {
    SessionKey::new("api:7").unwrap()
}

/// Makes a log: each event a second after the one before, with ids `b-1`, `b-2` and so on.
#[derive(Default)]
struct Book(Vec<Event>);

impl Book {
    fn add(&mut self, name: EventName, kind: Kind, set: impl FnOnce(&mut Event)) -> String {
        let n = self.0.len() + 1;
        let path = match kind {
            Kind::Session => ActorPath::session(0, &key()),
            Kind::Channel => ActorPath("/channels/api".into()),
            Kind::Outbox => ActorPath("/outbox".into()),
            Kind::ToolCall => ActorPath("/tools/0/call/exec".into()),
            Kind::Journal => ActorPath("/journal".into()),
            Kind::Registry => ActorPath("/registry".into()),
            Kind::Memory => ActorPath("/memory".into()),
            Kind::Cron => ActorPath("/cron".into()),
            Kind::Subagent => ActorPath("/subagent".into()),
            Kind::Process | Kind::Log | Kind::Provider | Kind::Tools => ActorPath("/".into()),
        };
        let mut event = Event::new(name, path, kind);
        event.id = format!("b-{n}");
        event.ts = format!("2026-11-29T20:00:{n:02}.000000Z");
        set(&mut event);
        if kind == Kind::Session {
            event.session = Some(key());
        }
        self.0.push(event);
        format!("b-{n}")
    }

    fn boot(&mut self, how: &str) -> String {
        self.add(EventName::ProcessStarted, Kind::Process, |event| event.reason = Some(format!("gateway; {how}")))
    }

    fn session(&mut self, name: EventName, cause: Option<&str>, set: impl FnOnce(&mut Event)) -> String {
        self.add(name, Kind::Session, |event| {
            event.cause = cause.map(str::to_owned);
            set(event);
        })
    }

    /// The session dies in `TURN`, for the `n`th time.
    fn crash(&mut self, name: EventName, cause: &str, n: u32) -> String {
        self.session(name, Some(cause), |event| {
            event.turn = Some(TURN);
            event.attempt = Some(Attempt(n));
            event.message_id = MessageId::new("m-1").ok();
            event.reason = Some("panicked".to_owned());
            event.panic = Some(Panic { text: "boom".to_owned(), at: "x.rs:1:2".to_owned() });
            event.backtrace = Some("9f3a".to_owned());
            event.restarts_in_window = Some(n);
            event.backoff_ms = (name == EventName::Restarted).then_some(100 << n);
        })
    }

    fn recovered(&mut self, cause: &str, n: u32, reason: &str) -> String {
        self.session(EventName::TurnRecovered, Some(cause), |event| {
            event.turn = Some(TURN);
            event.attempt = Some(Attempt(n));
            event.reason = Some(reason.to_owned());
        })
    }
}

/// The story as lines: clock and text, then the three ends.
fn lines(subject: &Subject, book: &Book, facts: &Facts) -> Vec<String> {
    let story = tell(subject, &book.0, facts, &Window::default());
    assert!(story.known);
    let clock = |sentence: &Sentence| sentence.ts.get(17..19).unwrap().to_owned();
    let mut lines: Vec<String> =
        story.sentences.iter().map(|sentence| format!("{} {}", clock(sentence), sentence.text)).collect();
    lines.extend([format!("now: {}", story.now), format!("lost: {}", story.lost)]);
    lines.push(format!("runs again: {}", story.runs_again));
    lines
}

fn facts(turn: TurnState, standing: Standing) -> Facts {
    Facts {
        serving: true,
        key: Some(key()),
        transcript: true,
        standing: Some(standing),
        turn,
        accepted: Some("2026-11-29T20:00:02.500000Z".to_owned()),
        ..Facts::default()
    }
}

fn of_session(standing: Standing) -> Facts {
    Facts { accepted: None, ..facts(TurnState::Unknown, standing) }
}

fn idle() -> Standing {
    Standing { state: Some("idle".to_owned()), ..Standing::default() }
}

#[test]
fn a_clean_turn() {
    let mut book = Book::default();
    let boot = book.boot("the first process here");
    book.add(EventName::GatewayStarted, Kind::Process, |event| event.cause = Some(boot));
    let started = book.session(EventName::Started, None, |_| ());
    book.session(EventName::Activated, Some(&started), |event| event.inbox = Some(1));
    let done = Facts { ended: Some("2026-11-29T20:00:05.000000Z".to_owned()), ..facts(TurnState::Done, idle()) };
    assert_eq!(
        lines(&Subject::Turn(TURN), &book, &done),
        [
            "03 The session was started.",
            "04 The session was loaded with 1 turn waiting.",
            "now: it is answered",
            "lost: nothing: each of the 2 events above says so, and its answer stands in the transcript",
            "runs again: nothing: the turn has ended",
        ]
    );
}

#[test]
fn a_crash_and_its_recovery() {
    let mut book = Book::default();
    book.boot("the first process here");
    let started = book.session(EventName::Started, None, |_| ());
    book.session(EventName::Activated, Some(&started), |event| event.inbox = Some(1));
    let crash = book.crash(EventName::Restarted, &started, 1);
    book.session(EventName::Activated, Some(&crash), |event| event.inbox = Some(2));
    book.recovered(&crash, 2, "its session crashed");
    let running = Standing {
        state: Some("thinking".to_owned()),
        running: Some((TURN, Some(Attempt(2)), Some(61_500))),
        open: 2,
        quarantined_until_ms: None,
    };
    let turn = lines(&Subject::Turn(TURN), &book, &facts(TurnState::Begun, running.clone()));
    assert_eq!(
        turn,
        [
            "02 The session was started.",
            "03 The session was loaded with 1 turn waiting.",
            "04 The session crashed with \"boom\" at x.rs:1:2 (all of it: logs/crash/9f3a.txt) while it worked on the \
             turn (attempt 1); it was crash 1 in a short time, and it was started again after 200 ms.",
            "05 The session was loaded with 2 turns waiting, after the crash of 20:00:04.000Z.",
            "06 The turn was taken up again (attempt 2) because its session crashed, after the crash of 20:00:04.000Z.",
            &format!(
                "now: it has begun; the session is thinking, turn {TURN}, attempt 2, for 1 min 1 s, 2 turns are open"
            ),
            "lost: nothing: each of the 5 events above says so, and the message is in the journal",
            "runs again: this turn, now",
        ]
    );
    let session = lines(&Subject::Session(key()), &book, &of_session(running));
    assert!(session[2].contains(&format!("while it worked on turn {TURN} (attempt 1)")), "{}", session[2]);
    assert_eq!(session.last().unwrap(), "runs again: 2 turns, one after the other, now");
}

#[test]
fn poison_ends_as_a_dead_letter() {
    let mut book = Book::default();
    let mut last = book.session(EventName::Started, None, |_| ());
    for n in 1..=3 {
        last = book.crash(EventName::Restarted, &last, n);
    }
    book.session(EventName::DeadLettered, Some(&last), |event| {
        event.turn = Some(TURN);
        event.attempt = Some(Attempt(4));
        event.reason = Some("crashes".to_owned());
    });
    // Of another turn: no part of this story.
    book.session(EventName::TurnStuck, None, |event| event.turn = Some(OTHER));
    let letter = Letter { id: TURN.to_string(), turn: TURN, delivery: false };
    let dead = Facts { letters: vec![letter], ..facts(TurnState::Dead, idle()) };
    let told = lines(&Subject::Turn(TURN), &book, &dead);
    assert_eq!(
        told[4..],
        [
            "05 The turn was given up because it crashed its session, or ended the process, too often; its user was told, and it is kept as a \
             dead letter, after the crash of 20:00:04.000Z."
                .to_owned(),
            "now: it was given up, and its user was told".to_owned(),
            "lost: nothing: each of the 5 events above says so, and the message is kept as a dead letter".to_owned(),
            format!("runs again: nothing by itself; `greenroom deadletters retry {TURN}` runs it as a new turn"),
        ]
    );
}

#[test]
fn a_reply_that_could_not_be_delivered_is_told_of() {
    let letter = Letter { id: format!("{TURN}:1"), turn: TURN, delivery: true };
    let done = Facts { letters: vec![letter], ..facts(TurnState::Done, idle()) };
    let told = lines(&Subject::Turn(TURN), &Book::default(), &done);
    assert_eq!(
        told.last().unwrap(),
        &format!(
            "runs again: nothing: the turn has ended; what could not be delivered is sent again by `greenroom deadletters \
             retry {TURN}:1`"
        )
    );
}

#[test]
fn a_quarantine_and_its_release() {
    let mut book = Book::default();
    let started = book.session(EventName::Started, None, |_| ());
    let gave_up = book.crash(EventName::GaveUp, &started, 5);
    let held = book.session(EventName::Quarantined, Some(&gave_up), |event| {
        event.reason = Some("crashes".to_owned());
        event.verdict = Some("held until 2026-11-29T20:10:03.000000Z".to_owned());
        event.inbox = Some(3);
    });
    let waits = Standing { open: 3, quarantined_until_ms: Some(1_796_155_200_000), ..Standing::default() };
    let told = lines(&Subject::Session(key()), &book, &of_session(waits));
    assert_eq!(
        told[2..],
        [
            "03 The session was quarantined because it crashed too often: held until 2026-11-29T20:10:03.000000Z with 3 \
             turns waiting, after the crash of 20:00:02.000Z.",
            "now: the session is quarantined until 2026-12-01T20:00:00Z, 3 turns are open",
            "lost: nothing: each of the 3 events above says so",
            "runs again: 3 turns, one after the other, when the quarantine ends at 2026-12-01T20:00:00Z, or at once with \
             `greenroom sessions release api:7`",
        ]
    );
    let released = book.session(EventName::Released, Some(&held), |event| event.reason = Some("by hand".to_owned()));
    book.session(EventName::Started, Some(&released), |_| ());
    let told = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(
        told[3..],
        [
            "04 The quarantine ended: by hand, after the quarantine of 20:00:03.000Z.",
            "05 The session was started, after the end of the quarantine of 20:00:04.000Z.",
            "now: the session is idle, no turn is open",
            "lost: nothing: each of the 5 events above says so",
            "runs again: nothing: no turn is open",
        ]
    );
}

#[test]
fn a_killed_process_and_its_successor() {
    let mut book = Book::default();
    book.boot("the first process here");
    let started = book.session(EventName::Started, None, |_| ());
    book.session(EventName::Activated, Some(&started), |event| event.inbox = Some(1));
    let boot = book.boot("the process before it was killed or crashed");
    let started = book.session(EventName::Started, Some(&boot), |_| ());
    book.session(EventName::Activated, Some(&started), |event| event.inbox = Some(1));
    book.recovered(&boot, 2, "the process ended");
    let done = Facts { ended: Some("2026-11-29T20:00:09.000000Z".to_owned()), ..facts(TurnState::Done, idle()) };
    assert_eq!(
        lines(&Subject::Turn(TURN), &book, &done),
        [
            "03 The session was loaded with 1 turn waiting.",
            "04 A process started (gateway; the process before it was killed or crashed).",
            "05 The session was started, after the start of the process of 20:00:04.000Z.",
            "06 The session was loaded with 1 turn waiting.",
            "07 The turn was taken up again (attempt 2) because the process ended, after the start of the process of \
             20:00:04.000Z.",
            "now: it is answered",
            "lost: nothing: each of the 5 events above says so, and its answer stands in the transcript",
            "runs again: nothing: the turn has ended",
        ]
    );
    let at_rest =
        Facts { serving: false, ended: None, ..facts(TurnState::Begun, Standing { open: 1, ..Standing::default() }) };
    let told = lines(&Subject::Turn(TURN), &book, &at_rest);
    assert_eq!(told[5], "now: it had begun when the process ended");
    assert_eq!(told[7], "runs again: this turn, when a gateway starts");
}

#[test]
fn a_stuck_turn_is_cancelled() {
    let mut book = Book::default();
    book.session(EventName::Started, None, |_| ());
    book.session(EventName::TurnStuck, None, |event| {
        event.turn = Some(TURN);
        event.reason = Some("no progress for 300 s".to_owned());
    });
    let told = lines(&Subject::Turn(TURN), &book, &facts(TurnState::Failed, idle()));
    assert_eq!(
        told,
        [
            "02 The turn made no progress and was cancelled: no progress for 300 s.",
            "now: it ended with a failure, and its user was told",
            "lost: nothing: the one event above says so, and what its user was told stands in the transcript",
            "runs again: nothing: the turn has ended",
        ]
    );
}

#[test]
fn a_full_disk_refuses() {
    let mut book = Book::default();
    let full = book.add(EventName::JournalReadOnly, Kind::Journal, |event| {
        event.reason = Some("No space left on device".to_owned());
    });
    book.add(EventName::Refused, Kind::Channel, |event| {
        event.session = Some(key());
        event.reason = Some("disk".to_owned());
        event.cause = Some(full);
    });
    book.add(EventName::JournalWritable, Kind::Journal, |event| event.reason = Some("there is space again".to_owned()));
    let told = lines(&Subject::Session(key()), &book, &of_session(Standing::default()));
    assert_eq!(
        told,
        [
            "01 The journal could not write and took no more messages: No space left on device.",
            "02 A message was refused and not accepted: disk, after the failure to write of 20:00:01.000Z.",
            "now: the session is not in memory; a message wakes it, no turn is open",
            "lost: nothing: each of the 2 events above says so",
            "runs again: nothing: no turn is open",
        ]
    );
}

#[test]
fn what_was_lost_is_summed_up_and_missing_events_are_told() {
    let mut book = Book::default();
    book.session(EventName::ViewRepaired, None, |event| {
        event.reason = Some("2 lines of somebody else".to_owned());
        event.lost = "one line of 80 bytes".to_owned();
    });
    book.add(EventName::EventsLost, Kind::Log, |event| event.lost = "9 events".to_owned());
    book.session(EventName::Activated, None, |_| ());
    let told = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(told[0], "01 The transcript file was repaired: 2 lines of somebody else; lost: one line of 80 bytes.");
    assert_eq!(
        told[4],
        "lost: one line of 80 bytes (20:00:01.000Z); nothing else; 9 events are missing from this log (at 20:00:02.000Z)"
    );
}

#[test]
fn what_is_unknown_is_said_to_be_so_with_what_may_have_been_meant() {
    let names = ["api:7", "api:77", "websocket:ann", "01937a00-0000-7000-8000-000000000001"].map(str::to_owned);
    let nothing = Facts { serving: true, names: names.to_vec(), ..Facts::default() };
    let story = tell(&Subject::parse("api:8").unwrap(), &[], &nothing, &Window::default());
    assert!(!story.known);
    assert_eq!(story.nearest, ["api:7"]);
    assert_eq!(story.now, "unknown: no event, no transcript and no open turn has this session key");
    assert_eq!(
        tell(&Subject::parse("01937a00").unwrap(), &[], &nothing, &Window::default()).nearest,
        [names[3].clone()]
    );
    let turn = Subject::parse("01937a00-0000-7000-8000-000000000002").unwrap();
    assert_eq!(turn, Subject::Turn(OTHER));
    let story = tell(&turn, &[], &Facts { accepted: Some(String::new()), ..nothing }, &Window::default());
    assert_eq!((story.known, story.nearest), (false, vec![names[3].clone()]));
}

#[test]
fn of_a_long_story_the_end_is_told_and_how_much_is_left_out() {
    let mut book = Book::default();
    for n in 0..50 {
        book.session(EventName::Activated, None, |event| {
            event.lost = if n == 3 { "one line".to_owned() } else { LOST_NOTHING.to_owned() }
        });
    }
    let told = |since: Option<&str>, until: Option<&str>, tail: usize| {
        let [since, until] = [since, until].map(|at| at.map(|at| format!("2026-11-29T20:00:{at}.000000Z")));
        let story = tell(&Subject::Session(key()), &book.0, &of_session(idle()), &Window { since, until, tail });
        assert!(story.lost.starts_with("one line (20:00:04.000Z)"), "{}", story.lost);
        let ids = story.sentences.iter().map(|sentence| sentence.id.clone());
        let ids: Vec<String> = ids.collect();
        let ends = ids.first().zip(ids.last()).map(|(first, last)| format!("{first} {last}"));
        (ends.unwrap_or_default(), story.left_out, story.left_out_after)
    };
    for (since, until, tail, expect) in [
        (None, None, SENTENCES_DEFAULT, ("b-1 b-50", 0, 0)),
        (None, None, 5, ("b-46 b-50", 45, 0)),
        (Some("11"), Some("21"), 100, ("b-11 b-20", 10, 30)),
        (Some("11"), Some("21"), 3, ("b-18 b-20", 17, 30)),
        (None, Some("02"), 1, ("b-1 b-1", 0, 49)),
        (None, None, 0, ("", 50, 0)),
    ] {
        let (ends, left_out, after) = told(since, until, tail);
        assert_eq!((&*ends, left_out, after), expect, "{since:?} {until:?} {tail}");
    }
}

#[test]
fn turns_that_failed_or_were_cancelled_are_told_with_why() {
    let mut book = Book::default();
    let ended = |name, turn: TurnId, reason: &'static str| {
        move |event: &mut Event| {
            (event.event, event.turn, event.attempt) = (name, Some(turn), Some(Attempt::FIRST));
            event.reason = Some(reason.to_owned());
        }
    };
    book.session(EventName::TurnFailed, None, ended(EventName::TurnFailed, TURN, "rate_limited"));
    book.session(EventName::TurnCancelled, None, ended(EventName::TurnCancelled, OTHER, "it was stopped"));
    let told = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(
        told[0],
        format!(
            "01 Turn {TURN} (attempt 1) failed, and its user was told: the model's provider had too many requests."
        )
    );
    assert_eq!(told[1], format!("02 Turn {OTHER} was cancelled: it was stopped."));
    let told = lines(&Subject::Turn(TURN), &book, &facts(TurnState::Failed, idle()));
    assert_eq!(
        told[0],
        "01 The turn (attempt 1) failed, and its user was told: the model's provider had too many requests."
    );
    assert_eq!(told[1], "now: it ended with a failure, and its user was told");
}

#[test]
fn a_repair_of_the_journal_is_told_to_all_and_its_losses_to_their_sessions() {
    let mut book = Book::default();
    book.session(EventName::Activated, None, |_| ());
    let cause = book.add(EventName::JournalRepaired, Kind::Journal, |event| {
        event.reason = Some("1 damaged place".to_owned());
    });
    let other = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(other[1], "02 The journal was repaired after damage: 1 damaged place.", "also after its last event");
    for (session, lost) in [("api:7", "message 3"), ("api:8", "message 9")] {
        book.add(EventName::JournalRepaired, Kind::Journal, |event| {
            event.reason = Some("the damage held records of this session".to_owned());
            event.session = SessionKey::new(session).ok();
            (event.cause, event.lost) = (Some(cause.clone()), lost.to_owned());
        });
    }
    let told = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(told[1], "02 The journal was repaired after damage: 1 damaged place.");
    let own = "03 The journal was repaired after damage: the damage held records of this session, after the repair of the \
               journal of 20:00:02.000Z; lost: message 3.";
    assert_eq!(told[2], own);
    assert_eq!(told[4], "lost: message 3 (20:00:03.000Z); nothing else");
}

#[test]
fn replies_that_wait_for_delivery_are_told_with_their_attempts() {
    let mut book = Book::default();
    let id = |n| DeliveryId { turn: TURN, n };
    book.add(EventName::DeliveryFailed, Kind::Outbox, |event| {
        (event.session, event.turn, event.delivery) = (Some(key()), Some(TURN), Some(id(1)));
        (event.attempt, event.backoff_ms) = (Some(Attempt(4)), Some(8_000));
        event.reason = Some("status 503".to_owned());
    });
    let one = |n, tried| Undelivered { id: id(n), channel: "webhook".to_owned(), tried };
    let now = |serving, undelivered| {
        let facts = Facts { serving, undelivered, ..of_session(idle()) };
        let told = lines(&Subject::Session(key()), &book, &facts);
        (told[1].clone(), told[3].clone())
    };
    let (stands, again) = now(false, vec![one(1, None), one(2, None)]);
    assert_eq!(
        stands,
        format!(
            "now: the session is idle, no turn is open; 2 replies are not delivered yet: that of turn {TURN} to webhook, \
             tried 4 times, the last time: status 503, next when a gateway starts; that of turn {TURN} (part 2) to \
             webhook, not tried yet"
        )
    );
    assert!(again.ends_with("; replies that are not delivered yet are tried again when a gateway starts"), "{again}");
    let tried = Tried { tries: 1, error: "no answer".to_owned(), next_ms: Some(1_000) };
    let (stands, again) = now(true, vec![one(1, Some(tried))]);
    assert!(stands.ends_with("tried once, the last time: no answer, next at 1970-01-01T00:00:01Z"), "{stands}");
    assert!(again.ends_with("tried again by themselves"), "{again}");
    let (stands, _) = now(true, (1..=7).map(|n| one(n, None)).collect());
    assert!(stands.ends_with("; and 2 more"), "{stands}");
    let told = lines(&Subject::Session(key()), &book, &of_session(idle()));
    assert_eq!(
        told[0],
        format!(
            "01 The reply of turn {TURN} could not be delivered (attempt 4): status 503; it is tried again after 8.0 s."
        )
    );
}

use protocol::supervision::{ActorPath, Event, EventName, Kind};
use protocol::top::{KindRow, Top, TopRates, TopRow, TopSort, TopTurns};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::model::{Ask, Effect, Key, Mode, Model, Msg};
use super::{text, view};

const TURN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn row(name: &str, running_ms: Option<u64>) -> TopRow {
    let key = name.parse().unwrap();
    TopRow {
        path: ActorPath::session(0, &key),
        kind: Kind::Session,
        state: if running_ms.is_some() { "thinking" } else { "idle" }.to_owned(),
        session: Some(key),
        turn: running_ms.map(|_| TURN.parse().unwrap()),
        running_ms,
        inbox: 2,
        mailbox: 0,
        restarts: 1,
        since: 1_000,
    }
}

fn top(items: Vec<TopRow>) -> Top {
    Top {
        at_ms: 61_000,
        version: "1.2.3".to_owned(),
        phase: "serving".to_owned(),
        not_ready: vec!["journal_not_writable".to_owned()],
        uptime_ms: 700_000,
        turns: TopTurns { accepted: 9, done: 6, dead: 1, cancelled: 0, open: 2, running: 1 },
        rates: TopRates { over_ms: 10_000, accepted: 12.34, ended: 12.0, refused: 0.5, restarts: 0.0 },
        oldest_ms: Some(12_000),
        kinds: vec![KindRow { kind: Kind::Session, actors: 2, mailbox: 0, inbox: 4, restarts: 2 }],
        states: [("thinking".to_owned(), 1), ("idle".to_owned(), 1)].into(),
        items,
        next: None,
    }
}

fn loaded() -> Model {
    let mut model = Model::new(Ask::default());
    assert_eq!(model.update(Msg::Tick), [Effect::Fetch(Ask::default())]);
    let items = vec![row("api:slow", Some(12_345)), row("api:idle", None), row("ws:a", None)];
    assert!(model.update(Msg::Snapshot(Box::new(top(items)))).is_empty());
    model
}

fn press(model: &mut Model, keys: &[Key]) -> Vec<Effect> {
    keys.iter().flat_map(|key| model.update(Msg::Key(*key))).collect()
}

fn chosen(model: &Model) -> &str {
    model.row().unwrap().session.as_ref().unwrap().as_str()
}

fn picture(model: &Model) -> String {
    let mut terminal = Terminal::new(TestBackend::new(90, 16)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines: Vec<String> = (0..buffer.area.height)
        .map(|y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
        .collect();
    lines.join("\n")
}

#[test]
fn the_list_is_drawn() {
    assert_eq!(
        picture(&loaded()),
        "\
gateway   serving for 11 min, version 1.2.3, not ready: journal_not_writable
sessions  1 idle, 1 thinking
turns     2 open (oldest for 12 s), 1 running; 9 accepted: 6 done, 0 cancelled, 1 dead let
rates     12.3/s accepted, 12.0/s ended, 0.5/s refused, 0.0/s restarts
KIND         ACTORS   MAILBOX  INBOX    RESTARTS
session      2        0        4        2
┌ by running ────────────────────────────────────────────────────────────────────────────┐
│STATE          RUNNING  INBOX  MAILBOX  RESTARTS ACTOR                                  │
│thinking       12 s     2      0        1        api:slow                               │
│idle                    2      0        1        api:idle                               │
│idle                    2      0        1        ws:a                                   │
│                                                                                        │
│                                                                                        │
│                                                                                        │
└────────────────────────────────────────────────────────────────────────────────────────┘
↑↓ choose  Enter inspect  / filter  o order  s stop turn  q quit"
    );
}

#[test]
fn one_snapshot_is_printed_as_text() {
    let text = text::once(&top(vec![row("api:slow", Some(12_345))]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "gateway   serving for 11 min, version 1.2.3, not ready: journal_not_writable");
    assert_eq!(lines[6], "session             2        0        4        2");
    assert_eq!(lines[9], "thinking            12 s      2        0        1  api:slow");
}

#[test]
fn a_choice_stays_with_its_actor_when_the_order_changes() {
    let mut model = loaded();
    assert_eq!(chosen(&model), "api:slow");
    press(&mut model, &[Key::Down]);
    assert_eq!(chosen(&model), "api:idle");
    model.update(Msg::Snapshot(Box::new(top(vec![row("api:idle", None), row("api:slow", None)]))));
    assert_eq!(chosen(&model), "api:idle");
    press(&mut model, &[Key::Up, Key::Up]);
    assert_eq!(chosen(&model), "api:idle", "the first one");
    press(&mut model, &[Key::End]);
    assert_eq!(chosen(&model), "api:slow");
    model.update(Msg::Snapshot(Box::new(top(vec![row("new", None)]))));
    assert_eq!(chosen(&model), "new", "the chosen one is gone");
    model.update(Msg::Snapshot(Box::new(top(Vec::new()))));
    assert!(model.row().is_none());
    press(&mut model, &[Key::Down, Key::PageDown, Key::Enter, Key::Char('s')]);
    picture(&model);
}

#[test]
fn a_filter_is_asked_of_the_gateway_as_it_is_typed_and_can_be_undone() {
    let mut model = loaded();
    let asked = |effects: &[Effect]| match effects.last() {
        Some(Effect::Fetch(ask)) => ask.glob(),
        other => panic!("{other:?}"),
    };
    let effects = press(&mut model, &[Key::Char('/'), Key::Char('w'), Key::Char('s')]);
    assert_eq!(asked(&effects).as_deref(), Some("*ws*"));
    assert!(picture(&model).contains("filter: ws"));
    let effects = press(&mut model, &[Key::Char(':'), Key::Char('*')]);
    assert_eq!(asked(&effects).as_deref(), Some("ws:*"), "a glob is taken as it is");
    let effects = press(&mut model, &[Key::Escape]);
    assert_eq!(asked(&effects), None);
    press(&mut model, &[Key::Char('/'), Key::Char('q'), Key::Enter]);
    assert!(picture(&model).contains(" by running, only q "));
    assert_eq!(asked(&press(&mut model, &[Key::Escape])), None, "in the list, Esc takes the filter away");
    assert!(matches!(model.mode, Mode::List));
}

#[test]
fn the_order_goes_around() {
    let mut model = loaded();
    let orders: Vec<TopSort> = (0..4)
        .map(|_| {
            press(&mut model, &[Key::Char('o')]);
            model.ask.sort
        })
        .collect();
    assert_eq!(orders, [TopSort::Inbox, TopSort::Mailbox, TopSort::Restarts, TopSort::Running]);
}

#[test]
fn an_actor_is_inspected_with_its_last_events() {
    let mut model = loaded();
    let path = model.row().unwrap().path.clone();
    assert_eq!(press(&mut model, &[Key::Enter]), [Effect::FetchEvents(path.clone())]);
    assert!(picture(&model).contains("its last events are being read"));
    let mut event = Event::new(EventName::Activated, path.clone(), Kind::Session);
    event.ts = "2026-11-29T20:00:00.000000Z".to_owned();
    model.update(Msg::Events(ActorPath("/other".into()), Vec::new()));
    model.update(Msg::Events(path.clone(), vec![event]));
    let shown = picture(&model);
    for part in ["session api:slow, thinking", TURN, "alive for 60 s", "2026-11-29T20:00:00.000000Z  activated"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(model.update(Msg::Tick).contains(&Effect::FetchEvents(path)));
    press(&mut model, &[Key::Escape]);
    assert!(picture(&model).contains("api:idle"));
}

#[test]
fn a_turn_is_cancelled_only_when_confirmed_and_still_running() {
    let mut model = loaded();
    assert!(press(&mut model, &[Key::Char('s')]).is_empty());
    assert!(picture(&model).contains(&format!("cancel turn {TURN} of api:slow?")));
    assert!(press(&mut model, &[Key::Char('n')]).is_empty());
    assert!(picture(&model).contains("nothing was cancelled"));
    let stop = Effect::Stop("api:slow".parse().unwrap());
    assert_eq!(press(&mut model, &[Key::Char('s'), Key::Char('y')]), [stop]);
    press(&mut model, &[Key::Char('s')]);
    model.update(Msg::Snapshot(Box::new(top(vec![row("api:slow", None)]))));
    assert!(press(&mut model, &[Key::Char('y')]).is_empty(), "it has ended meanwhile");
    assert!(press(&mut model, &[Key::Char('s')]).is_empty());
    assert!(picture(&model).contains("no turn is running here"));
}

#[test]
fn failures_are_shown_and_do_not_end_the_view() {
    let mut model = loaded();
    assert!(model.update(Msg::Tick).len() == 1 && model.update(Msg::Tick).is_empty(), "one question at a time");
    model.update(Msg::Failed("the gateway does not answer".to_owned()));
    assert!(picture(&model).contains("the gateway does not answer"));
    assert_eq!(model.update(Msg::Tick).len(), 1, "it is asked again");
    assert_eq!(press(&mut model, &[Key::Char('q')]), [Effect::Quit]);
    assert_eq!(press(&mut model, &[Key::Interrupt]), [Effect::Quit]);
}

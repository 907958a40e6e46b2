//! Each form both ways, what it is, and where messages go.

use proptest::prelude::*;

use super::*;
use crate::ids::{SessionKey, Source};
use crate::stem::{key_of, stem};

const UUID: &str = "019af3c0-7a1e-7000-8000-0000000000aa";

#[track_caller]
fn check(text: &str, printed: &str, kind: SessionKind) {
    let key = Key::parse(text);
    assert_eq!(key.to_string(), printed, "{text}: {key:?}");
    assert_eq!(Key::parse(printed), key, "{text}");
    assert_eq!(key.kind(MAIN_KEY), kind, "{text}: {key:?}");
}

#[test]
fn keys_with_an_agent_are_read_in_their_spelling_of_today() {
    use SessionKind::{Api, Cron, Direct, Group, Heartbeat, Hook, Main, Subagent, Thread, Unknown};
    for (text, printed, kind) in [
        ("agent:main:main", "agent:main:main", Main),
        (" Agent:Main:MAIN ", "agent:main:main", Main),
        ("agent:My Bot:main", "agent:my-bot:main", Main),
        ("agent:main:other", "agent:main:other", Unknown),
        ("agent:main:direct:ann", "agent:main:direct:ann", Direct),
        ("agent:main:dm:Ann", "agent:main:direct:ann", Direct),
        ("agent:main:telegram:direct:123", "agent:main:telegram:direct:123", Direct),
        ("agent:main:telegram:dm:123", "agent:main:telegram:direct:123", Direct),
        ("agent:main:telegram:default:dm:123", "agent:main:telegram:default:direct:123", Direct),
        ("agent:main:main:telegram:default:dm:123", "agent:main:telegram:default:direct:123", Direct),
        ("agent:main:main:telegram:default:group:100", "agent:main:telegram:group:100", Group),
        ("agent:main:main:discord:default:channel:100", "agent:main:discord:channel:100", Group),
        ("agent:main:telegram:group:-100", "agent:main:telegram:group:-100", Group),
        ("agent:main:Slack:Channel:C1", "agent:main:slack:channel:c1", Group),
        ("agent:main:discord:channel:9:thread:77", "agent:main:discord:channel:9:thread:77", Thread),
        ("agent:main:telegram:group:-100:topic:5", "agent:main:telegram:group:-100:topic:5", Thread),
        ("agent:main:main:thread:5", "agent:main:main:thread:5", Thread),
        ("agent:main:channel:thread:T", "agent:main:channel:thread:t", Thread),
        ("agent:main:cron:job-1", "agent:main:cron:job-1", Cron),
        ("agent:main:cron:job-1:run:ABC", "agent:main:cron:job-1:run:abc", Cron),
        ("agent:a:subagent:1", "agent:a:subagent:1", Subagent),
        ("agent:a:subagent:1:subagent:2", "agent:a:subagent:1:subagent:2", Subagent),
        ("agent:main:hook:1", "agent:main:hook:1", Hook),
        ("agent:main:dashboard:1", "agent:main:dashboard:1", Unknown),
        ("agent:main:acp:1", "agent:main:acp:1", Unknown),
        ("agent:main:openai-user:Ann", "agent:main:openai-user:ann", Api),
        ("agent:main:openai:019AF3C0-7a1e-7000-8000-0000000000aa", &format!("agent:main:openai:{UUID}"), Api),
        ("agent:main:openai:7", "agent:main:openai:7", Unknown),
        ("agent:main:main:heartbeat", "agent:main:main:heartbeat", Heartbeat),
        ("agent:main:telegram:direct:1:heartbeat", "agent:main:telegram:direct:1:heartbeat", Direct),
        ("agent:main:telegram:direct:heartbeat", "agent:main:telegram:direct:heartbeat", Direct),
        ("agent:main:direct:main", "agent:main:direct:main", Direct),
        ("agent:main:direct:cron:x", "agent:main:direct:cron:x", Direct),
        ("agent:main:telegram:group:direct:5", "agent:main:telegram:group:direct:5", Group),
        ("agent:main:x:", "agent:main:x:", Unknown),
        ("agent:main::direct:5", "agent:main::direct:5", Unknown),
        ("agent:main", "agent:main", Unknown),
        ("agent:main:", "agent:main:", Unknown),
    ] {
        check(text, printed, kind);
    }
    assert_eq!(Key::parse("agent:a:subagent:1:subagent:2").subagent_depth(), 2);
    assert_eq!(Key::parse("agent:a:main").subagent_depth(), 0);
}

#[test]
fn keys_of_nanobot_and_our_doors_are_kept_letter_by_letter() {
    use SessionKind::{Api, Cli, Cron, Direct, Dream, Group, Heartbeat, Hook, Main, Thread, Unknown, WebSocket};
    for (text, kind) in [
        ("telegram:123", Direct),
        ("telegram:-100123", Group),
        ("telegram:-100:topic:7", Thread),
        ("discord:9", Group),
        ("discord:9:thread:77", Thread),
        ("matrix:!Room:server", Group),
        ("matrix:!Room:server:thread:$Root", Thread),
        ("slack:D1", Direct),
        ("slack:C1", Group),
        ("slack:C1:170.1", Thread),
        ("feishu:oc_1:om_2", Thread),
        ("dingtalk:group:c:s", Group),
        ("whatsapp:49@s.whatsapp.net", Direct),
        ("whatsapp:49@g.us", Group),
        ("signal:+49", Direct),
        ("signal:AbC=", Group),
        ("email:a@b", Direct),
        ("webhook:7", Direct),
        ("webhook:!room:server:thread:thread:x", Thread),
        ("unified:default", Main),
        ("cli:direct", Cli),
        ("api:default", Api),
        ("api:user:Ann", Api),
        ("websocket:Chat-1", WebSocket),
        ("websocket:a:thread:b", WebSocket),
        ("heartbeat", Heartbeat),
        ("dream:20261130-090000", Dream),
        ("cron:job", Cron),
        ("hook:1", Hook),
        ("node:1:x", Unknown),
        ("acp-bridge", Unknown),
        ("acp-bridge:1", Unknown),
        ("global", Unknown),
        ("unknown", Unknown),
        ("k1", Unknown),
        ("a:", Unknown),
        (":a", Unknown),
    ] {
        check(text, text, kind);
    }
}

#[test]
fn ids_that_differ_by_case_alone_stay_apart() {
    for (text, printed) in [
        ("agent:main:signal:group:AbC=", "agent:main:signal:group:AbC="),
        ("agent:main:signal:direct:AbC", "agent:main:signal:direct:abc"),
        ("agent:main:matrix:channel:!Room:Server", "agent:main:matrix:channel:!Room:Server"),
        ("agent:main:matrix:channel:!R:s:thread:$Ev", "agent:main:matrix:channel:!R:s:thread:$Ev"),
        ("agent:main:matrix:direct:@Ann:s", "agent:main:matrix:direct:@ann:s"),
        ("agent:main:matrix:direct:@Ann:s:thread:$Ev", "agent:main:matrix:direct:@ann:s:thread:$Ev"),
        ("agent:main:discord:channel:A:thread:B", "agent:main:discord:channel:a:thread:b"),
        ("agent:main:webhook:direct:Ann", "agent:main:webhook:direct:Ann"),
    ] {
        assert_eq!(Key::parse(text).to_string(), printed);
    }
}

#[test]
fn the_configured_main_key_is_the_main_session() {
    assert_eq!(Key::parse("agent:main:home").kind("home"), SessionKind::Main);
    assert_eq!(Key::parse("agent:main:main").kind("home"), SessionKind::Unknown);
}

#[test]
fn somebody_else_in_a_session_of_the_owners_has_not_the_owners_rights() {
    for (key, source, kind) in [
        ("agent:main:main", "cli", SessionKind::Main),
        ("agent:main:main", "telegram:default", SessionKind::Direct),
        ("unified:default", "webhook", SessionKind::Direct),
        ("unified:default", "webhook:ws", SessionKind::Direct),
        ("unified:default", "ws", SessionKind::Main),
        ("unified:default", "ws:7f", SessionKind::Main),
        ("cli:direct", "cli", SessionKind::Cli),
        ("api:default", "retry", SessionKind::Api),
        ("agent:main:main", "retry", SessionKind::Direct),
        ("telegram:-1", "cli", SessionKind::Group),
        ("hook:1", "hook", SessionKind::Hook),
        ("agent:main:main", "hook:deploys", SessionKind::Hook),
        ("cli:direct", "hook:deploys", SessionKind::Hook),
        ("websocket:ann", "hook", SessionKind::Hook),
    ] {
        let (key, from) = (SessionKey::new(key).unwrap(), Source::new(source).unwrap());
        assert_eq!(SessionKind::of_turn(&key, &from, MAIN_KEY), kind, "{key} {source}");
    }
}

fn router(scope: DmScope) -> Router {
    let ids = ["telegram:123".to_owned(), "U77".to_owned()].to_vec();
    let links = IdentityLinks([("ann".to_owned(), ids)].into());
    Router { scope, links, main_key: "main".to_owned(), bindings: Vec::new(), unified: false }
}

#[test]
fn direct_messages_share_sessions_as_the_scope_says() {
    let direct = |channel, id| Inbound::of(channel, Peer { kind: PeerKind::Direct, id });
    let work = Inbound { account: Some("Work"), ..direct("telegram", "9") };
    for (scope, message, key) in [
        (DmScope::Main, direct("telegram", "123"), "agent:main:main"),
        (DmScope::PerPeer, direct("telegram", "9"), "agent:main:direct:9"),
        (DmScope::PerPeer, direct("telegram", "123"), "agent:main:direct:ann"),
        (DmScope::PerPeer, direct("slack", "u77"), "agent:main:direct:ann"),
        (DmScope::PerPeer, direct("discord", "123"), "agent:main:direct:123"),
        (DmScope::PerChannelPeer, direct("telegram", "9"), "agent:main:telegram:direct:9"),
        (DmScope::PerChannelPeer, direct("telegram", "123"), "agent:main:telegram:direct:ann"),
        (DmScope::PerAccountChannelPeer, direct("telegram", "9"), "agent:main:telegram:default:direct:9"),
        (DmScope::PerAccountChannelPeer, work, "agent:main:telegram:work:direct:9"),
    ] {
        assert_eq!(router(scope).route(&message).unwrap().as_str(), key, "{scope:?} {message:?}");
    }
}

#[test]
fn groups_and_threads_are_the_same_in_every_scope() {
    for scope in [DmScope::Main, DmScope::PerPeer, DmScope::PerAccountChannelPeer] {
        let group = Inbound::of("telegram", Peer { kind: PeerKind::Group, id: "-100" });
        let topic = Inbound { thread: Some("5"), ..group.clone() };
        let room = Inbound::of("matrix", Peer { kind: PeerKind::Room, id: "!R:s" });
        let thread = Inbound { thread: Some("$E"), ..room.clone() };
        for (message, key) in [
            (group, "agent:main:telegram:group:-100"),
            (topic, "agent:main:telegram:group:-100:topic:5"),
            (room, "agent:main:matrix:channel:!R:s"),
            (thread, "agent:main:matrix:channel:!R:s:thread:$E"),
        ] {
            assert_eq!(router(scope).route(&message).unwrap().as_str(), key);
        }
    }
}

#[test]
fn only_what_the_owner_alone_reaches_becomes_one_session() {
    for (key, joins) in [
        ("websocket:room", true),
        ("api:default", true),
        ("cli:direct", true),
        ("agent:main:main", true),
        ("unified:default", true),
        ("api:7", false),
        ("api:user:ann", false),
        ("api:req:7", false),
        ("cli:work", false),
        ("agent:other:main", false),
        ("agent:main:home", false),
        ("agent:main:main:thread:5", false),
        ("agent:main:main:heartbeat", false),
        ("agent:main:telegram:direct:5", false),
        ("agent:main:telegram:group:-5", false),
        ("agent:main:subagent:1", false),
        ("agent:main:cron:job", false),
        ("telegram:5", false),
        ("telegram:-100:topic:7", false),
        ("webhook:7", false),
        ("hook:1", false),
        ("cron:job", false),
        ("heartbeat", false),
        ("dream:20261130-090000", false),
        ("global", false),
        ("nonsense", false),
    ] {
        let own = SessionKey::new(key).unwrap();
        let expect = if joins { UNIFIED_KEY } else { key };
        assert_eq!(Key::unified(own, MAIN_KEY).as_str(), expect);
    }
    let home = SessionKey::new("agent:main:home").unwrap();
    assert_eq!(Key::unified(home, "home").as_str(), UNIFIED_KEY, "the configured main key is the main session");
}

#[test]
fn people_on_channels_join_the_owner_only_where_they_share_the_main_session() {
    let direct = Inbound::of("telegram", Peer { kind: PeerKind::Direct, id: "9" });
    let group = Inbound::of("telegram", Peer { kind: PeerKind::Group, id: "-100" });
    let topic = Inbound { thread: Some("5"), ..direct.clone() };
    for (scope, message, key) in [
        (DmScope::Main, &direct, UNIFIED_KEY),
        (DmScope::Main, &topic, "agent:main:main:topic:5"),
        (DmScope::Main, &group, "agent:main:telegram:group:-100"),
        (DmScope::PerPeer, &direct, "agent:main:direct:9"),
        (DmScope::PerChannelPeer, &direct, "agent:main:telegram:direct:9"),
        (DmScope::PerAccountChannelPeer, &direct, "agent:main:telegram:default:direct:9"),
    ] {
        let router = Router { unified: true, ..router(scope) };
        assert_eq!(router.route(message).unwrap().as_str(), key, "{scope:?} {message:?}");
    }
    let other =
        Binding { agent: AgentId::new("work"), claim: Claim { channel: "telegram".into(), ..Claim::default() } };
    let router = Router { unified: true, bindings: vec![other], ..router(DmScope::Main) };
    assert_eq!(router.route(&direct).unwrap().as_str(), "agent:work:main", "another agent is another assistant");
}

#[test]
fn no_stranger_shares_a_session() {
    let links = IdentityLinks([("ann".to_owned(), vec!["webhook:Z".to_owned(), "telegram:AB".to_owned()])].into());
    for (scope, channel, id, key) in [
        (DmScope::PerPeer, "webhook", "Z", "agent:main:direct:ann"),
        (DmScope::PerPeer, "webhook", "z", "agent:main:direct:z"),
        (DmScope::PerPeer, "webhook", "Y", "agent:main:direct:%59"),
        (DmScope::PerPeer, "webhook", "%59", "agent:main:direct:%2559"),
        (DmScope::PerPeer, "telegram", "ab", "agent:main:direct:ann"),
        (DmScope::PerPeer, "telegram", "Y", "agent:main:direct:y"),
        (DmScope::PerPeer, "telegram", "ann", "agent:main:direct:%61nn"),
        (DmScope::PerChannelPeer, "webhook", "ANN", "agent:main:webhook:direct:%41NN"),
        (DmScope::PerChannelPeer, "webhook", "Y", "agent:main:webhook:direct:Y"),
        (DmScope::PerChannelPeer, "webhook", "7:thread:1", "agent:main:webhook:direct:7%3athread%3a1"),
        (DmScope::PerChannelPeer, "matrix", "@ann:example.org", "agent:main:matrix:direct:@ann:example.org"),
    ] {
        let router = Router { links: links.clone(), ..router(scope) };
        let message = Inbound::of(channel, Peer { kind: PeerKind::Direct, id });
        assert_eq!(router.route(&message).unwrap().as_str(), key, "{scope:?} {channel} {id}");
    }
    let group = Inbound::of("webhook", Peer { kind: PeerKind::Group, id: "7:thread:1" });
    assert_eq!(router(DmScope::Main).route(&group).unwrap().as_str(), "agent:main:webhook:group:7%3athread%3a1");
}

fn id() -> impl Strategy<Value = String> {
    "[a-z0-9@$!._-]{1,12}"
}

fn agent_place() -> impl Strategy<Value = Place> {
    let channel = || prop::sample::select(vec!["telegram", "discord", "slack", "matrix", "signal", "webhook"]);
    let direct = (prop::option::of((channel(), prop::option::of(id()))), id()).prop_map(|(place, peer)| {
        let (channel, account) = place.map_or((None, None), |(channel, account)| (Some(channel.to_owned()), account));
        Place::Direct { channel, account, peer }
    });
    prop_oneof![
        id().prop_map(Place::Main),
        direct,
        (channel(), id()).prop_map(|(channel, id)| Place::Group { channel: channel.to_owned(), id }),
        (channel(), "[a-zA-Z0-9]{1,9}:[a-z]{1,9}").prop_map(|(channel, id)| {
            let id = if ["matrix", "webhook"].contains(&channel) { id } else { id.to_lowercase() };
            Place::Room { channel: channel.to_owned(), id }
        }),
        (id(), prop::option::of(id())).prop_map(|(job, run)| Place::Cron { job, run }),
        id().prop_map(Place::Subagent),
        id().prop_map(Place::Hook),
        id().prop_map(Place::Dashboard),
        id().prop_map(Place::Acp),
        id().prop_map(|user| Place::ApiUser { prefix: "openai".into(), user }),
        any::<u128>().prop_map(|n| {
            let id = uuid::Uuid::from_u128(n).to_string();
            Place::ApiRequest { prefix: "openai".into(), id }
        }),
    ]
}

fn base() -> impl Strategy<Value = (Base, bool)> {
    prop_oneof![
        ("[a-z0-9][a-z0-9_]{0,8}", agent_place())
            .prop_map(|(agent, place)| (Base::Agent(AgentId::new(&agent), place), true)),
        ("[A-Z0-9.@-]{1,12}").prop_map(|chat| (Base::Chat { channel: "telegram".into(), chat }, true)),
        id().prop_map(|id| (Base::WebSocket(id), false)),
        id().prop_map(|id| (Base::Api(id), false)),
        id().prop_map(|id| (Base::Cli(id), false)),
        id().prop_map(|id| (Base::Hook(id), false)),
        id().prop_map(|id| (Base::Cron(id), false)),
        id().prop_map(|id| (Base::Dream(id), false)),
        id().prop_map(|id| (Base::Node(id), false)),
        id().prop_map(|id| (Base::AcpBridge(format!(":{id}")), false)),
        Just((Base::Unified, false)),
        Just((Base::Heartbeat, false)),
        Just((Base::Global, false)),
        Just((Base::Unknown, false)),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same(
        (base, branches) in base(),
        branch in prop::option::of((any::<bool>(), id())),
        heartbeat in any::<bool>(),
    ) {
        let branch = branch.filter(|_| branches);
        let branch = branch.map(|(topic, id)| if topic { Branch::Topic(id) } else { Branch::Thread(id) });
        let heartbeat = heartbeat && matches!(base, Base::Agent(..));
        let key = Key { base, branch, heartbeat };
        prop_assert_eq!(Key::parse(&key.to_string()), key);
    }

    #[test]
    fn any_text_reads_and_reads_again_as_the_same(text in "(agent:|[a-z]{0,6}:)?([a-zA-Z:]{0,3}(direct|dm|group|channel|thread|topic|cron|run|heartbeat)?[:a-zA-Z0-9 ]{0,4}){0,5}") {
        let key = Key::parse(&text);
        prop_assert_eq!(Key::parse(&key.to_string()), key);
    }

    #[test]
    fn no_id_of_a_stranger_gives_rights(peer in "[a-z:]{0,4}(main|cron:|subagent:|:heartbeat|:direct:|api-user:|agent:)?[a-z:]{1,6}") {
        for scope in [DmScope::PerPeer, DmScope::PerChannelPeer, DmScope::PerAccountChannelPeer] {
            let message = Inbound::of("telegram", Peer { kind: PeerKind::Direct, id: &peer });
            let key = router(scope).route(&message).unwrap();
            let kind = Key::from(&key).kind(MAIN_KEY);
            let harmless = [SessionKind::Direct, SessionKind::Thread, SessionKind::Unknown, SessionKind::Group];
            prop_assert!(harmless.contains(&kind), "{} {:?}", key, kind);
        }
    }

    #[test]
    fn two_keys_never_share_a_file((one, _) in base(), (two, _) in base()) {
        let (one, two) = (Key::of(one).to_string(), Key::of(two).to_string());
        let (one, two) = (SessionKey::new(&one).unwrap(), SessionKey::new(&two).unwrap());
        prop_assert_eq!(stem(&one).to_lowercase() == stem(&two).to_lowercase(), one == two);
        prop_assert_eq!(key_of(&stem(&one)), Some(one));
    }
}

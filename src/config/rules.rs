//! Rules that span several keys. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use channel::webhook::SigningSecret;
use domain::keys::{Base, Key, Place as KeyPlace};
use domain::policy::{Pattern, known_tools};

use super::check::Place;
use super::hooks;
use super::key::{camel, closest};
use super::presets;
use super::schema::{Config, Sandbox};
use super::{BindingConfig, ResetMode};

/// Bytes of a name in `session.identityLinks`: it is part of a session key.
const LINK_BYTES_MAX: usize = 128;

/// A rule that is broken.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The key to blame, canonical.
    pub path: &'static [&'static str],
    /// The key that breaks the rule where the first one is not set.
    pub or: Option<&'static [&'static str]>,
    /// What is wrong and what to do.
    pub what: String,
}

impl Broken {
    /// The key to blame.
    pub fn place(&self) -> Place {
        place(self.path)
    }
}

/// A setting that works but probably not as meant.
#[derive(Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The key, canonical.
    pub path: Vec<&'static str>,
    /// The key that makes it doubtful where the first one is not set.
    pub or: Option<&'static [&'static str]>,
    /// Why.
    pub what: Cow<'static, str>,
}

impl Doubt {
    /// The key.
    pub fn place(&self) -> Place {
        place(&self.path)
    }
}

fn place(path: &[&str]) -> Place {
    path.iter().fold(Place::default(), |place, step| place.child(step, &camel(step)))
}

/// Channels whose messages `bindings` can send to an agent's session.
const BOUND: [&str; 1] = ["webhook"];

/// Segments that the log needs at least: the four newest are never recycled, and copies need room.
const SEGMENTS_MIN: u64 = 4;

/// All broken rules.
pub fn broken(config: &Config) -> Vec<Broken> {
    let mut rules = Rules(Vec::new());
    rules.of_http(config);
    rules.of_websocket(config);
    rules.of_webhook(config);
    rules.of_limits(config);
    rules.of_sessions(config);
    rules.0.extend(presets::wrong(&config.model_presets).map(|what| Broken {
        path: &["model_presets"],
        or: None,
        what,
    }));
    rules.0.extend(presets::wrong_default(config).map(|what| Broken {
        path: &["agents", "defaults", "model_preset"],
        or: None,
        what,
    }));
    let told: &[&str] = if config.channels.webhook.enabled { &["webhook"] } else { &[] };
    rules.0.extend(hooks::wrong(&config.hooks, told).into_iter().map(|what| Broken {
        path: &["hooks"],
        or: None,
        what,
    }));
    rules.0.extend(presets::wrong_dream(config).map(|what| Broken {
        path: &["agents", "defaults", "dream", "model_override"],
        or: None,
        what,
    }));
    let bad_times = config.agents.defaults.dream.timing(jiff::tz::TimeZone::UTC).err();
    rules.0.extend(bad_times.map(|why| Broken {
        path: &["agents", "defaults", "dream", "cron"],
        or: None,
        what: why.to_string(),
    }));
    rules.0.extend(same_port(config));
    rules.0
}

/// The broken ones so far.
struct Rules(Vec<Broken>);

impl Rules {
    fn rule(&mut self, fine: bool, path: &'static [&'static str], what: &str) {
        self.pair(fine, path, None, what);
    }

    fn pair(
        &mut self,
        fine: bool,
        path: &'static [&'static str],
        or: impl Into<Option<&'static [&'static str]>>,
        what: &str,
    ) {
        if !fine {
            self.0.push(Broken { path, or: or.into(), what: what.into() });
        }
    }

    fn of_http(&mut self, config: &Config) {
        let (api, gateway) = (&config.api, &config.gateway);
        self.rule(
            is_loopback(&api.host) || api.api_key.is_some(),
            &["api", "host"],
            "can be reached from other machines, which needs a key: set api.apiKey, or the host 127.0.0.1",
        );
        self.rule(
            is_loopback(&gateway.host) || config.admin.token.is_some(),
            &["gateway", "host"],
            "can be reached from other machines, which needs a token: set admin.token, or the host 127.0.0.1",
        );
    }

    fn of_websocket(&mut self, config: &Config) {
        let socket = &config.channels.websocket;
        let open = socket.enabled && !is_loopback(&socket.host);
        self.rule(
            !open || socket.token.is_some() || socket.token_issue_secret.is_some(),
            &["channels", "websocket", "host"],
            "can be reached from other machines, which needs a token: set channels.websocket.token or \
             channels.websocket.tokenIssueSecret, or the host 127.0.0.1",
        );
        self.rule(
            !open || socket.websocket_requires_token != Some(false),
            &["channels", "websocket", "websocket_requires_token"],
            "must not be false while channels.websocket.host can be reached from other machines",
        );
        self.rule(
            !open || socket.token_issue_path.is_none() || socket.token_issue_secret.is_some(),
            &["channels", "websocket", "token_issue_path"],
            "hands out tokens to other machines: set channels.websocket.tokenIssueSecret too",
        );
        self.rule(socket.path.starts_with('/'), &["channels", "websocket", "path"], "must start with /");
        let issue = socket.token_issue_path.as_deref();
        self.rule(
            issue.is_none_or(|path| path.starts_with('/') && path != socket.path),
            &["channels", "websocket", "token_issue_path"],
            "must start with / and differ from channels.websocket.path",
        );
    }

    fn of_webhook(&mut self, config: &Config) {
        let webhook = &config.channels.webhook;
        self.rule(
            !webhook.enabled || is_loopback(&webhook.host) || webhook.token.is_some(),
            &["channels", "webhook", "host"],
            "can be reached from other machines, which needs a token: set channels.webhook.token, or the host 127.0.0.1",
        );
        self.pair(
            !webhook.enabled || webhook.url.as_deref().is_some_and(is_http),
            &["channels", "webhook", "url"],
            ["channels", "webhook", "enabled"].as_slice(),
            "must be the http:// or https:// address that replies are sent to",
        );
        self.rule(
            webhook.secret.as_ref().is_none_or(|secret| SigningSecret::new(secret.expose()).is_ok()),
            &["channels", "webhook", "secret"],
            "must go on in base64 after whsec_",
        );
    }

    fn of_sessions(&mut self, config: &Config) {
        let main_key = Key::parse(&format!("agent:main:{}", config.session.main_key));
        let plain = matches!(&main_key.base, Base::Agent(_, KeyPlace::Main(key)) if *key == config.session.main_key);
        self.rule(
            plain && main_key.branch.is_none() && !config.session.main_key.starts_with("heartbeat"),
            &["session", "main_key"],
            "must be one word in lower case, without a colon",
        );
        let names_both = |binding: &BindingConfig| !binding.claim.channel.is_empty() && !binding.agent_id.is_empty();
        if let Some(at) = config.bindings.iter().position(|binding| !names_both(binding)) {
            self.rule(false, &["bindings"], &format!("[{at}] must name an agentId and a match.channel"));
        }
        self.of_links(&config.session.identity_links);
    }

    fn of_links(&mut self, links: &BTreeMap<String, Vec<String>>) {
        let path = &["session", "identity_links"];
        let fits = |name: &str| !name.is_empty() && name.len() <= LINK_BYTES_MAX && !name.contains(char::is_control);
        self.rule(
            links.keys().all(|name| fits(name)),
            path,
            "has a name that cannot be part of a session key: 1 to 128 bytes without control characters are needed",
        );
        let mut seen = BTreeSet::new();
        self.rule(
            links.values().flatten().all(|id| seen.insert(id)),
            path,
            "gives one id to two people, or twice to one",
        );
    }

    fn of_limits(&mut self, config: &Config) {
        self.rule(
            config.gateway.heartbeat.active_hours.read().is_ok(),
            &["gateway", "heartbeat", "active_hours"],
            "must have a start and an end, two different times of the day like 08:00 and 22:00",
        );
        self.rule(
            jiff::tz::TimeZone::get(&config.agents.defaults.timezone).is_ok(),
            &["agents", "defaults", "timezone"],
            "is no time zone known here; an IANA name like Europe/Berlin or UTC is expected",
        );
        self.pair(
            config.journal.max_bytes / config.journal.segment_bytes >= SEGMENTS_MIN,
            &["journal", "max_bytes"],
            ["journal", "segment_bytes"].as_slice(),
            "must be at least four times journal.segmentBytes",
        );
        let supervision = &config.supervision;
        self.pair(
            supervision.backoff_base_ms <= supervision.backoff_cap_ms,
            &["supervision", "backoff_base_ms"],
            ["supervision", "backoff_cap_ms"].as_slice(),
            "must not exceed supervision.backoffCapMs",
        );
        self.pair(
            supervision.quarantine_seconds <= supervision.quarantine_max_seconds,
            &["supervision", "quarantine_seconds"],
            ["supervision", "quarantine_max_seconds"].as_slice(),
            "must not exceed supervision.quarantineMaxSeconds",
        );
    }
}

/// Settings that work but probably not as meant.
pub fn doubtful(config: &Config) -> Vec<Doubt> {
    let mut found = Vec::new();
    let mut doubt =
        |doubtful: bool, path: &'static [&'static str], or: Option<&'static [&'static str]>, what: &'static str| {
            if doubtful {
                found.push(Doubt { path: path.to_vec(), or, what: what.into() });
            }
        };
    let defaults = &config.agents.defaults;
    doubt(
        defaults.max_tokens >= defaults.context_window_tokens,
        &["agents", "defaults", "context_window_tokens"],
        Some(&["agents", "defaults", "max_tokens"]),
        "is not larger than agents.defaults.maxTokens, which leaves no room for the conversation",
    );
    let socket = &config.channels.websocket;
    doubt(
        socket.enabled && socket.requires_token() && socket.token.is_none() && socket.token_issue_secret.is_none(),
        &["channels", "websocket", "websocket_requires_token"],
        None,
        "is true but neither token nor tokenIssueSecret is set, so nobody can connect",
    );
    doubt(
        socket.enabled && socket.allow_from.is_empty(),
        &["channels", "websocket", "allow_from"],
        None,
        "is empty, so nobody can connect",
    );
    doubt(
        config.tools.exec.enable && config.tools.exec.sandbox == Sandbox::Off,
        &["tools", "exec", "sandbox"],
        None,
        "is off: commands of your own sessions can read whatever the gateway can, this configuration with its keys too; \
         sessions that are kept off the machine run none without a sandbox",
    );
    let maintenance = &config.session.maintenance;
    let limited = maintenance.prune_after_days.is_some()
        || maintenance.max_entries.is_some()
        || maintenance.max_disk_bytes.is_some();
    doubt(
        maintenance.mode.is_some() && !limited,
        &["session", "maintenance", "mode"],
        None,
        "does nothing without pruneAfterDays, maxEntries or maxDiskBytes",
    );
    let reset = &config.session.reset;
    doubt(
        reset.mode == Some(ResetMode::Idle) && reset.idle_minutes == 0,
        &["session", "reset", "mode"],
        None,
        "is idle, which does nothing without idleMinutes",
    );
    let webhook = &config.channels.webhook;
    let enabled: &[&str] = &["channels", "webhook", "enabled"];
    doubt(
        webhook.enabled && webhook.allow_from.is_empty(),
        &["channels", "webhook", "allow_from"],
        Some(enabled),
        "names nobody, so nobody can write; list the senders, or \"*\" for everyone who has the token",
    );
    doubt(
        webhook.enabled && webhook.secret.is_none(),
        &["channels", "webhook", "secret"],
        Some(enabled),
        "is not set, so a receiver cannot tell whether a reply comes from here",
    );
    found.extend(names_nothing(config));
    found
}

/// Names of tools and channels that nothing here has. They may be anything, so they are not repeated.
fn names_nothing(config: &Config) -> Vec<Doubt> {
    let table = &config.session.policies;
    let kinds = [
        ("main", &table.main),
        ("direct", &table.direct),
        ("group", &table.group),
        ("thread", &table.thread),
        ("cron", &table.cron),
        ("hook", &table.hook),
        ("subagent", &table.subagent),
        ("heartbeat", &table.heartbeat),
        ("api", &table.api),
        ("websocket", &table.websocket),
        ("cli", &table.cli),
        ("unknown", &table.unknown),
    ];
    let mut lists = vec![(vec!["tools"], &config.tools.allow, &config.tools.deny)];
    lists.extend(kinds.map(|(kind, own)| (vec!["session", "policies", kind], &own.allow, &own.deny)));
    let mut found = Vec::new();
    for (section, allow, deny) in lists {
        for (key, list) in [("allow", allow), ("deny", deny)] {
            // Those that are no patterns are told as such.
            let nothing = |text: &String| Pattern::parse(text).is_ok_and(|pattern| !pattern.may_match());
            for (at, text) in list.iter().enumerate().filter(|(_, text)| nothing(text)) {
                let meant = meant(&text.to_lowercase(), known_tools());
                let what = format!("item {} matches no tool that is known here{meant}", at + 1).into();
                found.push(Doubt { path: [&*section, &[key]].concat(), or: None, what });
            }
        }
    }
    for (at, binding) in config.bindings.iter().enumerate() {
        let channel = &*binding.claim.channel;
        if !channel.is_empty() && !BOUND.contains(&channel) {
            let meant = meant(channel, BOUND.into_iter());
            let what = format!("[{at}].match.channel names no channel whose messages can be bound{meant}").into();
            found.push(Doubt { path: vec!["bindings"], or: None, what });
        }
    }
    found
}

fn meant<'n>(written: &str, names: impl Iterator<Item = &'n str>) -> String {
    closest(written, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn is_http(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Whether only this machine reaches the address. A name other than `localhost` may be anything.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim().trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn same_port(config: &Config) -> Option<Broken> {
    let socket = &config.channels.websocket;
    let mut doors = vec![
        (["gateway", "port"].as_slice(), "gateway.port", config.gateway.port),
        (["api", "port"].as_slice(), "api.port", config.api.port),
    ];
    if socket.enabled {
        doors.push((["channels", "websocket", "port"].as_slice(), "channels.websocket.port", socket.port));
    }
    let webhook = &config.channels.webhook;
    if webhook.enabled {
        doors.push((["channels", "webhook", "port"].as_slice(), "channels.webhook.port", webhook.port));
    }
    let pairs = doors.iter().enumerate().flat_map(|(at, one)| doors.iter().skip(at + 1).map(move |two| (one, two)));
    pairs
        .filter(|(one, two)| one.2 == two.2 && one.2 != 0)
        .map(|(one, two)| Broken {
            path: two.0,
            or: Some(one.0),
            what: format!("is the same as {}; each door needs its own", one.1),
        })
        .next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for (host, expect) in [
            ("127.0.0.1", true),
            ("127.8.9.1", true),
            ("localhost", true),
            ("::1", true),
            ("[::1]", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.168.1.2", false),
            ("localhost.example.org", false),
            ("127.0.0.1.example.org", false),
        ] {
            assert_eq!(is_loopback(host), expect, "{host}");
        }
    }

    #[test]
    fn names_that_nothing_has_are_told_with_the_one_that_was_meant() {
        let told = |change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let told = |doubt: &Doubt| format!("{} {}", doubt.place().shown, doubt.what);
            doubtful(&config).iter().map(told).collect::<Vec<_>>()
        };
        let list = |text: &str| vec!["exec".to_owned(), text.to_owned()];
        assert_eq!(
            told(&|config| config.tools.deny = list("web_serch")),
            ["tools.deny item 2 matches no tool that is known here; did you mean web_search?"]
        );
        assert_eq!(
            told(&|config| config.session.policies.group.allow = list("sk-secret")),
            ["session.policies.group.allow item 2 matches no tool that is known here"]
        );
        assert_eq!(told(&|config| config.tools.allow = list("mcp_home_*")), [""; 0]);
        let bound = |channel: &str| {
            let binding = json!({"agent_id": "a", "match": {"channel": channel}});
            let binding: BindingConfig = serde_json::from_value(binding).unwrap();
            told(&|config| config.bindings = vec![binding.clone()])
        };
        assert_eq!(
            bound("webhok"),
            ["bindings [0].match.channel names no channel whose messages can be bound; did you mean webhook?"]
        );
        assert_eq!(bound("webhook"), [""; 0]);
    }

    #[test]
    fn the_defaults_break_no_rule() {
        assert_eq!(broken(&Config::default()), []);
        assert_eq!(doubtful(&Config::default()), []);
    }
}

//! Which tools a rule lets pass: profiles, groups, names, patterns.

use super::Denied;

/// A set of tools for a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The session's own status.
    Minimal,
    /// Files, commands, sessions, memory, images.
    Coding,
    /// Messages and sessions.
    Messaging,
    /// All tools.
    Full,
}

/// Part of an `allow` or `deny` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// `group:<name>`.
    Group(Group),
    /// A name, in which `*` stands for any text.
    Name(String),
}

/// Tools of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `group:<name>`: these tools.
    Of(&'static str, &'static [&'static str]),
    /// `group:openclaw`: every tool of some group.
    BuiltIn,
    /// `group:plugins`: every other tool, such as those of MCP servers.
    Plugins,
}

/// One layer: a tool passes when the profile has it, `allow` is empty or names it, and `deny` does not name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRule {
    /// The profile.
    pub profile: Profile,
    /// Narrows it.
    pub allow: Vec<Pattern>,
    /// Wins.
    pub deny: Vec<Pattern>,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// No text.
    #[error("is empty")]
    Empty,
    /// `group:` and no group's name.
    #[error("names no group of tools; there are {}", group_names())]
    Group,
    /// A character that no tool's name has.
    #[error("must be a tool's name, in which * stands for any text, or group:<name>")]
    Name,
}

/// Groups that profiles are made of.
const FS: (&str, &[&str]) =
    ("fs", &["read_file", "write_file", "edit_file", "list_dir", "apply_patch", "glob", "grep"]);
const RUNTIME: (&str, &[&str]) = ("runtime", &["exec", "process"]);
const SESSIONS: (&str, &[&str]) = (
    "sessions",
    &[
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "sessions_spawn",
        "sessions_yield",
        "subagents",
        "session_status",
        "spawn",
    ],
);
const MEMORY: (&str, &[&str]) = ("memory", &["memory_search", "memory_get"]);
const MESSAGING: (&str, &[&str]) = ("messaging", &["message"]);
const GROUPS: [(&str, &[&str]); 11] = [
    FS,
    RUNTIME,
    SESSIONS,
    MEMORY,
    MESSAGING,
    ("web", &["web_search", "web_fetch"]),
    ("ui", &["browser", "canvas"]),
    ("automation", &["cron", "gateway"]),
    ("nodes", &["nodes"]),
    ("agents", &["agents_list"]),
    ("media", &["image", "image_generate", "music_generate", "video_generate", "tts", "pdf"]),
];
/// How the names of an MCP server's tools begin.
const MCP: &str = "mcp_";
/// What other programs call our tools.
const ALIASES: [(&str, &str); 6] = [
    ("read", "read_file"),
    ("write", "write_file"),
    ("edit", "edit_file"),
    ("ls", "list_dir"),
    ("bash", "exec"),
    ("shell", "exec"),
];

// === impl Profile ===

impl Profile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Minimal, Self::Coding, Self::Messaging, Self::Full];

    /// As it is written in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Coding => "coding",
            Self::Messaging => "messaging",
            Self::Full => "full",
        }
    }

    fn has(self, tool: &str) -> bool {
        match self {
            Self::Minimal => tool == "session_status",
            Self::Coding => {
                let groups = [FS, RUNTIME, SESSIONS, MEMORY];
                tool == "image" || groups.iter().any(|(_, tools)| tools.contains(&tool))
            }
            Self::Messaging => {
                let sessions = ["sessions_list", "sessions_history", "sessions_send", "session_status"];
                MESSAGING.1.contains(&tool) || sessions.contains(&tool)
            }
            Self::Full => true,
        }
    }
}

// === impl Pattern ===

impl Pattern {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let text = text.trim().to_lowercase();
        if text.is_empty() {
            return Err(BadPattern::Empty);
        }
        if let Some(name) = text.strip_prefix("group:") {
            let of = GROUPS.iter().find(|(known, _)| *known == name);
            return match (name, of) {
                ("openclaw", _) => Ok(Self::Group(Group::BuiltIn)),
                ("plugins", _) => Ok(Self::Group(Group::Plugins)),
                (_, Some((name, tools))) => Ok(Self::Group(Group::Of(name, tools))),
                (_, None) => Err(BadPattern::Group),
            };
        }
        if !text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-*".contains(letter)) {
            return Err(BadPattern::Name);
        }
        let alias = ALIASES.iter().find(|(other, _)| *other == text).map(|(_, name)| (*name).to_owned());
        Ok(Self::Name(alias.unwrap_or(text)))
    }

    /// Whether it matches a tool that is known by its name, or may match one of an MCP server, which are known only when
    /// that runs.
    pub fn may_match(&self) -> bool {
        match self {
            Self::Group(_) => true,
            Self::Name(pattern) => {
                let start = pattern.split('*').next().unwrap_or_default();
                let is_mcp = start.starts_with(MCP) || (pattern.contains('*') && MCP.starts_with(start));
                is_mcp || known_tools().any(|tool| matches(pattern, tool))
            }
        }
    }

    fn names(&self, tool: &str) -> bool {
        match self {
            Self::Group(Group::Of(_, tools)) => tools.contains(&tool),
            Self::Group(Group::BuiltIn) => is_built_in(tool),
            Self::Group(Group::Plugins) => !is_built_in(tool),
            Self::Name(pattern) => matches(pattern, tool),
        }
    }
}

// === impl ToolRule ===

impl ToolRule {
    /// A profile, neither narrowed nor with anything denied.
    pub fn profile(profile: Profile) -> Self {
        Self { profile, allow: Vec::new(), deny: Vec::new() }
    }

    /// Whether `tool` passes.
    pub fn permits(&self, tool: &str) -> Result<(), Denied> {
        let tool = &*tool.to_lowercase();
        let named = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.names(tool));
        match () {
            () if named(&self.deny) => Err(Denied::Denied),
            () if !self.profile.has(tool) => Err(Denied::Profile { profile: self.profile }),
            () if !self.allow.is_empty() && !named(&self.allow) => Err(Denied::NotAllowed),
            () => Ok(()),
        }
    }
}

/// Names of tools that a pattern may have, also those that other programs use for them.
pub fn known_tools() -> impl Iterator<Item = &'static str> {
    let own = GROUPS.iter().flat_map(|(_, tools)| tools.iter().copied());
    own.chain(ALIASES.iter().map(|(other, _)| *other))
}

fn is_built_in(tool: &str) -> bool {
    GROUPS.iter().any(|(_, tools)| tools.contains(&tool))
}

fn group_names() -> String {
    let names = GROUPS.iter().map(|(name, _)| *name).chain(["openclaw", "plugins"]);
    names.map(|name| format!("group:{name}")).collect::<Vec<_>>().join(", ")
}

/// Whether `text` is `pattern` with some text in place of each `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn each_profile_has_its_tools() {
        for (tool, expect) in [
            ("session_status", [true, true, true, true]),
            ("read_file", [false, true, false, true]),
            ("write_file", [false, true, false, true]),
            ("exec", [false, true, false, true]),
            ("image", [false, true, false, true]),
            ("sessions_history", [false, true, true, true]),
            ("message", [false, false, true, true]),
            ("web_search", [false, false, false, true]),
            ("mcp_files_read", [false, false, false, true]),
            ("anything", [false, false, false, true]),
        ] {
            let found = Profile::ALL.map(|profile| ToolRule::profile(profile).permits(tool).is_ok());
            assert_eq!(found, expect, "{tool}");
        }
    }

    #[test]
    fn a_rule_only_narrows_and_deny_wins() {
        let rule =
            |profile, allow: &[&str], deny: &[&str]| ToolRule { profile, allow: patterns(allow), deny: patterns(deny) };
        let missing = Err(Denied::Profile { profile: Profile::Minimal });
        for (rule, tool, expect) in [
            (rule(Profile::Full, &[], &[]), "exec", Ok(())),
            (rule(Profile::Full, &["group:fs"], &[]), "read_file", Ok(())),
            (rule(Profile::Full, &["group:fs"], &[]), "exec", Err(Denied::NotAllowed)),
            (rule(Profile::Full, &["exec"], &["group:runtime"]), "exec", Err(Denied::Denied)),
            (rule(Profile::Full, &["exec"], &["*"]), "exec", Err(Denied::Denied)),
            (rule(Profile::Minimal, &["exec"], &[]), "exec", missing),
            (rule(Profile::Full, &["Bash", "read"], &[]), "exec", Ok(())),
            (rule(Profile::Full, &["read"], &[]), "read_file", Ok(())),
            (rule(Profile::Full, &["mcp_files_*"], &[]), "mcp_files_read", Ok(())),
            (rule(Profile::Full, &["mcp_files_*"], &[]), "mcp_web_read", Err(Denied::NotAllowed)),
            (rule(Profile::Full, &[], &["group:plugins"]), "mcp_web_read", Err(Denied::Denied)),
            (rule(Profile::Full, &["group:openclaw"], &[]), "mcp_web_read", Err(Denied::NotAllowed)),
            (rule(Profile::Full, &["group:openclaw"], &[]), "cron", Ok(())),
            (rule(Profile::Full, &[], &["EXEC"]), "Exec", Err(Denied::Denied)),
        ] {
            assert_eq!(rule.permits(tool), expect, "{tool}: {rule:?}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expect) in [
            ("exec", "exec", true),
            ("exec", "execute", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (text, said) in [
            (" ", "is empty"),
            ("group:nothing", "there are group:fs"),
            ("read file", "must be a tool's name"),
            ("exec|rm", "must be a tool's name"),
        ] {
            assert!(Pattern::parse(text).unwrap_err().to_string().contains(said), "{text}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_known_is_found_out() {
        for (text, expect) in [
            ("web_search", true),
            ("web_*", true),
            ("bash", true),
            ("*", true),
            ("group:plugins", true),
            ("mcp_home_light", true),
            ("m*", true),
            ("web_serch", false),
            ("files_*", false),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().may_match(), expect, "{text}");
        }
    }
}

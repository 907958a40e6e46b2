//! Which agent a message is for.

use super::route::{Inbound, Peer};
use super::{AgentId, PeerKind};

/// The account that is meant where none is named.
pub(super) const ACCOUNT: &str = "default";
/// Every account.
const ANY: &str = "*";

/// Messages of that kind are for that agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The agent.
    pub agent: AgentId,
    /// Which messages.
    pub claim: Claim,
}

/// Which messages: all that is named must be so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// Platform.
    pub channel: String,
    /// Account of the bot there; none is `default`, `*` is every one.
    pub account: Option<String>,
    /// The person, group or room, or the one that a thread belongs to.
    pub peer: Option<(PeerKind, String)>,
    /// Discord server.
    pub guild: Option<String>,
    /// Roles there; one of them is enough.
    pub roles: Vec<String>,
    /// Slack or Teams workspace.
    pub team: Option<String>,
}

/// How exactly a claim names its messages; the most exact one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Peer,
    ParentPeer,
    GuildRoles,
    Guild,
    Team,
    Account,
    Channel,
}

/// The agent of the most exact claim, and of those the first one; `main` when none is made.
pub(super) fn agent(bindings: &[Binding], message: &Inbound<'_>) -> AgentId {
    let claims = bindings.iter().filter_map(|binding| Some((tier(&binding.claim, message)?, binding)));
    claims.min_by_key(|(tier, _)| *tier).map(|(_, binding)| binding.agent.clone()).unwrap_or_default()
}

fn tier(claim: &Claim, message: &Inbound<'_>) -> Option<Tier> {
    let account = claim.account.as_deref().unwrap_or(ACCOUNT);
    let same = |claimed: &str, found: Option<&str>| found.is_some_and(|found| found.eq_ignore_ascii_case(claimed));
    let fits = same(&claim.channel, Some(message.channel))
        && (account == ANY || same(account, Some(message.account.unwrap_or(ACCOUNT))))
        && claim.guild.as_deref().is_none_or(|guild| same(guild, message.guild))
        && claim.team.as_deref().is_none_or(|team| same(team, message.team))
        && (claim.roles.is_empty() || claim.roles.iter().any(|role| message.roles.contains(&role.as_str())));
    if !fits {
        return None;
    }
    if let Some((kind, id)) = &claim.peer {
        let is = |peer: &Peer<'_>| peer.kind == *kind && (id == ANY || peer.id == id);
        return match () {
            () if is(&message.peer) => Some(Tier::Peer),
            () if message.parent.as_ref().is_some_and(is) => Some(Tier::ParentPeer),
            () => None,
        };
    }
    Some(match (&claim.guild, &claim.team) {
        (Some(_), _) if !claim.roles.is_empty() => Tier::GuildRoles,
        (Some(_), _) => Tier::Guild,
        (None, Some(_)) => Tier::Team,
        (None, None) if claim.account.is_some() && account != ANY => Tier::Account,
        (None, None) => Tier::Channel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(channel: &str) -> Claim {
        Claim { channel: channel.to_owned(), ..Claim::default() }
    }

    #[test]
    fn the_most_exact_claim_wins_and_then_the_first() {
        let owned = |text: &str| Some(text.to_owned());
        let claims = [
            ("channel", Claim { account: owned("*"), ..claim("discord") }),
            ("account", Claim { account: owned("work"), ..claim("discord") }),
            ("team", Claim { account: owned("*"), team: owned("t"), ..claim("discord") }),
            ("guild", Claim { account: owned("*"), guild: owned("g"), ..claim("discord") }),
            (
                "roles",
                Claim { account: owned("*"), guild: owned("g"), roles: vec!["admin".into()], ..claim("discord") },
            ),
            ("parent", Claim { account: owned("*"), peer: Some((PeerKind::Room, "7".into())), ..claim("discord") }),
            ("peer", Claim { account: owned("*"), peer: Some((PeerKind::Room, "8".into())), ..claim("discord") }),
            ("late", Claim { account: owned("*"), peer: Some((PeerKind::Room, "8".into())), ..claim("discord") }),
        ];
        let bindings = claims.map(|(name, claim)| Binding { agent: AgentId::new(name), claim });
        let room = |id: &'static str| Peer { kind: PeerKind::Room, id };
        let bare = Inbound { channel: "discord", ..Inbound::of("discord", room("1")) };
        let work = Inbound { account: Some("work"), ..bare.clone() };
        let team = Inbound { team: Some("t"), ..work.clone() };
        let guild = Inbound { guild: Some("g"), ..team.clone() };
        let roles = Inbound { roles: vec!["user", "admin"], ..guild.clone() };
        let parent = Inbound { parent: Some(room("7")), ..roles.clone() };
        let peer = Inbound { peer: room("8"), ..parent.clone() };
        for (message, expect) in [
            (&bare, "channel"),
            (&work, "account"),
            (&team, "team"),
            (&guild, "guild"),
            (&roles, "roles"),
            (&parent, "parent"),
            (&peer, "peer"),
            (&Inbound::of("slack", room("8")), "main"),
        ] {
            assert_eq!(agent(&bindings, message).as_str(), expect, "{message:?}");
        }
        // Without an account, the default one is meant.
        let default = [Binding { agent: AgentId::new("d"), claim: claim("discord") }];
        assert_eq!(agent(&default, &bare).as_str(), "d");
        assert_eq!(agent(&default, &work).as_str(), "main");
    }
}

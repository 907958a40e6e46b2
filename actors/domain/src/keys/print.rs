//! A key as text.

use std::fmt;

use super::{Base, Branch, Key, Place, UNIFIED_KEY};

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)?;
        match &self.branch {
            None => {}
            Some(Branch::Thread(id)) => write!(f, ":thread:{id}")?,
            Some(Branch::Topic(id)) => write!(f, ":topic:{id}")?,
            Some(Branch::Reply(id)) => write!(f, ":{id}")?,
        }
        f.write_str(if self.heartbeat { ":heartbeat" } else { "" })
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent, place) => write!(f, "agent:{agent}:{place}"),
            Self::Chat { channel, chat } => write!(f, "{channel}:{chat}"),
            Self::WebSocket(chat) => write!(f, "websocket:{chat}"),
            Self::Api(session) => write!(f, "api:{session}"),
            Self::Cli(name) => write!(f, "cli:{name}"),
            Self::Hook(id) => write!(f, "hook:{id}"),
            Self::Cron(job) => write!(f, "cron:{job}"),
            Self::Dream(time) => write!(f, "dream:{time}"),
            Self::Node(rest) => write!(f, "node:{rest}"),
            Self::AcpBridge(rest) => write!(f, "acp-bridge{rest}"),
            Self::Unified => f.write_str(UNIFIED_KEY),
            Self::Heartbeat => f.write_str("heartbeat"),
            Self::Global => f.write_str("global"),
            Self::Unknown => f.write_str("unknown"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main(key) => f.write_str(key),
            Self::Direct { channel, account, peer } => {
                for part in [channel, account].into_iter().flatten() {
                    write!(f, "{part}:")?;
                }
                write!(f, "direct:{peer}")
            }
            Self::Group { channel, id } => write!(f, "{channel}:group:{id}"),
            Self::Room { channel, id } => write!(f, "{channel}:channel:{id}"),
            Self::Cron { job, run: None } => write!(f, "cron:{job}"),
            Self::Cron { job, run: Some(run) } => write!(f, "cron:{job}:run:{run}"),
            Self::Subagent(id) => write!(f, "subagent:{id}"),
            Self::Hook(id) => write!(f, "hook:{id}"),
            Self::Dashboard(id) => write!(f, "dashboard:{id}"),
            Self::Acp(id) => write!(f, "acp:{id}"),
            Self::ApiUser { prefix, user } => write!(f, "{prefix}-user:{user}"),
            Self::ApiRequest { prefix, id } => write!(f, "{prefix}:{id}"),
            Self::Other(rest) => f.write_str(rest),
        }
    }
}

//! What an [`App`](super::App) is started with.

use std::path::Path;
use std::sync::Arc;

use channel::outbox::PushChannel;
use protocol::supervision::SupervisionLog;
use supervision::Placement;
use supervision::ports::Ports;
use tools::Tool;

use crate::config::{LoadRequest, Loaded, load};

/// What the process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Serves doors; fails at once when the directory is in use.
    Gateway,
    /// A program of one's own: recovers and drains as a gateway does, without doors.
    Embedded,
    /// One command that runs a turn; what other sessions have left waits for the next gateway.
    OneShot,
    /// One command that only looks: unfinished turns stay as they are.
    AtRest,
}

/// The world around the actors, for simulations that bring their own.
#[derive(Clone)]
pub struct World {
    /// Disk, clock, ids, blocking work.
    pub ports: Ports,
    /// Where actors run.
    pub placement: Arc<dyn Placement>,
    /// Where supervision events go.
    pub log: Arc<dyn SupervisionLog>,
    /// Who answers in place of the configured provider.
    pub model: Option<Arc<dyn provider::Model>>,
}

/// Everything that an application is started with.
pub struct Options {
    pub(super) loaded: Loaded,
    pub(super) purpose: Purpose,
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) channels: Vec<Arc<dyn PushChannel>>,
    pub(super) world: Option<World>,
}

impl Options {
    fn new(loaded: Loaded, purpose: Purpose) -> Self {
        Self { loaded, purpose, tools: Vec::new(), channels: Vec::new(), world: None }
    }

    /// For serving.
    pub fn gateway(loaded: Loaded) -> Self {
        Self::new(loaded, Purpose::Gateway)
    }

    /// For programs that embed Greenroom.
    pub fn embedded(loaded: Loaded) -> Self {
        Self::new(loaded, Purpose::Embedded)
    }

    /// For a command that runs one turn.
    pub fn one_shot(loaded: Loaded) -> Self {
        Self::new(loaded, Purpose::OneShot)
    }

    /// For a command that only looks.
    pub fn at_rest(loaded: Loaded) -> Self {
        Self::new(loaded, Purpose::AtRest)
    }

    /// Default settings with `directory` as data directory; the environment is left out.
    pub fn in_directory(directory: &Path) -> anyhow::Result<Self> {
        let env = [("GREENROOM_HOME".to_owned(), directory.display().to_string())].into();
        Ok(Self::embedded(load(&LoadRequest { config: None, workspace: None, env })?))
    }

    /// Adds a tool to the built-in ones.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a way out to people; one of the same name as a configured one takes its place.
    #[must_use]
    pub fn with_channel(mut self, channel: Arc<dyn PushChannel>) -> Self {
        self.channels.push(channel);
        self
    }

    /// Uses journal segments of this size, however small.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.loaded.config.journal.segment_bytes = bytes;
        self
    }

    /// Runs in another world: no directory lock is taken, and everything stays on the calling thread.
    #[must_use]
    pub fn in_world(mut self, world: World) -> Self {
        self.world = Some(world);
        self
    }
}

//! Everything that a seed decides comes from here.

use supervision::memory::SeededIds;
use supervision::ports::Ids;

/// What a stream of dice is for: streams of one seed do not disturb each other.
#[derive(Debug, Clone, Copy)]
pub enum Stream {
    /// What happens when.
    Plan,
    /// What the clients do.
    Client(u32),
    /// What the model does.
    Model(u32),
    /// What the tools do.
    Tools(u32),
    /// How long the disk and the pool take.
    Pool(u32),
    /// The ids of one process.
    Ids(u32),
    /// What survives the end of one process.
    Death(u32),
    /// Which messages are pushed, and how their channel is.
    Pushed,
    /// What the push channel does.
    Pushes(u32),
    /// Which sessions are edited and ended.
    Changes,
    /// What becomes of messages that come while a turn runs.
    Queue,
    /// How that is changed.
    Rules,
    /// What nobody asks for just now.
    Work,
    /// Who sends sub-agents.
    Runs,
}

impl Stream {
    fn number(self) -> u64 {
        let (kind, process) = match self {
            Self::Plan => (1, 0),
            Self::Client(process) => (2, process),
            Self::Model(process) => (3, process),
            Self::Tools(process) => (4, process),
            Self::Pool(process) => (5, process),
            Self::Ids(process) => (6, process),
            Self::Death(process) => (7, process),
            Self::Pushed => (8, 0),
            Self::Pushes(process) => (9, process),
            Self::Changes => (10, 0),
            Self::Queue => (11, 0),
            Self::Rules => (12, 0),
            Self::Work => (13, 0),
            Self::Runs => (14, 0),
        };
        (u64::from(process) << 8) | kind
    }
}

/// A stream of random numbers.
#[derive(Debug)]
pub struct Dice(SeededIds);

impl Dice {
    /// The stream of `seed`.
    pub fn new(seed: u64, stream: Stream) -> Self {
        let start = SeededIds::new(seed ^ stream.number().wrapping_mul(0xd6e8_feb8_6659_fd93)).random();
        Self(SeededIds::new(start))
    }

    /// Below `end`, or 0.
    pub fn below(&self, end: u64) -> u64 {
        self.0.random() % end.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// An index below `len`.
    pub fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True so many times out of 1000.
    pub fn often(&self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of them.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// 64 bits.
    pub fn bits(&self) -> u64 {
        self.0.random()
    }
}

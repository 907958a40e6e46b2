//! Kinds of lines, as small as can be.

use super::super::{EntryKind, Note};

/// What kind of line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A person's message.
    User,
    /// A command that a person gave to the program.
    Command,
    /// A message that no person said.
    Event,
    /// A model's message.
    Assistant,
    /// A tool's answer.
    ToolResult,
    /// A command that a person ran beside the conversation.
    Bash,
    /// A message of a program.
    CustomRole,
    /// A message whose role nobody knows.
    OtherRole,
    /// A program's message, as an entry of its own kind.
    CustomMessage,
    /// A summary in place of what was before.
    Compaction,
    /// What happened in a branch that was left.
    BranchSummary,
    /// A new beginning.
    Reset,
    /// A name for an entry.
    Label,
    /// A name for the session.
    SessionInfo,
    /// Another model.
    ModelChange,
    /// Another level of thinking.
    ThinkingLevelChange,
    /// A program's data.
    Custom,
    /// A control row; no node.
    Leaf,
    /// Anything else; no node.
    Opaque,
}

// === impl Kind ===

impl Kind {
    /// That of an entry of which only the contents are known.
    pub fn of(kind: &EntryKind) -> Self {
        match kind {
            EntryKind::User(user) if user.event.is_some() => Self::Event,
            EntryKind::User(user) if user.is_command() => Self::Command,
            EntryKind::User(_) => Self::User,
            EntryKind::Assistant(_) => Self::Assistant,
            EntryKind::ToolResult(_) => Self::ToolResult,
            EntryKind::Shown(_) => Self::CustomMessage,
            EntryKind::Compaction { .. } => Self::Compaction,
            EntryKind::BranchSummary(_) => Self::BranchSummary,
            EntryKind::Reset { .. } => Self::Reset,
            EntryKind::Silent(Note::Label { .. }) => Self::Label,
            EntryKind::Silent(Note::Name(_)) => Self::SessionInfo,
            EntryKind::Silent(Note::Model { .. }) => Self::ModelChange,
            EntryKind::Silent(Note::Thinking(_)) => Self::ThinkingLevelChange,
            EntryKind::Silent(Note::Custom { .. }) => Self::Custom,
            EntryKind::Silent(Note::Withheld) => Self::OtherRole,
            EntryKind::Leaf { .. } => Self::Leaf,
            EntryKind::Opaque => Self::Opaque,
        }
    }

    /// The `type` of such a line; empty for an opaque one, which may say anything.
    pub fn name(self) -> &'static str {
        match self {
            Self::User
            | Self::Command
            | Self::Assistant
            | Self::ToolResult
            | Self::Bash
            | Self::CustomRole
            | Self::OtherRole => "message",
            Self::CustomMessage | Self::Event => "custom_message",
            Self::Compaction => "compaction",
            Self::BranchSummary => "branch_summary",
            Self::Reset => "reset",
            Self::Label => "label",
            Self::SessionInfo => "session_info",
            Self::ModelChange => "model_change",
            Self::ThinkingLevelChange => "thinking_level_change",
            Self::Custom => "custom",
            Self::Leaf => "leaf",
            Self::Opaque => "",
        }
    }

    /// The role of such a message.
    pub fn role(self) -> Option<&'static str> {
        match self {
            Self::User | Self::Command => Some("user"),
            Self::Assistant => Some("assistant"),
            Self::ToolResult => Some("toolResult"),
            Self::Bash => Some("bashExecution"),
            Self::CustomRole => Some("custom"),
            Self::OtherRole
            | Self::Event
            | Self::CustomMessage
            | Self::Compaction
            | Self::BranchSummary
            | Self::Reset
            | Self::Label
            | Self::SessionInfo
            | Self::ModelChange
            | Self::ThinkingLevelChange
            | Self::Custom
            | Self::Leaf
            | Self::Opaque => None,
        }
    }

    /// Whether it is a node of the tree.
    pub fn is_node(self) -> bool {
        !matches!(self, Self::Leaf | Self::Opaque)
    }

    /// Whether the model is shown nothing, or something else, of what is before it.
    pub fn is_boundary(self) -> bool {
        matches!(self, Self::Compaction | Self::Reset)
    }
}

//! The files of a fresh workspace.

/// Each with its path in the workspace, and its text.
pub const TEMPLATES: &[(&str, &str)] = &[
    ("AGENTS.md", include_str!("templates/AGENTS.md")),
    ("SOUL.md", include_str!("templates/SOUL.md")),
    ("USER.md", include_str!("templates/USER.md")),
    ("TOOLS.md", include_str!("templates/TOOLS.md")),
    ("HEARTBEAT.md", include_str!("templates/HEARTBEAT.md")),
    ("memory/MEMORY.md", include_str!("templates/MEMORY.md")),
];

/// Whether `text` is what a fresh workspace has at `path`, but for space around it.
pub fn is_unmodified(path: &str, text: &str) -> bool {
    TEMPLATES.iter().any(|(known, template)| *known == path && template.trim() == text.trim())
}

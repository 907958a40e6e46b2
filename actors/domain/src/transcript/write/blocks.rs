//! The blocks that messages are made of.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::chat::{Arguments, AssistantMessage, Content, ToolCall};

/// Text and pictures.
pub(super) struct Blocks<'a>(pub &'a [Content]);

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        #[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
        enum Block<'a> {
            Text {
                text: &'a str,
            },
            Image {
                data: &'a str,
                mime_type: &'a str,
                #[serde(skip_serializing_if = "Option::is_none")]
                path: Option<&'a str>,
            },
        }
        to.collect_seq(self.0.iter().map(|piece| match piece {
            Content::Text { text } => Block::Text { text },
            Content::Image { data, mime, path } => Block::Image { data, mime_type: mime, path: path.as_deref() },
        }))
    }
}

/// What a model said.
pub(super) struct AssistantBlocks<'a>(pub &'a AssistantMessage);

impl Serialize for AssistantBlocks<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum Block<'a> {
            Thinking { thinking: &'a str },
            Text { text: &'a str },
        }
        let message = self.0;
        let mut blocks = to.serialize_seq(None)?;
        if let Some(thinking) = &message.reasoning {
            blocks.serialize_element(&Block::Thinking { thinking })?;
        }
        if !message.text.is_empty() {
            blocks.serialize_element(&Block::Text { text: &message.text })?;
        }
        for call in &message.calls {
            blocks.serialize_element(&CallBlock(call))?;
        }
        blocks.end()
    }
}

/// A `toolCall` block. Its arguments must be an object, so text that is none goes into fields of our own.
struct CallBlock<'a>(&'a ToolCall);

impl Serialize for CallBlock<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut block = to.serialize_map(None)?;
        block.serialize_entry("type", "toolCall")?;
        block.serialize_entry("id", &self.0.id)?;
        block.serialize_entry("name", &self.0.name)?;
        match &self.0.arguments {
            Arguments::Object(arguments) => block.serialize_entry("arguments", arguments)?,
            Arguments::Malformed { text, problem } => {
                block.serialize_entry("arguments", &serde_json::Map::new())?;
                block.serialize_entry("argumentsText", text)?;
                block.serialize_entry("argumentsProblem", problem)?;
            }
        }
        block.end()
    }
}

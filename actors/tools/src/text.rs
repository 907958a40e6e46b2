//! The form in which results reach the model. Pure.

use domain::chat::{Content, plain_text};
use domain::text::head_and_tail;

/// What the model is shown of `content`: never empty, its texts together at most `max` characters (plus the note).
pub(crate) fn bounded(tool: &str, content: Vec<Content>, max: usize) -> Vec<Content> {
    let mut chars = 0;
    let mut blank = true;
    for piece in &content {
        match piece {
            Content::Text { text } => {
                chars += text.chars().count();
                blank &= text.trim().is_empty();
            }
            Content::Image { .. } => blank = false,
        }
    }
    if blank {
        return vec![Content::text(format!("({tool} completed with no output)"))];
    }
    if chars <= max {
        return content;
    }
    let text = head_and_tail(&plain_text(&content), max).into_owned();
    let images = content.into_iter().filter(|piece| matches!(piece, Content::Image { .. }));
    std::iter::once(Content::Text { text }).chain(images).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_show_is_said() {
        let shown = |content| bounded("exec", content, 10);
        assert_eq!(shown(vec![]), [Content::text("(exec completed with no output)")]);
        assert_eq!(shown(vec![Content::text(" \n")]), [Content::text("(exec completed with no output)")]);
        assert_eq!(shown(vec![Content::text("ok")]), [Content::text("ok")]);
    }

    #[test]
    fn images_survive_shortening() {
        let image = Content::Image { data: "AAAA".into(), mime: "image/png".into() };
        let content = bounded("t", vec![Content::text("a".repeat(20)), image.clone(), Content::text("b")], 4);
        assert_eq!(content.len(), 2);
        assert_eq!(content[1], image);
        assert!(plain_text(&content).starts_with("aaa\n"));
    }
}

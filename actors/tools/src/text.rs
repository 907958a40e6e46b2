//! The form in which results reach the model. Pure.

use domain::chat::{Content, plain_text};
use domain::text::head_and_tail;
use protocol::tools::ToolEnd;

/// Added to a failure.
const ADVICE: &str = "\n\n[Analyze the error above and try a different approach.]";

/// Whether the texts have more than `max` characters together.
pub(crate) fn is_long(content: &[Content], max: usize) -> bool {
    let chars = content.iter().map(|piece| match piece {
        Content::Text { text } => text.chars().count(),
        Content::Image { .. } => 0,
    });
    chars.sum::<usize>() > max
}

/// What `max` leaves for the texts of a result that ended like that.
pub(crate) fn room(end: ToolEnd, max: usize) -> usize {
    max.saturating_sub(advice(end).chars().count())
}

/// The content with what a model is told that failed.
pub(crate) fn advised(end: ToolEnd, mut content: Vec<Content>) -> Vec<Content> {
    let advice = advice(end);
    let last = content.iter_mut().rev().find_map(|piece| match piece {
        Content::Text { text } => Some(text),
        Content::Image { .. } => None,
    });
    match last {
        Some(text) => text.push_str(advice),
        None if advice.is_empty() => {}
        None => content.push(Content::text(advice.trim_start())),
    }
    content
}

/// Panics and cancelled calls are nothing that another approach would help.
fn advice(end: ToolEnd) -> &'static str {
    match end {
        ToolEnd::Error | ToolEnd::TimedOut => ADVICE,
        ToolEnd::Ok | ToolEnd::Cancelled | ToolEnd::Panicked => "",
    }
}

/// The content with `text` in the place of all its texts.
pub(crate) fn retold(content: Vec<Content>, text: String) -> Vec<Content> {
    let images = content.into_iter().filter(|piece| matches!(piece, Content::Image { .. }));
    std::iter::once(Content::Text { text }).chain(images).collect()
}

/// What the model is shown of `content`: never empty, its texts together at most `max` characters (plus the note).
pub(crate) fn bounded(tool: &str, content: Vec<Content>, max: usize) -> Vec<Content> {
    let blank = content.iter().all(|piece| match piece {
        Content::Text { text } => text.trim().is_empty(),
        Content::Image { .. } => false,
    });
    if blank {
        return vec![Content::text(format!("({tool} completed with no output)"))];
    }
    if !is_long(&content, max) {
        return content;
    }
    let text = head_and_tail(&plain_text(&content), max).into_owned();
    retold(content, text)
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
        let image = Content::Image { data: "AAAA".into(), mime: "image/png".into(), path: None };
        let content = bounded("t", vec![Content::text("a".repeat(20)), image.clone(), Content::text("b")], 4);
        assert_eq!(content.len(), 2);
        assert_eq!(content[1], image);
        assert!(plain_text(&content).starts_with("aaa\n"));
    }

    #[test]
    fn only_who_could_do_better_is_told_to() {
        let all = [ToolEnd::Ok, ToolEnd::Error, ToolEnd::TimedOut, ToolEnd::Cancelled, ToolEnd::Panicked];
        let told = all.map(|end| plain_text(&advised(end, vec![Content::text("e")])).contains("try a different"));
        assert_eq!(told, [false, true, true, false, false]);
        let image = Content::Image { data: "AAAA".into(), mime: "image/png".into(), path: None };
        let told = |end| advised(end, vec![image.clone()]).len();
        assert_eq!((told(ToolEnd::Ok), told(ToolEnd::Error)), (1, 2));
    }
}

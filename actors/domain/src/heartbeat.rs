//! The heartbeat: from time to time the agent looks after what `HEARTBEAT.md` asks for, and a person is told only if the
//! model finds that worth it. Pure.
//!
//! **Source:** nanobot 0.3.5 for the file's rules and the tool `evaluate_notification`; `openclaw` 2026.6.11 for active
//! hours.

mod evaluate;
mod hours;
mod target;

pub use evaluate::{EVALUATOR, EVALUATOR_BYTES_MAX, EVALUATOR_FILE, NotEvaluated, Verdict, judge, request};
pub use hours::{ActiveHours, BadHours};
pub use target::{Candidate, channel_of, newest};

use crate::text::first_chars;

/// How the heading begins under which tasks stand, in lower case.
const HEADING: &str = "active tasks";
const COMMENT: (&str, &str) = ("<!--", "-->");
/// Characters of the file that the model is told.
const CHARS_MAX: usize = 32_000;

/// The tasks in the text of `HEARTBEAT.md`: what stands under level-2 headings that begin "Active Tasks", without
/// comments; `None` when there is nothing.
pub fn tasks(text: &str) -> Option<String> {
    let mut tasks = String::new();
    let (mut active, mut any) = (false, false);
    for line in without_comments(text).lines() {
        let bare = line.trim();
        let level = bare.chars().take_while(|letter| *letter == '#').count();
        let heading = bare.trim_start_matches('#');
        if level > 0 && (heading.is_empty() || heading.starts_with(char::is_whitespace)) {
            match level {
                1 => active = false,
                2 => active = heading.trim().to_lowercase().starts_with(HEADING),
                _ => {}
            }
            if level < 3 {
                continue;
            }
        } else if active && !bare.is_empty() {
            any = true;
        }
        if active {
            tasks.push_str(line);
            tasks.push('\n');
        }
    }
    any.then(|| first_chars(tasks.trim(), CHARS_MAX).to_owned())
}

fn without_comments(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(COMMENT.0) {
        left.push_str(before);
        // One that does not end hides the rest.
        rest = after.split_once(COMMENT.1).map_or("", |(_, behind)| behind);
    }
    left.push_str(rest);
    left
}

/// What the session `heartbeat` is told.
pub fn message(tasks: &str) -> String {
    format!(
        "This is the heartbeat: nobody wrote to you just now. Look after the active tasks of HEARTBEAT.md below, as far as \
         there is something to do now, and report in a few words what a person should know. If there is nothing to tell, \
         say only that.\n\n{tasks}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        assert_eq!(tasks(text).as_deref(), expect, "{text:?}");
    }

    #[test]
    fn tasks_stand_under_their_heading() {
        check("", None);
        check("- water the plants", None);
        check("# Active Tasks\n- a", None);
        check("### Active Tasks\n- a", None);
        check("## Active Tasks", None);
        check("## Active Tasks\n\n  \n", None);
        check("## Active Tasks\n<!-- - a -->\n", None);
        check("## Active Tasks\n<!--\n- a\n\n## Active Tasks\n- b\n", None);
        check("## Active Tasks\n### Later\n", None);
        check("## Completed\n- a\n## Active Tasks\n\n# Other\n- b", None);
        check("## Active Tasks\n- a", Some("- a"));
        check("  ## active tasks (today)  \n- a <!-- not\nthis --> b\n", Some("- a  b"));
        check("## Active Tasks\n### Home\n- a\n## Completed\n- b\n", Some("### Home\n- a"));
        check("##Active Tasks\n- a", None);
        check("## Active Tasks\n#tag is no heading", Some("#tag is no heading"));
        check("## Active Tasks\n- a\n# More\n- x\n## Active Tasks\n- b", Some("- a\n- b"));
        check("## Inactive Tasks\n- a", None);
    }

    #[test]
    fn a_long_file_is_cut() {
        let text = format!("## Active Tasks\n{}", "ü".repeat(40_000));
        assert_eq!(tasks(&text).unwrap().chars().count(), CHARS_MAX);
        assert!(message("- a").ends_with("\n\n- a"));
    }
}

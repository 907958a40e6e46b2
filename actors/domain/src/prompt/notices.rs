//! What the user is told in place of an answer.

use crate::body::Reader;
use crate::goal::CONTINUATIONS_MAX;
use crate::ids::TurnId;

/// Told to the user when a turn was cancelled.
pub const CANCELLED_NOTICE: &str = "Stopped. This message was cancelled before it was fully answered.";

/// Told in place of the report of a sub-agent whose time was over.
pub const TIMED_OUT_NOTICE: &str = "Stopped: its time was over before it was done.";

/// Told in place of the report of a sub-agent that has used up its tokens.
pub const SPENT_NOTICE: &str = "Stopped: it had used up its tokens before it was done.";

/// Told to the user when a message was dropped as too many others were waiting.
pub const DROPPED_NOTICE: &str = "Dropped: too many messages were waiting. Please send it again if it still matters.";

/// Told to the user when the model answered nothing.
pub const EMPTY_ANSWER: &str =
    "Sorry, the model gave an empty answer to this. Please try again, or say it differently.";

/// Told to the user when the model said nothing about what it did in all its tool rounds. Who brings the history along has
/// none of what the tools said, so nothing can go on there.
pub fn max_rounds_notice(rounds: u32, reader: Reader) -> String {
    let next = match reader {
        Reader::Chat => "Say `continue` to let me go on.",
        Reader::Parent => "Send me on with the tool `subagents` (send) to let me go on.",
        Reader::Client => {
            "What the tools showed me is not part of the history that you send, so a further request begins anew: ask for \
             less at once."
        }
    };
    format!("I used all {rounds} tool rounds of this message without finishing. {next}")
}

/// Stands behind an answer that did not reach the goal, when the model is sent on no further.
pub fn goal_rests_notice() -> String {
    format!(
        "\n\n(The goal is not reached yet. {CONTINUATIONS_MAX} times in a turn is as often as I am sent on, so the work on it \
         rests now. Say `go on` to let me continue, or `/goal stop` to give it up.)"
    )
}

/// Told to the user in place of an answer when a turn was given up: `crashes` are those of the turn itself, `deaths` the
/// times that the whole process ended while it ran.
pub fn dead_letter_notice(turn: TurnId, crashes: u32, deaths: u32) -> String {
    let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let crashed = (crashes > 0 || deaths == 0).then(|| format!("it crashed {}", times(crashes.max(1))));
    let ended = (deaths > 0).then(|| format!("the whole process ended {}", times(deaths)));
    let tries: Vec<String> = crashed.into_iter().chain(ended).collect();
    let tries = tries.join(" and ");
    format!(
        "Sorry, I could not answer this message: {tries} while it was worked on, so I have given it up. The message is kept \
         and nothing else was lost; later messages are answered as usual. What happened is shown by \
         `greenroom logs --why {turn}`."
    )
}

/// Told to the user when the model could not be asked; `detail` is what the provider's failure says.
pub fn failed_notice(detail: &str) -> String {
    format!("Sorry, the model could not answer: {detail}")
}

/// Stands in place of the answer of a turn that made no progress for that long.
pub fn stuck_notice(seconds: u64, waited_for: &str, reader: Reader) -> String {
    let next = again(reader);
    format!(
        "The turn made no progress for {seconds} seconds while it waited for {waited_for}, and was stopped. {next} to try \
         once more."
    )
}

/// How somebody has a message answered that was not: the begin of a sentence. It stands in the session, so nobody is told
/// to send it again there: the model would see it twice.
pub fn again(reader: Reader) -> &'static str {
    match reader {
        Reader::Chat => "Your message stands in the conversation: say `go on`",
        Reader::Client => "Send the same request again",
        Reader::Parent => "Send it on with the tool `subagents` (send), or spawn another one,",
    }
}

/// Stands in place of an answer of about `bytes`, which is more than one record of the journal holds.
pub fn too_large_notice(bytes: u64) -> String {
    let megabytes = bytes.div_ceil(1_000_000);
    format!(
        "The answer was too large to be kept ({megabytes} MB), so this turn was ended. Ask for it in smaller parts."
    )
}

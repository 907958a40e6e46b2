//! The place in a stream up to which a client has seen everything: `<turn id>.<attempt>.<seq>`.

use std::fmt;
use std::str::FromStr;

use domain::ids::{Attempt, TurnId};

/// A place in the events of a turn. Events up to and with `seq` of that attempt were seen; 0 is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The turn.
    pub turn: TurnId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The last event seen.
    pub seq: u64,
}

/// Why a text is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is `<turn id>.<attempt>.<seq>`")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.turn, self.attempt, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut parts = text.split('.');
        let (Some(turn), Some(attempt), Some(seq), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadCursor);
        };
        Ok(Self {
            turn: turn.parse().map_err(|_| BadCursor)?,
            attempt: Attempt(attempt.parse().map_err(|_| BadCursor)?),
            seq: seq.parse().map_err(|_| BadCursor)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_print_and_parse() {
        let text = "01890a5d-ac96-774b-bcce-b302099a8057.2.17";
        assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        for bad in [
            "",
            "x",
            "1.2.3",
            "01890a5d-ac96-774b-bcce-b302099a8057.2",
            "01890a5d-ac96-774b-bcce-b302099a8057.2.1.1",
            "01890a5d-ac96-774b-bcce-b302099a8057.-1.1",
            "01890a5d-ac96-774b-bcce-b302099a8057.1.x",
        ] {
            assert_eq!(bad.parse::<Cursor>(), Err(BadCursor), "{bad}");
        }
    }
}

//! Records as bytes: their type, and their payload.

use protocol::journal::{Accepted, Closes};
use protocol::turn::Route;

use super::Record;
use super::commit::{joins, put_commit, put_lines};
use super::keys::{put_key, put_left, put_mark};
use super::message::put_accepted;
use super::moving::put_moving;
use super::outbox::{put_delivery, put_letter, put_letter_id, put_place, put_row};
use crate::wire::{put_int, put_option, put_text, put_uuid};

// === impl Record ===

impl Record {
    /// Its type byte.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Accepted { message, .. } => {
                if is_pushed(message) {
                    14
                } else {
                    1
                }
            }
            Self::Commit { commit, .. } => {
                if joins(commit) {
                    27
                } else if let Some(Closes::Moves(_)) = commit.closes {
                    24
                } else if commit.out.is_empty() {
                    2
                } else {
                    13
                }
            }
            Self::Epoch { .. } => 3,
            Self::Quarantined(quarantine) => {
                if quarantine.turn.is_some() {
                    22
                } else {
                    4
                }
            }
            Self::Released { .. } => 5,
            Self::ViewSynced { .. } => 6,
            Self::Key(_) => 7,
            Self::Carried { message, .. } => {
                if is_pushed(message) {
                    15
                } else {
                    8
                }
            }
            Self::Lines { .. } => 9,
            Self::Letter { .. } => 20,
            Self::Forgotten { .. } => 11,
            Self::Left(_) => 23,
            Self::Checkpoint { .. } => 12,
            Self::Sending(_) => 16,
            Self::Sent(_) => 17,
            Self::Undeliverable { .. } => 18,
            Self::Row { .. } => 19,
            Self::LetterClosed(_) => 21,
            Self::Moving(_) => 25,
            Self::Moved { .. } => 26,
        }
    }

    /// Appends its payload.
    pub fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Accepted { key, message } | Self::Carried { key, message } => put_accepted(to, key, message),
            Self::Commit { commit, at_ms, endings } => put_commit(to, commit, *at_ms, endings),
            Self::Epoch { key, session, epoch } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, epoch.0);
            }
            Self::Quarantined(quarantine) => {
                put_text(to, quarantine.key.as_str());
                put_int(to, quarantine.until_ms);
                put_int(to, u64::from(quarantine.times));
                put_text(to, &quarantine.reason);
                if let Some(turn) = quarantine.turn {
                    put_uuid(to, turn.0);
                }
            }
            Self::Released { key } | Self::Forgotten { key } => put_text(to, key.as_str()),
            Self::ViewSynced { key, session, commit, mark } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, *commit);
                put_mark(to, mark);
            }
            Self::Key(key) => put_key(to, key),
            Self::Lines { key, session, commit, lines } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, *commit);
                put_lines(to, lines);
            }
            Self::Letter { letter, content } => put_letter(to, letter, content.as_ref()),
            Self::Checkpoint { oldest, floors } => {
                put_int(to, *oldest);
                put_int(to, floors.epoch.0);
                put_int(to, floors.seq.0);
            }
            Self::Left(by) => put_left(to, *by),
            Self::Sending(id) | Self::Sent(id) => put_delivery(to, *id),
            Self::Undeliverable { id, reason, at_ms } => {
                put_delivery(to, *id);
                put_text(to, reason);
                put_int(to, *at_ms);
            }
            Self::Row { row, place } => {
                put_row(to, row);
                put_option(to, *place, put_place);
            }
            Self::LetterClosed(id) => put_letter_id(to, *id),
            Self::Moving(moving) => put_moving(to, moving),
            Self::Moved { key, session } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
            }
        }
    }
}

fn is_pushed(message: &Accepted) -> bool {
    matches!(message.route, Route::Push(_))
}

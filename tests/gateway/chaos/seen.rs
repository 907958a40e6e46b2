//! What a WebSocket client makes of the events of one turn.

use serde_json::Value;

/// One turn, as far as its events came.
#[derive(Debug, Default)]
pub struct Seen {
    attempt: u64,
    round: String,
    /// The latest whole text.
    text: String,
    /// Where to go on after a break.
    pub cursor: Option<String>,
    /// How it ended: the word and the text.
    pub end: Option<(String, String)>,
}

impl Seen {
    /// Takes one event of the turn; says what is wrong with it.
    pub fn take(&mut self, turn: &str, event: &Value) -> Result<(), String> {
        let number = |name: &str| event[name].as_u64();
        let replayed = event["replayed"] == true;
        if self.end.is_some() && !replayed && event["event"] == "turn_end" {
            return Err(format!("turn {turn} ended twice: {event}"));
        }
        if let Some(attempt) = number("attempt") {
            if attempt < self.attempt {
                return Err(format!("turn {turn} went back to an earlier attempt than {}: {event}", self.attempt));
            }
            if attempt > self.attempt {
                self.attempt = attempt;
                self.round.clear();
                self.text.clear();
            }
            if let Some(seq) = number("seq") {
                self.cursor = Some(format!("{turn}.{attempt}.{seq}"));
            }
        }
        let text = event["text"].as_str();
        match event["event"].as_str().unwrap_or_default() {
            "delta" => self.round.push_str(text.unwrap_or_default()),
            "stream_end" => {
                let round = std::mem::take(&mut self.round);
                self.text = text.map_or(round, str::to_owned);
            }
            "message" if event.get("kind").is_none() => self.text = text.unwrap_or_default().to_owned(),
            "turn_end" => {
                let word = event["result"].as_str().unwrap_or_default().to_owned();
                self.end = Some((word, self.text.clone()));
            }
            _ => {}
        }
        Ok(())
    }
}

//! What the clients say: texts that tell the scripted model what to do, with effects that can be counted.

use serde_json::json;

use super::dice::Dice;

/// Below the workspace; each tool call with an effect appends one byte to a file of its own here.
pub const EFFECTS: &str = "effects";

/// A message.
pub struct Message {
    /// What the user says.
    pub text: String,
    /// Files that its tool calls write to.
    pub effects: Vec<String>,
}

/// Makes the message with this id. Its answer begins with [`answer`].
pub fn message(dice: &mut Dice, id: &str) -> Message {
    let mut text = format!("{id} [[say={}]]", answer(id));
    let mut effects = Vec::new();
    match dice.between(0, 99) {
        0..40 => {}
        40..70 => text.push_str(&format!("[[delay=0..{}]]", dice.between(1, 80))),
        70..85 => text.push_str(&format!("[[tokens={};itd={}]]", dice.between(2, 8), dice.between(0, 15))),
        85..95 => text.push_str(&effect(&mut effects, "tool", &format!("{id}.1"), dice)),
        95..98 => {
            text.push_str(&effect(&mut effects, "tool@1", &format!("{id}.1"), dice));
            text.push_str(&effect(&mut effects, "tool@2", &format!("{id}.2"), dice));
        }
        _ => text.push_str("[[tool=list_dir {\"path\":\".\"}]][[delay=0..30]]"),
    }
    let padding = match dice.between(0, 99) {
        0..80 => 0,
        80..95 => dice.between(1, 4 * 1024),
        _ => dice.between(8 * 1024, 40 * 1024),
    };
    text.push_str(&" .".repeat(usize::try_from(padding / 2).unwrap()));
    Message { text, effects }
}

/// How the answer to the message with this id begins.
pub fn answer(id: &str) -> String {
    format!("re {id}.")
}

fn effect(effects: &mut Vec<String>, directive: &str, file: &str, dice: &mut Dice) -> String {
    effects.push(file.to_owned());
    let slow = if dice.percent(30) { "sleep 0.05; " } else { "" };
    let arguments = json!({"command": format!("{slow}printf x >> {EFFECTS}/{file}")});
    format!("[[{directive}=exec {arguments}]]")
}

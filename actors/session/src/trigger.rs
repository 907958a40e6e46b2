//! `/trigger`: lets other programs on this machine tell the session something. Blocks.

use domain::ids::{SessionKey, TurnId};
use domain::text::one_line;
use domain::trigger::Target;
use protocol::trigger::TriggerBook;
use protocol::turn::Route;

/// Whom a trigger tells that is made by a message on that route.
pub fn target(key: &SessionKey, route: &Route) -> Target {
    match route {
        Route::Live | Route::Reply => Target::of_session(key.clone()),
        Route::Push(route) => Target {
            key: key.clone(),
            channel: route.channel.to_string(),
            chat: route.chat.to_string(),
            account: Some(route.account.to_string()),
            thread: route.thread.as_deref().map(str::to_owned),
        },
    }
}

/// Follows it. A turn that is cut and follows it again makes no second trigger.
pub fn follow(book: Option<&dyn TriggerBook>, name: Option<&str>, target: &Target, turn: TurnId) -> String {
    let Some(book) = book else { return "There are no triggers in this process.".to_owned() };
    let Some(name) = name else { return list(book, target) };
    match book.create(turn.0.as_bytes(), name, target) {
        Ok(trigger) => format!(
            "Trigger {} tells this session what a program says with: greenroom trigger {} \"MESSAGE\"",
            one_line(&trigger.name),
            trigger.id
        ),
        Err(error) => format!("No trigger was made: {error}."),
    }
}

fn list(book: &dyn TriggerBook, target: &Target) -> String {
    let all = match book.list() {
        Ok(all) => all,
        Err(error) => return format!("The triggers cannot be read: {error}."),
    };
    let ours = all.iter().filter(|trigger| trigger.session_key == target.key.as_str());
    let lines: Vec<String> = ours.map(|trigger| format!("{} {}", trigger.id, one_line(&trigger.name))).collect();
    if lines.is_empty() {
        "This session has no triggers. /trigger NAME makes one.".to_owned()
    } else {
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use domain::trigger::{Trigger, TriggerId};
    use protocol::turn::PushRoute;
    use uuid::Uuid;

    use super::*;

    #[derive(Default)]
    struct Book(Mutex<Vec<Trigger>>);

    impl TriggerBook for Book {
        fn create(&self, seed: &[u8], name: &str, target: &Target) -> io::Result<Trigger> {
            let trigger = Trigger::new(TriggerId::of_seed(seed), name, target, 1);
            self.0.lock().unwrap().push(trigger.clone());
            Ok(trigger)
        }

        fn list(&self) -> io::Result<Vec<Trigger>> {
            Ok(self.0.lock().unwrap().clone())
        }

        fn remove(&self, _: &TriggerId) -> io::Result<bool> {
            Ok(false)
        }
    }

    #[test]
    fn a_session_makes_triggers_and_shows_its_own() {
        let (key, other) = (SessionKey::new("agent:main:main").unwrap(), SessionKey::new("websocket:1").unwrap());
        let route = PushRoute { channel: "webhook".into(), account: "a".into(), chat: "7".into(), thread: None };
        let here = target(&key, &Route::Push(route));
        assert_eq!((here.channel.as_str(), here.chat.as_str(), here.account.as_deref()), ("webhook", "7", Some("a")));
        let there = target(&other, &Route::Live);
        assert_eq!((there.channel.as_str(), there.chat.as_str()), ("websocket", "1"));
        let book = Book::default();
        let turn = TurnId(Uuid::from_u128(7));
        assert_eq!(follow(Some(&book), None, &here, turn), "This session has no triggers. /trigger NAME makes one.");
        let made = follow(Some(&book), Some("door"), &here, turn);
        let id = book.list().unwrap()[0].id.clone();
        assert_eq!(
            made,
            format!("Trigger door tells this session what a program says with: greenroom trigger {id} \"MESSAGE\"")
        );
        assert_eq!(follow(Some(&book), None, &here, turn), format!("{id} door"));
        assert!(follow(Some(&book), None, &there, turn).starts_with("This session has no triggers"));
        assert!(follow(None, Some("x"), &here, turn).starts_with("There are no triggers"));
    }
}

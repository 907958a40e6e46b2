//! A command that follows the supervision log.

use serde_json::Value;

use crate::support::Place;

/// What a following command prints, line by line.
pub struct Follower {
    child: std::process::Child,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Follower {
    pub fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut child = place.command(arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        let (told, lines) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            // Nobody listens to what it says after the test.
            std::io::BufRead::lines(out).map_while(Result::ok).try_for_each(|line| told.send(line))
        });
        Self { child, lines }
    }

    /// The events up to the next one of this name.
    pub async fn until(&mut self, name: &str) -> Vec<Value> {
        let mut seen: Vec<Value> = Vec::new();
        let found = async {
            while seen.last().is_none_or(|event| event["event"] != name) {
                let line = self.lines.recv().await.expect("it goes on");
                seen.push(serde_json::from_str(&line).unwrap());
            }
        };
        testkit::deadline::with_deadline("followed event", found).await;
        seen
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It ends by a signal only.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk, Open};

use super::*;

/// A workspace, and what is made of it.
struct Desk {
    disk: Arc<PowerCutDisk>,
    clock: Arc<TestClock>,
    prompt: SystemPrompt,
    ports: Ports,
}

impl Desk {
    fn new(config: &PromptConfig) -> Self {
        let (disk, clock) = (PowerCutDisk::new(), TestClock::new());
        let ports = memory_ports(Arc::clone(&disk), clock.clone(), 1);
        let prompt = SystemPrompt::new(Path::new("/w"), config, &[], &Policies::default());
        disk.create_dir_all(Path::new("/w")).unwrap();
        Self { disk, clock, prompt, ports }
    }

    fn write(&self, name: &str, text: &str) {
        let path = Path::new("/w").join(name);
        self.disk.create_dir_all(path.parent().unwrap()).unwrap();
        let file = self.disk.open(&path, Open::Create).unwrap();
        file.set_length(0).unwrap();
        file.write_at(text.as_bytes(), 0).unwrap();
    }

    /// After the files were looked at again.
    fn frame(&self, key: &str) -> Arc<Frame> {
        self.clock.advance(FRESH_FOR);
        self.prompt.refresh(&self.ports);
        self.prompt.frame(SessionKind::Cli, &SessionKey::new(key).unwrap())
    }
}

#[test]
fn a_prompt_is_made_once_for_each_shape_until_a_file_says_something_else() {
    let desk = Desk::new(&PromptConfig { agent: "Beet".into() });
    desk.write("SOUL.md", "be kind");
    let (first, again, other) = (desk.frame("websocket:a"), desk.frame("api:b"), desk.frame("telegram:7"));
    assert!(first.system.starts_with("You are Beet, ") && first.system.ends_with("## SOUL.md\n\nbe kind"));
    assert!(Arc::ptr_eq(&first, &again), "both are places of which nothing is known");
    assert!(other.system.contains("## Format") && !first.system.contains("## Format"));
    desk.write("SOUL.md", "be kind");
    assert!(Arc::ptr_eq(&first, &desk.frame("websocket:a")), "it says the same");
    desk.write("SOUL.md", "be brief");
    assert!(desk.frame("websocket:a").system.ends_with("be brief"));
    desk.disk.remove(Path::new("/w/SOUL.md")).unwrap();
    assert!(!desk.frame("websocket:a").system.contains("SOUL.md"));
}

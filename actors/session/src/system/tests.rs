use domain::ids::SessionKey;
use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk, Open};

use super::*;

/// A workspace, and what is made of it.
struct Room {
    disk: Arc<PowerCutDisk>,
    clock: Arc<TestClock>,
    prompt: SystemPrompt,
    ports: Ports,
}

impl Room {
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
        self.frame_of(SessionKind::Cli, key)
    }

    fn frame_of(&self, kind: SessionKind, key: &str) -> Arc<Frame> {
        self.clock.advance(FRESH_FOR);
        self.prompt.refresh(&self.ports);
        self.prompt.frame(kind, &Key::from(&SessionKey::new(key).unwrap()), None)
    }
}

#[test]
fn a_prompt_is_made_once_for_each_shape_until_a_file_says_something_else() {
    let desk = Room::new(&PromptConfig { agent: "Beet".into(), ..PromptConfig::default() });
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

#[test]
fn of_a_file_that_is_too_long_the_beginning_is_shown() {
    let desk = Room::new(&PromptConfig::default());
    let text = format!("Begins here. {}", "ä".repeat(usize::try_from(FILE_BYTES_MAX).unwrap()));
    desk.write("AGENTS.md", &text);
    desk.write("memory/MEMORY.md", &text);
    desk.write("skills/a/SKILL.md", &format!("---\nname: a\ndescription: long\n---\n{text}"));
    let frame = desk.frame("websocket:a");
    assert_eq!(frame.system.matches("\n\nBegins here. ää").count(), 2);
    assert!(frame.system.chars().count() < 50_000 && !frame.system.contains('\u{fffd}'));
    assert_eq!(desk.prompt.skills()[0].name, "a");
}

#[test]
fn what_the_program_itself_has_written_is_seen_at_once() {
    let desk = Room::new(&PromptConfig::default());
    desk.frame("websocket:a");
    desk.write(
        "memory/history.jsonl",
        "{\"cursor\":1,\"timestamp\":\"2026-11-30 14:19\",\"content\":\"[RAW] x\",\"session_key\":\"websocket:a\"}\n",
    );
    desk.prompt.refresh(&desk.ports);
    assert_eq!(desk.prompt.past().len(), 0, "it is trusted for a while");
    desk.prompt.outdate();
    desk.prompt.refresh(&desk.ports);
    assert_eq!(&*desk.prompt.past()[0].text, "[RAW] x");
}

#[test]
fn memory_is_kept_from_strangers_and_from_conversations_of_one_request() {
    let desk = Room::new(&PromptConfig::default());
    desk.write("memory/MEMORY.md", "Likes tea.");
    assert!(desk.frame("api:default").system.contains("# Memory\n\nLikes tea."));
    assert!(!desk.frame("api:req:1").system.contains("tea"));
    assert!(
        !desk.frame_of(SessionKind::Direct, "agent:main:main").system.contains("tea"),
        "it may not read the workspace"
    );
    assert!(desk.frame_of(SessionKind::Cron, "cron:daily").system.contains("tea"));
}

#[test]
fn skills_go_by_what_is_there_and_may_be_disabled() {
    let config = PromptConfig {
        disabled_skills: ["by-directory".to_owned(), "by-name".to_owned()].into(),
        search: vec!["/bin".into(), "/usr/bin".into()],
        variables: ["KEY".to_owned()].into(),
        ..PromptConfig::default()
    };
    let desk = Room::new(&config);
    let skill = |name: &str, needs: &str| {
        format!("---\nname: {name}\nalways: true\nmetadata: {{\"nanobot\": {{\"requires\": {needs}}}}}\n---\n{name}!")
    };
    desk.write("skills/a/SKILL.md", &skill("a", r#"{"bins": ["gh"], "env": ["KEY"]}"#));
    desk.write("skills/b/SKILL.md", &skill("b", r#"{"env": ["OTHER"]}"#));
    desk.write("skills/by-directory/SKILL.md", &skill("x", "{}"));
    desk.write("skills/c/SKILL.md", &skill("by-name", "{}"));
    desk.write("skills/d/README.md", "no skill");
    desk.write("skills/e", "no directory");
    desk.write("skills/up/SKILL.md", &skill("up", r#"{"bins": ["../bin/gh", "", ".."]}"#));
    assert!(!desk.frame("api:default").system.contains("Skills"), "nothing is there");
    desk.disk.create_dir_all(Path::new("/usr/bin")).unwrap();
    desk.disk.open(Path::new("/usr/bin/gh"), Open::Create).unwrap();
    let frame = desk.frame("api:default");
    assert!(frame.system.ends_with("\n\n---\n\n# Active Skills\n\n## a\n\na!"), "{}", frame.system);
    assert!(Arc::ptr_eq(&frame, &desk.frame("api:default")));
}

#[test]
fn of_a_long_history_the_end_is_read_and_again_after_a_dream() {
    let desk = Room::new(&PromptConfig::default());
    let line = |at: u64| {
        format!(
            "{{\"cursor\":{at},\"timestamp\":\"t\",\"content\":\"{at} {}\",\"session_key\":\"cli:direct\"}}\n",
            "x".repeat(1000)
        )
    };
    desk.write("memory/history.jsonl", &(1..=400).map(line).collect::<String>());
    desk.frame("cli:direct");
    let past = desk.prompt.past();
    assert!((200..=256).contains(&past.len()), "{}", past.len());
    assert!(past.first().unwrap().text.contains("xx") && past.last().unwrap().text.starts_with("400 "));
    desk.frame("cli:direct");
    assert!(Arc::ptr_eq(&past, &desk.prompt.past()), "nothing was touched");
    desk.write("memory/.dream_cursor", "398\n");
    desk.frame("cli:direct");
    assert_eq!(desk.prompt.past().len(), 2);
}

#[test]
fn a_project_has_its_own_instructions_and_the_agents_character() {
    let desk = Room::new(&PromptConfig::default());
    desk.write("AGENTS.md", "Of the workspace.");
    desk.write("SOUL.md", "Be brief.");
    desk.disk.create_dir_all(Path::new("/srv/site")).unwrap();
    let project = Path::new("/srv/site");
    let usual = desk.frame("websocket:a");
    let frame = || {
        desk.prompt.refresh_project(project, &desk.ports);
        desk.prompt.frame(SessionKind::WebSocket, &Key::from(&SessionKey::new("websocket:a").unwrap()), Some(project))
    };
    let without = frame();
    assert!(!without.system.contains("AGENTS.md") && without.system.contains("Be brief."), "{}", without.system);
    assert!(without.system.contains("Your working directory is /srv/site\n"), "{}", without.system);
    assert!(without.system.contains("Your own files, also the skills, are in /"), "{}", without.system);
    let file = desk.disk.open(Path::new("/srv/site/AGENTS.md"), Open::Create).unwrap();
    file.write_at(b"Of the project.", 0).unwrap();
    assert!(Arc::ptr_eq(&without, &frame()), "its files are trusted for a moment");
    desk.clock.advance(FRESH_FOR);
    let with = frame();
    assert!(with.system.contains("## AGENTS.md\n\nOf the project.\n\n## SOUL.md"), "{}", with.system);
    assert!(Arc::ptr_eq(&with, &frame()));
    assert!(Arc::ptr_eq(&usual, &desk.frame("websocket:a")), "other conversations have theirs");
}

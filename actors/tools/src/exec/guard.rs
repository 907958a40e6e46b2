//! Commands that are refused before anything runs. Pure.
//!
//! This is no security boundary, that is the sandbox: it stops a model's honest mistakes. Words are looked for
//! everywhere in the lower-cased text, also inside quotes, as `bash -c "..."` runs those.

use domain::memory::OWN_FILES;

/// Why a command is refused; each names what would be accepted where there is something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `rm -r`, `rm -f`, `del /f`, `rmdir /s`.
    #[error("recursive or forced deletion is not allowed; remove files one by one, without options")]
    Deletion,
    /// `mkfs`, `format`, `diskpart`.
    #[error("formatting a disk is not allowed")]
    Format,
    /// `dd if=`, `> /dev/sda`.
    #[error("raw writes with dd or to a disk device are not allowed")]
    RawWrite,
    /// `shutdown`, `reboot`, `poweroff`.
    #[error("stopping the machine is not allowed")]
    Power,
    /// `:(){ :|:& };:`.
    #[error("a fork bomb is not allowed")]
    ForkBomb,
    /// Writes to the memory's own files.
    #[error("the archive of the memory, its cursors and its versions are written by the gateway alone")]
    Memory,
}

/// Files that only the memory writer touches, by names that nothing else has.
const MEMORY_FILES: [&str; 3] = ["history.jsonl", ".dream_cursor", ".dream.json"];
/// Beginnings of disk device names.
const DISKS: [&str; 6] = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk"];

/// Whether `command` may run.
pub fn check(command: &str) -> Result<(), Refusal> {
    let text = command.to_lowercase();
    if is_fork_bomb(&text) {
        return Err(Refusal::ForkBomb);
    }
    segments(&text).iter().try_for_each(|segment| check_segment(segment))
}

/// A word and whether a command can begin with it.
#[derive(Debug, Clone, Default)]
struct Word {
    text: String,
    first: bool,
}

/// Collects words.
struct Splitter {
    segments: Vec<Vec<Word>>,
    word: Word,
}

impl Splitter {
    /// Ends the word under way, if there is one; tells whether there was.
    fn end_word(&mut self) -> bool {
        if self.word.text.is_empty() {
            return false;
        }
        let word = std::mem::take(&mut self.word);
        self.add(word);
        true
    }

    fn add(&mut self, word: Word) {
        match self.segments.last_mut() {
            Some(segment) => segment.push(word),
            None => self.segments.push(vec![word]),
        }
    }
}

/// The words of `text`, split at everything that begins a new command. A redirection arrow is a word.
fn segments(text: &str) -> Vec<Vec<Word>> {
    let mut all = Splitter { segments: vec![], word: Word { text: String::new(), first: true } };
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`' => {
                all.end_word();
                all.segments.push(Vec::new());
                all.word.first = true;
            }
            '>' | '<' => {
                all.end_word();
                all.add(Word { text: char.to_string(), first: false });
                all.word.first = false;
            }
            // In quotes may be a command, or just a part of a word.
            '"' | '\'' => all.word.first |= all.word.text.is_empty(),
            // A joined line goes on; any other escaped character is itself.
            '\\' => {
                chars.next_if_eq(&'\n');
            }
            space if space.is_whitespace() => {
                if all.end_word() {
                    all.word.first = false;
                }
            }
            other => all.word.text.push(other),
        }
    }
    all.end_word();
    all.segments
}

fn check_segment(words: &[Word]) -> Result<(), Refusal> {
    for (at, word) in words.iter().enumerate() {
        let rest = words.get(at + 1..).unwrap_or_default();
        let any = |test: fn(&str) -> bool| rest.iter().any(|word| test(&word.text));
        let name = base(&word.text);
        let refusal = match name {
            "rm" if any(is_forced) => Refusal::Deletion,
            "del" if any(|word| word == "/f" || word == "/q") => Refusal::Deletion,
            "rmdir" if any(|word| word == "/s") => Refusal::Deletion,
            "format" if word.first => Refusal::Format,
            "mkfs" | "diskpart" => Refusal::Format,
            _ if name.starts_with("mkfs.") => Refusal::Format,
            "dd" if any(|word| word.starts_with("if=")) => Refusal::RawWrite,
            "shutdown" | "reboot" | "poweroff" if word.first || follows_prefix(words, at) => Refusal::Power,
            _ => continue,
        };
        return Err(refusal);
    }
    let writes: Vec<&str> = written(words);
    if writes.iter().any(|path| is_disk(path)) {
        return Err(Refusal::RawWrite);
    }
    if writes.iter().any(|path| is_of_memory(path)) {
        return Err(Refusal::Memory);
    }
    Ok(())
}

/// `-r`, `-rf`, `-vfr`, `--recursive`, `--force`.
fn is_forced(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => !long.is_empty() && ("recursive".starts_with(long) || "force".starts_with(long)),
        None => word.strip_prefix('-').is_some_and(|short| short.contains(['r', 'f'])),
    }
}

/// Whether all before the word are commands that run another one, their options, or settings of variables.
fn follows_prefix(words: &[Word], at: usize) -> bool {
    const PREFIXES: [&str; 12] =
        ["sudo", "doas", "env", "nohup", "exec", "time", "command", "xargs", "then", "do", "else", "!"];
    words.iter().take(at).all(|word| {
        let text = word.text.as_str();
        PREFIXES.contains(&base(text)) || text.starts_with('-') || text.contains('=')
    })
}

/// Paths that a segment writes to, as far as they can be seen.
fn written(words: &[Word]) -> Vec<&str> {
    let mut paths = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let rest = words.get(at + 1..).unwrap_or_default();
        let operands = || rest.iter().map(|word| word.text.as_str()).filter(|text| !text.starts_with('-'));
        match base(&word.text) {
            ">" => paths.extend(rest.first().map(|word| word.text.as_str())),
            "tee" | "mv" | "truncate" => paths.extend(operands()),
            "cp" => paths.extend(operands().next_back()),
            "dd" => paths.extend(operands().filter_map(|text| text.strip_prefix("of="))),
            "sed" if rest.iter().any(|word| is_in_place(&word.text)) => paths.extend(operands()),
            _ => {}
        }
    }
    paths
}

fn is_in_place(word: &str) -> bool {
    word.starts_with("--in-place") || (word.starts_with('-') && !word.starts_with("--") && word.contains('i'))
}

fn is_disk(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| DISKS.iter().any(|disk| name.starts_with(disk)))
}

/// Whether the path is one of the memory's own files: by its name, or by what it ends with where others may be called so.
fn is_of_memory(path: &str) -> bool {
    let ends = |own: &str| path == own || path.strip_suffix(own).is_some_and(|before| before.ends_with('/'));
    MEMORY_FILES.contains(&base(path)) || OWN_FILES.iter().any(|own| ends(own))
}

/// The part after the last slash.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `name(){ name|name& };name`, with any name and any spacing.
fn is_fork_bomb(text: &str) -> bool {
    let dense: String = text.chars().filter(|char| !char.is_whitespace()).collect();
    dense.match_indices("(){").any(|(at, _)| {
        let before = dense.get(..at).unwrap_or_default();
        let start = before.rfind([';', '&', '|', '(', '{']).map_or(0, |end| end + 1);
        let name = before.get(start..).unwrap_or_default();
        let name = name.strip_prefix("function").unwrap_or(name);
        let body = dense.get(at + 3..).and_then(|rest| rest.split_once('}')).map_or("", |(body, _)| body);
        !name.is_empty() && body.contains(&format!("{name}|{name}&"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dangerous_commands_are_refused() {
        use Refusal::{Deletion, ForkBomb, Format, Memory, Power, RawWrite};
        let cases = [
            ("rm -rf /", Deletion),
            ("rm -r dir", Deletion),
            ("rm -f file", Deletion),
            ("rm -v -fr x", Deletion),
            ("rm x -rf", Deletion),
            ("rm --recursive x", Deletion),
            ("rm --forc x", Deletion),
            ("RM -RF /", Deletion),
            ("/bin/rm -rf x", Deletion),
            ("sudo rm -rf x", Deletion),
            ("ls; rm -rf x", Deletion),
            ("ls\nrm -rf x", Deletion),
            ("true && rm -rf x", Deletion),
            ("bash -c \"rm -rf x\"", Deletion),
            ("bash -c 'rm -rf x'", Deletion),
            ("find . | xargs rm -f", Deletion),
            ("echo $(rm -rf x)", Deletion),
            ("echo `rm -rf x`", Deletion),
            ("r\\m -rf x", Deletion),
            ("rm \\\n -rf x", Deletion),
            ("rm \"-rf\" x", Deletion),
            ("del /f x", Deletion),
            ("del /q x", Deletion),
            ("rmdir /s x", Deletion),
            ("format c:", Format),
            ("ls; format c:", Format),
            ("mkfs /dev/sda1", Format),
            ("mkfs.ext4 /dev/sda1", Format),
            ("diskpart", Format),
            ("dd if=/dev/zero of=x", RawWrite),
            ("dd of=/dev/sda", RawWrite),
            ("echo x > /dev/sda", RawWrite),
            ("echo x >/dev/sdb1", RawWrite),
            ("cat x >> /dev/nvme0n1", RawWrite),
            ("cp x /dev/sda", RawWrite),
            ("shutdown now", Power),
            ("sudo reboot", Power),
            ("/sbin/poweroff", Power),
            ("bash -c 'reboot'", Power),
            ("if true; then reboot; fi", Power),
            (":(){ :|:& };:", ForkBomb),
            (":() { : | : & } ; :", ForkBomb),
            ("bomb(){ bomb|bomb& };bomb", ForkBomb),
            ("echo x >> memory/history.jsonl", Memory),
            ("echo x | tee -a memory/history.jsonl", Memory),
            ("cp x memory/.dream_cursor", Memory),
            ("mv memory/history.jsonl x", Memory),
            ("dd of=memory/history.jsonl", Memory),
            ("sed -i s/a/b/ memory/history.jsonl", Memory),
            ("echo 9 > memory/.cursor", Memory),
            ("truncate -s 0 /home/me/workspace/memory/versions.jsonl", Memory),
            ("cd memory; echo {} > .dream.json", Memory),
        ];
        for (command, refusal) in cases {
            assert_eq!(check(command), Err(refusal), "{command}");
        }
    }

    #[test]
    fn ordinary_commands_run() {
        let cases = [
            "",
            "ls -la",
            "rm file.txt",
            "rm -i file.txt",
            "rmdir empty",
            "cargo fmt",
            "git log --format=%h",
            "clang-format x.c",
            "terraform -rf",
            "echo reboot later",
            "cat reboot.log",
            "dd of=x",
            "echo x > /dev/null",
            "ls 2>&1",
            "cat memory/history.jsonl",
            "cp memory/history.jsonl backup.jsonl",
            "echo x >> memory/MEMORY.md",
            "echo x > build/versions.jsonl",
            "echo x > mymemory/versions.jsonl",
            "sed -n 1p memory/history.jsonl",
            "grep x < memory/history.jsonl > found.txt",
            "f(){ echo hi; }; f",
            "echo ünïcödé",
        ];
        for command in cases {
            assert_eq!(check(command), Ok(()), "{command}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in "\\PC{0,80}") {
            let _ = check(&text);
        }
    }
}

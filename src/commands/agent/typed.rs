//! Lines that are typed: with an editor while nothing runs, else as the terminal's own line discipline hands them over.
//!
//! While turns run the terminal is in its usual mode: it shows what is typed, gives whole lines, and makes Ctrl-C a
//! signal. What is typed of a line when the last turn ends is the beginning of the next prompt's.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Stdin;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

/// Most bytes of a line that the terminal hands over.
const LINE_BYTES_MAX: usize = 4096;
/// Lines of the history file.
const HISTORY_LINES_MAX: usize = 1000;

type Read = anyhow::Result<Option<String>>;

/// The line editor, in a thread of its own.
pub(super) struct Editor {
    ask: mpsc::Sender<oneshot::Sender<Read>>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Editor {
    /// Starts it; `history` is the file of earlier lines.
    pub(super) fn start(history: PathBuf) -> anyhow::Result<Self> {
        let (ask, asked) = mpsc::channel(1);
        let thread = std::thread::Builder::new().name("line-editor".to_owned()).spawn(move || edit(asked, history))?;
        Ok(Self { ask, thread })
    }

    /// The next line; `None` when the user leaves.
    pub(super) async fn line(&self) -> Read {
        let (reply, line) = oneshot::channel();
        // A thread that ended answers nothing; why it ended is said at the end.
        if self.ask.send(reply).await.is_err() {
            return Ok(None);
        }
        line.await.unwrap_or(Ok(None))
    }

    /// Ends it.
    pub(super) fn end(self) -> anyhow::Result<()> {
        drop(self.ask);
        self.thread.join().map_err(|_| anyhow::anyhow!("the line editor failed"))?
    }
}

/// The editor's thread: reads a line when it is asked for one.
fn edit(mut asked: mpsc::Receiver<oneshot::Sender<Read>>, history: PathBuf) -> anyhow::Result<()> {
    use reedline::{DefaultPrompt, DefaultPromptSegment, FileBackedHistory, Reedline, Signal};
    // What somebody wrote is nobody else's business.
    OpenOptions::new().create(true).append(true).mode(0o600).open(&history)?;
    let lines = FileBackedHistory::with_file(HISTORY_LINES_MAX, history)?;
    let mut editor = Reedline::create().with_history(Box::new(lines));
    let prompt = DefaultPrompt::new(DefaultPromptSegment::Basic("you".to_owned()), DefaultPromptSegment::Empty);
    while let Some(reply) = asked.blocking_recv() {
        let line = loop {
            match editor.read_line(&prompt) {
                Ok(Signal::CtrlD) => break Ok(None),
                Ok(Signal::Success(line)) => break Ok(Some(line)),
                // Ctrl-C at the prompt gives up the line.
                Ok(_) => {}
                Err(error) => break Err(error.into()),
            }
        };
        if reply.send(line).is_err() {
            break;
        }
    }
    Ok(())
}

/// Lines that the terminal hands over while no editor has it.
pub(super) struct Typed {
    stdin: AsyncFd<Stdin>,
    cut: Cut,
}

impl Typed {
    /// Of standard input, which is a terminal.
    pub(super) fn new() -> anyhow::Result<Self> {
        #[expect(
            deprecated,
            reason = "the new way is unsafe; standard input is not closed as long as the program runs"
        )]
        let stdin = AsyncFd::with_interest(std::io::stdin(), Interest::READABLE)?;
        Ok(Self { stdin, cut: Cut::default() })
    }

    /// A line that was typed already.
    pub(super) fn ready(&mut self) -> Read {
        loop {
            if let Some(line) = self.cut.next() {
                return Ok(Some(line));
            }
            if self.cut.ended() || !self.readable()? {
                return Ok(None);
            }
            self.read()?;
        }
    }

    /// The next line; `None` at the end of input. Safe to be dropped while it waits.
    pub(super) async fn line(&mut self) -> Read {
        loop {
            if let Some(line) = self.ready()? {
                return Ok(Some(line));
            }
            if self.cut.take_end() {
                return Ok(None);
            }
            let mut guard = self.stdin.readable().await?;
            // A read would wait for a whole line, so it is asked first; what comes behind this makes it ready anew.
            if !is_readable(self.stdin.get_ref())? {
                guard.clear_ready();
            }
        }
    }

    fn readable(&self) -> anyhow::Result<bool> {
        is_readable(self.stdin.get_ref())
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; LINE_BYTES_MAX];
        let count = rustix::io::read(self.stdin.get_ref(), &mut buffer)?;
        self.cut.push(buffer.get(..count).unwrap_or_default());
        Ok(())
    }
}

fn is_readable(stdin: &Stdin) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut fds, Some(&at_once))? > 0)
}

/// Cuts what is read into lines.
#[derive(Debug, Default)]
struct Cut {
    bytes: VecDeque<u8>,
    ended: bool,
}

impl Cut {
    /// Adds what one read gave: nothing is the end, which Ctrl-D makes on an empty line.
    fn push(&mut self, bytes: &[u8]) {
        self.ended |= bytes.is_empty();
        self.bytes.extend(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the end came; it is told once, for a terminal goes on behind it.
    fn take_end(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_cut_into_lines_and_the_end_is_told_once() {
        let mut cut = Cut::default();
        cut.push("one\ntwö".as_bytes());
        assert_eq!((cut.next().as_deref(), cut.next(), cut.ended()), (Some("one"), None, false));
        cut.push(b"\n/stop\n");
        assert_eq!((cut.next().as_deref(), cut.next().as_deref(), cut.next()), (Some("twö"), Some("/stop"), None));
        cut.push(b"");
        assert_eq!((cut.take_end(), cut.take_end()), (true, false));
    }
}

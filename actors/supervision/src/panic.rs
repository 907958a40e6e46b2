//! The panic hook: keeps text, place and backtrace of a panic for the supervisor that catches it.
//!
//! **Invariant:** nothing is printed for a supervised panic, and no log line holds a long quoted part of a panic's text,
//! which may be something that a user wrote.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::task::Poll;

use protocol::supervision::Panic;

const _: () = assert!(cfg!(panic = "unwind"), "supervision catches panics, so the strategy must be unwind");

/// The longest shortened text, in characters.
pub const TEXT_CHARS_MAX: usize = 200;
/// Quoted parts longer than this are left out of the shortened text, in characters.
pub const QUOTED_CHARS_MAX: usize = 16;

thread_local! {
    static SUPERVISED: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<Caught>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Debug)]
pub struct Caught {
    /// All of the text.
    pub full: String,
    /// `file:line:column`.
    pub at: String,
    /// Not yet resolved: printing it is what costs.
    pub backtrace: Option<Backtrace>,
}

impl Caught {
    /// The form that logs may hold.
    pub fn panic(&self) -> Panic {
        Panic { text: shorten(&self.full), at: self.at.clone() }
    }

    /// Tells crashes apart: 16 hex digits over the place and the shortened text with its numbers left out.
    pub fn hash(&self) -> String {
        let text = shorten(&self.full);
        let shape = text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c });
        let mut bytes = self.at.clone();
        bytes.push('\n');
        bytes.extend(shape);
        format!("{:016x}", fnv1a(bytes.as_bytes()))
    }
}

/// Replaces the process's panic hook, once. Resolves one backtrace, as the first one takes tens of milliseconds.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| hook(info, &before)));
        std::hint::black_box(Backtrace::force_capture().to_string());
    });
}

fn hook(info: &PanicHookInfo<'_>, before: &(dyn Fn(&PanicHookInfo<'_>) + Sync + Send)) {
    let at = info.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let full = payload_text(info.payload());
    if SUPERVISED.get() {
        let caught = Caught { full, at, backtrace: Some(Backtrace::force_capture()) };
        LAST.with_borrow_mut(|last| *last = Some(caught));
    } else if tracing::dispatcher::has_been_set() {
        tracing::error!(target: "supervision", text = shorten(&full), at, "panic outside of supervision");
    } else {
        before(info);
    }
}

/// Runs `body`; a panic in it comes back as a value.
pub fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Caught> {
    let outer = SUPERVISED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    SUPERVISED.set(outer);
    result.map_err(|payload| {
        let stored = LAST.with_borrow_mut(Option::take);
        stored.unwrap_or_else(|| Caught {
            full: payload_text(payload.as_ref()),
            at: "unknown".to_owned(),
            backtrace: None,
        })
    })
}

/// Awaits `future`; a panic in it comes back as a value.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, Caught> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |ctx| match catch(|| future.as_mut().poll(ctx)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn payload_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without text".to_owned()
    }
}

/// First line, at most [`TEXT_CHARS_MAX`] characters, long quoted parts replaced by `…`.
pub fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut out = String::new();
    let mut before = ' ';
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        out.push(c);
        // An apostrophe inside a word opens nothing.
        let opens = c == '"' || c == '`' || (c == '\'' && !before.is_alphanumeric());
        before = c;
        if !opens {
            continue;
        }
        let (quoted, closed) = take_quoted(&mut rest, c);
        if quoted.chars().count() > QUOTED_CHARS_MAX {
            out.push('…');
        } else {
            out.push_str(&quoted);
        }
        if closed {
            out.push(c);
        }
    }
    match out.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => {
            out.truncate(end);
            out
        }
        None => out,
    }
}

fn take_quoted(rest: &mut std::str::Chars<'_>, quote: char) -> (String, bool) {
    let mut quoted = String::new();
    while let Some(c) = rest.next() {
        if c == quote {
            return (quoted, true);
        }
        quoted.push(c);
        if c == '\\' {
            quoted.extend(rest.next());
        }
    }
    (quoted, false)
}

/// A hash that is the same in every process and version.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_contents_do_not_reach_the_log() {
        let table = [
            ("plain", "plain"),
            ("first\nsecond", "first"),
            ("", ""),
            ("index 7 of 'abc'", "index 7 of 'abc'"),
            (r#"bad text "my secret diary entry" here"#, r#"bad text "…" here"#),
            (r#"bad "an \"escaped\" quote stays inside" end"#, r#"bad "…" end"#),
            ("open \"quote that never ends at all", "open \"…"),
            ("the user's message isn't a number at all", "the user's message isn't a number at all"),
            ("called `Option::unwrap()` on a `None` value", "called `Option::unwrap()` on a `None` value"),
            ("in 'quite long single quotes' too", "in '…' too"),
            ("你好 \"你好你好你好你好你好你好你好你好你好\"", "你好 \"…\""),
        ];
        for (text, expect) in table {
            assert_eq!(shorten(text), expect, "{text}");
        }
        assert_eq!(shorten(&"ü".repeat(500)).chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn a_caught_panic_has_text_place_and_backtrace() {
        install();
        let caught = catch(|| panic!("number {}", 7)).unwrap_err();
        assert_eq!(caught.full, "number 7");
        assert!(caught.at.contains("panic.rs:"), "{}", caught.at);
        assert!(caught.backtrace.is_some());
    }

    #[test]
    fn the_hash_tells_places_apart_and_not_numbers() {
        let of = |full: &str, at: &str| Caught { full: full.into(), at: at.into(), backtrace: None }.hash();
        assert_eq!(of("index 7", "a.rs:1:1"), of("index 8", "a.rs:1:1"));
        assert_ne!(of("index 7", "a.rs:1:1"), of("index 7", "a.rs:2:1"));
    }
}

//! What a command printed, bounded while it runs. Pure.

use std::collections::VecDeque;

use domain::text::head_and_tail;

/// Kept of each end of a stream: enough for half a result in the widest characters.
const END_BYTES_MAX: usize = 20_000;

/// The two ends of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

// === impl Capture ===

impl Capture {
    /// Takes what was read next.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(END_BYTES_MAX - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = rest.get(rest.len().saturating_sub(END_BYTES_MAX)..).unwrap_or_default();
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(END_BYTES_MAX);
        self.tail.drain(..over);
    }

    /// As text; bytes that are no UTF-8 become replacement characters.
    fn text(&self) -> String {
        let left_out = self.total - (self.head.len() + self.tail.len()) as u64;
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if left_out == 0 {
            let all = [self.head.as_slice(), &tail].concat();
            return String::from_utf8_lossy(&all).into_owned();
        }
        // The cuts may go through a character: its pieces are not worth a replacement character each.
        let head = match std::str::from_utf8(&self.head) {
            Err(error) if error.error_len().is_none() => self.head.get(..error.valid_up_to()).unwrap_or_default(),
            Ok(_) | Err(_) => &self.head,
        };
        let torn = tail.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        let tail = tail.get(torn..).unwrap_or_default();
        format!(
            "{}\n\n... ({left_out} bytes left out) ...\n\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        )
    }
}

/// Both streams as one text that ends in a line break, or nothing; at most `max` characters and a note.
pub(super) fn render(stdout: &Capture, stderr: &Capture, max: usize) -> String {
    let mut text = stdout.text();
    let errors = stderr.text();
    if !errors.trim().is_empty() {
        end_line(&mut text);
        text.push_str("STDERR:\n");
        text.push_str(&errors);
    }
    end_line(&mut text);
    head_and_tail(&text, max).into_owned()
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(bytes: &[u8]) -> Capture {
        let mut capture = Capture::default();
        capture.push(bytes);
        capture
    }

    #[test]
    fn both_streams_are_shown() {
        let cases: [(&[u8], &[u8], &str); 5] = [
            (b"", b"", ""),
            (b"out", b"", "out\n"),
            (b"out\n", b" \n", "out\n"),
            (b"out", b"bad", "out\nSTDERR:\nbad\n"),
            (b"", b"bad\n", "STDERR:\nbad\n"),
        ];
        for (stdout, stderr, shown) in cases {
            assert_eq!(render(&capture(stdout), &capture(stderr), 1000), shown);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(render(&capture(b"a\xFFb"), &Capture::default(), 100), "a\u{FFFD}b\n");
    }

    #[test]
    fn a_cut_through_a_character_leaves_no_trace() {
        // "€" has three bytes, so both cuts fall into one.
        let text = capture("€".repeat(30_000).as_bytes()).text();
        assert!(!text.contains('\u{FFFD}'), "{text}");
        assert!(text.contains("bytes left out"));
    }

    #[test]
    fn pieces_make_no_difference() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
        let mut pieces = Capture::default();
        bytes.chunks(777).for_each(|chunk| pieces.push(chunk));
        assert_eq!(pieces.text(), capture(&bytes).text());
    }

    proptest! {
        #[test]
        fn any_bytes_make_a_bounded_text(bytes in proptest::collection::vec(any::<u8>(), 0..200), times in 1_usize..400) {
            let mut all = Capture::default();
            (0..times).for_each(|_| all.push(&bytes));
            prop_assert!(all.head.len() + all.tail.len() <= 2 * END_BYTES_MAX);
            prop_assert!(render(&all, &all, 100).chars().count() <= 160);
        }
    }
}

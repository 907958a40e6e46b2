use std::sync::Arc;

use supervision::memory::PowerCutDisk;

use super::*;

fn line(id: &str) -> Line {
    Line { id: id.into(), text: format!(r#"{{"type":"message","id":"{id}"}}"#).into() }
}

fn known(length: u64) -> Known {
    Known { length, stamp: None, rest_is_all: false }
}

const NOW_MS: u64 = 7;

/// How the file stands, and the transcript that is read of it.
fn opened(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line], now_ms: u64) -> io::Result<(Standing, Vec<u8>)> {
    let (standing, source) = open(disk, path, at, lines, now_ms)?;
    let mut bytes = if source.file.is_some() { disk.read(path)? } else { Vec::new() };
    bytes.truncate(source.keep as usize);
    bytes.extend(source.rest);
    Ok((standing, bytes))
}

fn disk() -> (Arc<PowerCutDisk>, PathBuf) {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new("/s")).unwrap();
    (disk, PathBuf::from("/s/a.jsonl"))
}

fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, Open::Create).unwrap();
    file.set_length(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

#[test]
fn appends_make_the_file_and_its_directory() {
    let disk = PowerCutDisk::new();
    let path = PathBuf::from("/new/dir/a.jsonl");
    let first = append(&*disk, &path, known(0), &[line("a")], NOW_MS).unwrap();
    let second = append(&*disk, &path, known(first.length), &[line("b")], NOW_MS).unwrap();
    assert_eq!(second.found, None);
    assert_eq!(disk.read(&path).unwrap(), text_of(&[line("a"), line("b")]));
}

#[test]
fn an_append_that_is_repeated_after_any_byte_is_complete_once() {
    let lines = [line("b"), line("c")];
    let before = text_of(&[line("a")]);
    let whole = text_of(&[line("a"), line("b"), line("c")]);
    for length in before.len()..=whole.len() {
        let (disk, path) = disk();
        put(&*disk, &path, &whole[..length]);
        let standing = append(&*disk, &path, known(before.len() as u64), &lines, NOW_MS).unwrap();
        assert_eq!((standing.length, standing.found), (whole.len() as u64, None));
        assert_eq!(disk.read(&path).unwrap(), whole);
    }
}

#[test]
fn a_missing_file_is_told_and_written_again() {
    let (disk, path) = disk();
    let (standing, bytes) = opened(&*disk, &path, 500, &[line("a")], NOW_MS).unwrap();
    assert!(standing.found.unwrap().lost.unwrap().contains("500"));
    assert_eq!(bytes, text_of(&[line("a")]));
    assert_eq!(disk.read(&path).unwrap(), bytes);
}

#[test]
fn no_file_and_no_lines_is_a_new_session() {
    let (disk, path) = disk();
    let (standing, bytes) = opened(&*disk, &path, 0, &[], NOW_MS).unwrap();
    assert_eq!((standing, bytes), (Standing::default(), Vec::new()));
    assert!(disk.stat(&path).is_err());
}

#[test]
fn unknown_bytes_are_kept_in_a_copy() {
    let (disk, path) = disk();
    let mut bytes = text_of(&[line("a")]);
    let at = bytes.len() as u64;
    bytes.extend_from_slice(b"\xffjunk");
    put(&*disk, &path, &bytes);
    let (standing, bytes) = opened(&*disk, &path, at, &[line("b")], NOW_MS).unwrap();
    assert_eq!(bytes, text_of(&[line("a"), line("b")]));
    assert!(standing.found.unwrap().lost.is_some());
    assert_eq!(disk.read(Path::new("/s/a.jsonl.damaged-7")).unwrap(), b"\xffjunk");
}

#[test]
fn each_damage_has_its_own_copy() {
    let (disk, path) = disk();
    let mut at = 0;
    for junk in [&b"first"[..], b"second"] {
        at = append(&*disk, &path, known(at), &[line("a")], NOW_MS).unwrap().length;
        disk.open(&path, Open::Write).unwrap().write_at(junk, at).unwrap();
    }
    append(&*disk, &path, known(at), &[line("a")], NOW_MS).unwrap();
    assert_eq!(disk.read(&path).unwrap(), text_of(&[line("a"), line("a"), line("a")]));
    for (copy, junk) in [("7", &b"first"[..]), ("8", b"second")] {
        assert_eq!(disk.read(Path::new(&format!("/s/a.jsonl.damaged-{copy}"))).unwrap(), junk);
    }
}

#[test]
fn nothing_is_written_to_a_file_that_lost_lines_unless_all_of_them_are_at_hand() {
    let (a, b) = (line("a"), line("b"));
    let at = text_of(&[a.clone(), b.clone()]).len() as u64;
    // Cut, emptied, or replaced by something longer.
    for left in [text_of(std::slice::from_ref(&a)), Vec::new(), vec![b'x'; 500]] {
        let (disk, path) = disk();
        put(&*disk, &path, &left);
        let standing = append(&*disk, &path, known(at), &[line("c")], NOW_MS).unwrap();
        assert!(standing.behind);
        assert_eq!(standing.found.unwrap().changed, Some((at, left.len() as u64)));
        assert_eq!(disk.read(&path).unwrap(), left);
        let all = Known { rest_is_all: true, ..known(at) };
        let standing = append(&*disk, &path, all, &[line("c")], NOW_MS).unwrap();
        assert!(!standing.behind && standing.found.unwrap().lost.is_some());
        let text = String::from_utf8(disk.read(&path).unwrap()).unwrap();
        assert!(text.contains(&*line("c").text) && text.ends_with('\n'), "{text}");
    }
}

#[test]
fn a_file_that_was_brought_along_is_left_as_it_is() {
    let brought = b"{\"type\":\"session\"}\nno json\n{\"type\":\"custom\"}\n{\"type\":\"cu";
    let (disk, path) = disk();
    put(&*disk, &path, brought);
    let (standing, bytes) = opened(&*disk, &path, 0, &[], NOW_MS).unwrap();
    let whole_lines = &brought[..brought.len() - 11];
    assert_eq!((standing.length, standing.found, &*bytes), (whole_lines.len() as u64, None, whole_lines));
    assert_eq!(disk.read(&path).unwrap(), brought);
    append(&*disk, &path, known(standing.length), &[line("a")], NOW_MS).unwrap();
    assert_eq!(disk.read(&path).unwrap(), [whole_lines, &text_of(&[line("a")])].concat());
    assert_eq!(disk.read(Path::new("/s/a.jsonl.damaged-7")).unwrap(), b"{\"type\":\"cu");
}

#[test]
fn the_last_record_of_a_file_that_was_brought_along_counts_also_without_its_line_end() {
    for (last, ended) in [(r#"{"type":"custom","id":"b"}"#, true), (r#"{"type":"cust"#, false), ("42", false)] {
        let (disk, path) = disk();
        let brought = [text_of(&[line("a")]), last.into()].concat();
        put(&*disk, &path, &brought);
        let (standing, bytes) = opened(&*disk, &path, 0, &[], NOW_MS).unwrap();
        assert_eq!(standing.found, None);
        assert_eq!(bytes.ends_with(b"}\n") && bytes.len() == brought.len() + 1, ended, "{last}");
        assert_eq!(disk.read(&path).unwrap(), if ended { bytes } else { brought }, "{last}");
    }
    let (disk, path) = disk();
    put(&*disk, &path, line("a").text.as_bytes());
    disk.set_full(true);
    assert!(opened(&*disk, &path, 0, &[], NOW_MS).is_ok(), "a full disk keeps nobody from looking");
}

#[test]
fn foreign_lines_stay_and_a_leaf_row_points_at_ours() {
    let (disk, path) = disk();
    let mut bytes = text_of(&[line("a")]);
    let at = bytes.len() as u64;
    bytes.extend(text_of(&[line("foreign")]));
    put(&*disk, &path, &bytes);
    let standing = append(&*disk, &path, known(at), &[line("b")], NOW_MS).unwrap();
    assert_eq!(standing.found, Some(Found { foreign_lines: 1, ..Found::default() }));
    let text = String::from_utf8(disk.read(&path).unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[3].contains(r#""type":"leaf""#) && lines[3].contains(r#""targetId":"b""#), "{}", lines[3]);
}

#[test]
fn a_session_goes_on_behind_a_file_that_appeared_where_it_knew_of_none() {
    let (disk, path) = disk();
    let there = text_of(&[line("head"), line("foreign")]);
    put(&*disk, &path, &there);
    let ours = [line("a"), line("b")];
    let standing = append(&*disk, &path, known(0), &ours, NOW_MS).unwrap();
    assert_eq!(standing.found, Some(Found { foreign_lines: 2, ..Found::default() }));
    let bytes = disk.read(&path).unwrap();
    assert!(bytes.starts_with(&[there, text_of(&ours)].concat()), "{}", String::from_utf8_lossy(&bytes));
    assert_eq!(standing.length, bytes.len() as u64);
}

#[test]
fn a_power_cut_at_any_moment_is_repaired_from_the_journal() {
    let lines: Vec<Line> = (0..12)
        .map(|number| Line { text: line(&"x".repeat(100 * number)).text, id: number.to_string().into() })
        .collect();
    for seed in 0..200 {
        let (disk, path) = disk();
        disk.sync_fs(Path::new("/s")).unwrap();
        let (mut at, mut synced) = (0, 0);
        let written = usize::try_from(seed % 13).unwrap();
        for (number, line) in lines.iter().enumerate().take(written) {
            at = append(&*disk, &path, known(at), std::slice::from_ref(line), NOW_MS).unwrap().length;
            if u64::try_from(number).unwrap() == seed % 7 {
                disk.sync_fs(Path::new("/s")).unwrap();
                synced = number + 1;
            }
        }
        let after = disk.cut(seed);
        let mark = text_of(&lines[..synced]).len() as u64;
        let (standing, bytes) = opened(&*after, &path, mark, &lines[synced..], NOW_MS).unwrap();
        assert_eq!(bytes, text_of(&lines), "seed {seed}");
        assert_eq!(standing.found, None, "seed {seed}");
        assert_eq!(after.read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_file_is_completed_only_if_all_of_it_is_ours() {
    let ours = vec![line("a"), line("b"), line("c")];
    let (whole, head) = (text_of(&ours), text_of(&[line("head")]));
    let foreign = b"{\"id\":\"f\",\"type\":\"custom\"}\n".as_slice();
    for (name, tail, complete) in [
        ("nothing", Vec::new(), true),
        ("all", whole.clone(), true),
        ("a part of a line", whole[..whole.len() - 5].to_vec(), true),
        ("zeros", vec![0; 7], true),
        ("somebody else's", [&whole, foreign].concat(), false),
        ("what nobody can read", b"junk".to_vec(), false),
    ] {
        let disk = PowerCutDisk::new();
        let path = Path::new("/s.jsonl");
        let before = [head.clone(), tail].concat();
        disk.open(path, Open::Create).unwrap().write_at(&before, 0).unwrap();
        let length = super::complete(&*disk, path, head.len() as u64, &ours).unwrap();
        let expected = if complete { [head.clone(), whole.clone()].concat() } else { before };
        assert_eq!(length, complete.then_some(expected.len() as u64), "{name}");
        assert_eq!(disk.read(path).unwrap(), expected, "{name}");
        assert_eq!(super::complete(&*disk, path, 10_000, &ours).unwrap(), None, "{name}: it lost its beginning");
    }
    let disk = PowerCutDisk::new();
    assert_eq!(super::complete(&*disk, Path::new("/gone.jsonl"), 5, &ours).unwrap(), None);
    assert!(disk.stat(Path::new("/gone.jsonl")).is_err());
    assert_eq!(super::complete(&*disk, Path::new("/new.jsonl"), 0, &ours).unwrap(), Some(whole.len() as u64));
}

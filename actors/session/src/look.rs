//! Looks at a transcript for people: its tree, and what is wrong with it. Reads it once, piece by piece, and keeps no
//! contents but the first words of each entry. Everything here blocks.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::ids::SessionKey;
use domain::transcript::{
    Findings, LINE_BYTES_MAX, Position, ProblemKind, Reader, Record, Transcript, TreeIndex, view,
};
use protocol::transcripts::{Check, CheckProblem, Tree, TreeItem};
use supervision::ports::Disk;

use crate::file;
use crate::reading::Source;

const STAYS: &str = "none: it stays, and is skipped";
const STAYS_OR_ASIDE: &str = "none: it stays, and is skipped; but if it stands where lines of the journal belong, it and \
                              what follows are moved aside into a file beside the transcript, and those lines are written";
const MOVED_ASIDE: &str = "moved aside, into a file beside the transcript";
const END_ADDED: &str = "its line end is added";
const HEADER_APPENDED: &str = "a header is appended";
const HEADER_ELSEWHERE: &str = "none is needed: the header stands further down";
const ANOTHER_COUNTS: &str = "none: the other line with this id counts, and nothing follows this one";
const UNREADABLE: &str = "none: nobody can read it; move it away";
const SHOWN_AS_ROOT: &str = "none: it begins a branch of its own";

/// The tree in the file at `path`; `None` when there is no file.
pub fn tree(disk: &dyn Disk, key: &SessionKey, path: &Path) -> io::Result<Option<Tree>> {
    let (_, source) = file::peek(disk, path, 0, &[])?;
    if source.file.is_none() {
        return Ok(None);
    }
    let (tree, previews, _) = read(&source)?;
    let nodes = view::tree(&tree, |at| previews.get(at.0 as usize).cloned().unwrap_or_default());
    let item = |node: view::TreeNode| TreeItem {
        id: node.id,
        parent: node.parent,
        kind: node.kind,
        role: node.role,
        preview: node.preview,
        timestamp_ms: node.timestamp_ms,
        label: node.label,
        depth: node.depth,
        on_path: node.on_path,
        side: node.side,
    };
    Ok(Some(Tree {
        key: key.clone(),
        name: tree.name().cloned(),
        leaf: tree.leaf().map(Arc::from),
        items: nodes.into_iter().map(item).collect(),
        next: None,
    }))
}

/// What is wrong with the file at `path`; `None` when there is no file.
pub fn check(disk: &dyn Disk, key: &SessionKey, path: &Path) -> io::Result<Option<Check>> {
    let checked = check_lines(disk, key, path);
    Ok(checked.unwrap_or_else(|why| {
        let what = "unreadable";
        let problem =
            CheckProblem { what, repair: UNREADABLE, detail: Some(why.to_string()), ..CheckProblem::default() };
        Some(Check {
            key: key.clone(),
            file: path.display().to_string(),
            bytes: 0,
            entries: 0,
            healthy: false,
            repairable: false,
            problems: vec![problem],
            problems_total: 1,
        })
    }))
}

fn check_lines(disk: &dyn Disk, key: &SessionKey, path: &Path) -> io::Result<Option<Check>> {
    let (_, source) = file::peek(disk, path, 0, &[])?;
    let Some(bytes) = source.file.as_ref().map(|file| file.opened().length) else { return Ok(None) };
    let (tree, _, found) = read(&source)?;
    let Findings { header, problems, mut problems_total } = found;
    let mut told: Vec<CheckProblem> = problems
        .into_iter()
        .map(|problem| {
            let (what, repair) = match problem.what {
                ProblemKind::NotJson => ("not_json", STAYS_OR_ASIDE),
                ProblemKind::TooLong => ("too_long", STAYS),
                ProblemKind::HeaderMissing if header.is_some() => ("header_missing", HEADER_ELSEWHERE),
                ProblemKind::HeaderMissing => ("header_missing", HEADER_APPENDED),
            };
            CheckProblem { line: Some(problem.line), what, repair, ..CheckProblem::default() }
        })
        .collect();
    let torn = bytes.saturating_sub(source.keep);
    if torn > 0 {
        problems_total += 1;
        let (what, repair) = if is_whole(&source, torn)? { ("unended", END_ADDED) } else { ("torn_tail", MOVED_ASIDE) };
        told.push(CheckProblem { what, bytes: Some(torn), repair, ..CheckProblem::default() });
    }
    let is_orphan = |at: &Position| {
        let parent = tree.raw_parent(*at);
        tree.kind(*at).is_node() && parent.is_some_and(|parent| tree.position(parent).is_none())
    };
    for at in tree.positions().filter(is_orphan) {
        problems_total += 1;
        if told.len() < Transcript::PROBLEMS_MAX {
            let entry = Some(tree.id(at).to_owned());
            let (what, repair) = ("parent_missing", SHOWN_AS_ROOT);
            told.push(CheckProblem { entry, what, repair, ..CheckProblem::default() });
        }
    }
    problems_total += doubles(&source, &tree, &mut told)?;
    Ok(Some(Check {
        key: key.clone(),
        file: path.display().to_string(),
        bytes,
        entries: tree.len(),
        healthy: problems_total == 0,
        repairable: torn > 0 || (header.is_none() && !tree.is_empty()),
        problems: told,
        problems_total,
    }))
}

/// Tells of lines whose id another line has, too; how many there are.
fn doubles(source: &Source, tree: &TreeIndex, told: &mut Vec<CheckProblem>) -> io::Result<usize> {
    let other = |at: Position| tree.position(tree.id(at)).filter(|other| *other != at);
    let all: Vec<_> = tree.positions().filter_map(|at| Some((at, other(at)?))).collect();
    let room = Transcript::PROBLEMS_MAX.saturating_sub(told.len());
    let mut lines: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, other) in all.iter().take(room) {
        lines.extend([*at, *other].map(|at| (tree.place(at).start, 0)));
    }
    if lines.is_empty() {
        return Ok(all.len());
    }
    let (mut read, mut line) = (0, 1);
    source.each_piece(|piece| {
        let mut from = 0;
        let end = read + piece.len() as u64;
        for (start, number) in lines.range_mut(read..end) {
            let until = usize::try_from(*start - read).unwrap_or(usize::MAX);
            line += breaks(piece.get(from..until));
            (from, *number) = (until, line);
        }
        line += breaks(piece.get(from..));
        read = end;
    })?;
    let line_of = |at: Position| lines.get(&tree.place(at).start).copied();
    told.extend(all.iter().take(room).map(|(at, other)| CheckProblem {
        line: line_of(*at),
        other_line: line_of(*other),
        entry: Some(tree.id(*at).to_owned()),
        what: "duplicate_id",
        repair: ANOTHER_COUNTS,
        ..CheckProblem::default()
    }));
    Ok(all.len())
}

fn breaks(piece: Option<&[u8]>) -> usize {
    piece.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
}

/// Whether the last `bytes` of the file are a record that only lacks its line end.
fn is_whole(source: &Source, bytes: u64) -> io::Result<bool> {
    let Some(file) = source.file.as_ref().filter(|_| bytes < LINE_BYTES_MAX as u64) else { return Ok(false) };
    let mut last = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    let got = file.read_at(&mut last, source.keep)?;
    last.truncate(got);
    Ok(serde_json::from_slice::<serde::de::IgnoredAny>(&last).is_ok())
}

fn read(source: &Source) -> io::Result<(TreeIndex, Vec<String>, Findings)> {
    let (mut reader, mut tree, mut previews) = (Reader::default(), TreeIndex::default(), Vec::new());
    let mut take = |Record { entry, parent, kind, place }: Record| {
        tree.insert(&entry, &parent, kind, place);
        previews.push(view::preview(&entry));
    };
    source.each_piece(|piece| reader.push(piece, &mut take))?;
    let found = reader.finish(take);
    Ok((tree, previews, found))
}

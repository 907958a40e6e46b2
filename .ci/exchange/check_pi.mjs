// pi's own session manager, the ancestor of OpenClaw's, reads what Greenroom exports as it reads the originals.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { SessionManager } from "@mariozechner/pi-coding-agent";

const [originals, exported] = process.argv.slice(2);
// pi writes a new header over what has none, comes to no end in a cycle, and reads none of two records on one line.
const left = new Set(["only-garbage", "empty", "missing-header", "cycle", "two-on-one-line"]);
const store = JSON.parse(readFileSync(join(exported, "sessions.json"), "utf8"));
const scratch = mkdtempSync(join(tmpdir(), "pi-"));

/** What the program sees of a file; of a copy, because it rewrites old ones. */
function seen(path, name) {
  const copy = join(scratch, name);
  copyFileSync(path, copy);
  const manager = SessionManager.open(copy);
  const entries = manager.getEntries();
  const labels = entries.map((entry) => [entry.id, manager.getLabel(entry.id)]).filter(([, label]) => label);
  return {
    entries: entries.map((entry) => [entry.id, entry.parentId, entry.type, entry.timestamp]),
    leaf: manager.getLeafId(),
    branch: manager.getBranch().map((entry) => entry.id),
    labels,
    context: manager.buildSessionContext(),
  };
}

/** Ids that pi draws at random while it migrates version 1, by their order. */
function numbered(view) {
  const numbers = new Map(view.entries.map(([id], at) => [id, `#${at}`]));
  return JSON.parse(JSON.stringify(view), (_, value) => numbers.get(value) ?? value);
}

let compared = 0;
for (const file of readdirSync(originals).filter((file) => file.endsWith(".jsonl"))) {
  const name = basename(file, ".jsonl");
  if (left.has(name)) continue;
  const entry = store[`agent:main:orphan:${name}`];
  assert.ok(entry, `${name} is not in sessions.json`);
  const path = join(exported, entry.sessionFile);
  const header = JSON.parse(readFileSync(path, "utf8").split("\n", 1)[0]);
  assert.deepEqual([header.version, header.id], [3, entry.sessionId], `${name}: header`);
  const view = (path, copy) => {
    const is = seen(path, copy);
    return name === "v1" ? numbered(is) : JSON.parse(JSON.stringify(is));
  };
  assert.deepEqual(view(path, `${name}-ours.jsonl`), view(join(originals, file), `${name}-theirs.jsonl`), name);
  compared += 1;
}
assert.ok(compared > 45, `only ${compared} files`);
const named = new Set(Object.values(store).map((entry) => entry.sessionFile));
assert.deepEqual(readdirSync(exported).filter((file) => file.endsWith(".jsonl") && !named.has(file)), []);
console.log(`${compared} transcripts: equal entries, leaf, branch, labels and context`);

//! `greenroom tree`: the live supervision tree, drawn.

use domain::text::counted;
use protocol::supervision::TreeNode;
use supervision::log_read::glob_matches;

use super::admin::{Admin, encode};
use super::{print, print_json};
use crate::cli::TreeArgs;
use crate::config::Loaded;

/// Prints the tree of the running gateway.
pub async fn run(loaded: &Loaded, arguments: TreeArgs) -> anyhow::Result<()> {
    let path = arguments.path.as_ref().map(|glob| format!("?path={}", encode(glob))).unwrap_or_default();
    let tree = Admin::require(&loaded.paths).await?.get(&format!("tree{path}")).await?;
    if arguments.output.json {
        print_json(&tree)?;
    }
    let root: TreeNode = serde_json::from_value(tree)?;
    if let Some(glob) = arguments.path.filter(|glob| root.children.is_empty() && !glob_matches(glob, &root.path.0)) {
        eprintln!("greenroom: nothing in the tree matches {glob}");
    }
    if arguments.output.json {
        return Ok(());
    }
    let mut lines = vec![describe(&root)];
    draw(&root, "", &mut lines);
    print(&lines.join("\n"))
}

fn draw(node: &TreeNode, indent: &str, lines: &mut Vec<String>) {
    for (at, child) in node.children.iter().enumerate() {
        let last = at + 1 == node.children.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{branch}{}", describe(child)));
        draw(child, &format!("{indent}{below}"), lines);
    }
}

fn describe(node: &TreeNode) -> String {
    let name = match &node.session {
        Some(key) => key.as_str(),
        None => Some(node.path.0.trim_start_matches('/')).filter(|name| !name.is_empty()).unwrap_or("root"),
    };
    let mut text = format!("{name}  {}", node.state);
    if let Some(turn) = node.turn {
        text.push_str(&format!(", turn {turn}"));
    }
    if let Some(connections) = node.connections {
        text.push_str(&format!(", {}", counted(connections, "connection")));
    }
    for (word, count) in [("inbox", node.inbox), ("mailbox", node.mailbox), ("restarts", node.restarts)] {
        if count > 0 {
            text.push_str(&format!(", {word} {count}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::supervision::{ActorPath, Kind};

    fn node(path: &str, children: Vec<TreeNode>) -> TreeNode {
        TreeNode { children, ..TreeNode::new(ActorPath(path.into()), Kind::Registry, "running") }
    }

    #[test]
    fn the_tree_is_drawn_with_branches() {
        let mut inner = node("/registry/0", vec![node("/registry/0/session", vec![])]);
        inner.restarts = 2;
        let root = node("/", vec![inner, node("/journal", vec![])]);
        let mut lines = vec![describe(&root)];
        draw(&root, "", &mut lines);
        assert_eq!(
            lines,
            [
                "root  running",
                "├─ registry/0  running, restarts 2",
                "│  └─ registry/0/session  running",
                "└─ journal  running"
            ]
        );
    }
}

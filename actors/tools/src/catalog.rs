//! What can be called: built once at start, shared by all arbiters.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use domain::chat::ToolCall;
use domain::policy::{Policies, Policy};
use domain::request::ToolSpec;
use serde_json::{Map, Value};

use crate::arguments;
use crate::exec::{Exec, ExecConfig};
use crate::list_dir::ListDir;
use crate::offload::Offload;
use crate::paths::Reach;
use crate::place::Fence;
use crate::read_file::ReadFile;
use crate::tool::Tool;
use crate::write_file::WriteFile;

/// The longest legal tool name.
const NAME_BYTES_MAX: usize = 64;

/// How alike two names must be (0 to 1) for one to be suggested in place of the other.
const ALIKE: f64 = 0.7;

/// What the built-in tools need to know.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// Where tools work.
    pub workspace: PathBuf,
    /// Transcripts; private to the gateway.
    pub sessions_dir: PathBuf,
    /// What else is private to the gateway: journal, logs, run, configuration, keys. Existing or not, files or
    /// directories. The workspace stays open when it lies inside one of them.
    pub forbidden: Vec<PathBuf>,
    /// Directories, existing or not, in which each session has one that it may read, named by its stem: what people
    /// attached to its messages.
    pub attachments: Vec<PathBuf>,
    /// Whether file tools stay inside the workspace.
    pub restrict: bool,
    /// Of any result, in characters.
    pub result_chars_max: usize,
    /// Commands.
    pub exec: ExecConfig,
    /// What sessions may do, by their kind.
    pub policies: Arc<Policies>,
}

/// All tools, by name.
pub struct Catalog {
    entries: Vec<Entry>,
    specs: Arc<[ToolSpec]>,
    pub(crate) result_chars_max: usize,
    pub(crate) offload: Arc<Offload>,
    pub(crate) policies: Arc<Policies>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

/// Collects tools.
pub struct Builder {
    tools: Vec<Arc<dyn Tool>>,
    result_chars_max: usize,
    offload: Arc<Offload>,
    policies: Arc<Policies>,
}

/// A call that can run.
pub(crate) struct Prepared {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) arguments: Map<String, Value>,
}

// === impl Catalog ===

impl Catalog {
    /// Begins with the built-in tools. May ask the machine which sandbox it has: call it before the arbiters start.
    pub fn builder(config: ToolsConfig) -> Builder {
        let reach = if config.restrict { Reach::Workspace } else { Reach::Anywhere };
        let fence = Arc::new(Fence {
            workspace: config.workspace,
            readable: Vec::new(),
            attachments: config.attachments,
            sessions: config.sessions_dir,
            forbidden: config.forbidden,
            reach,
            only: None,
            kept: Vec::new(),
            seen: Arc::default(),
        });
        let (result_chars_max, policies) = (config.result_chars_max, config.policies);
        let offload = Arc::new(Offload::new(fence.clone()));
        let mut builder = Builder { tools: Vec::new(), result_chars_max, offload, policies }
            .with(Arc::new(ReadFile::new(fence.clone(), config.result_chars_max)))
            .with(Arc::new(ListDir::new(fence.clone())))
            .with(Arc::new(WriteFile::new(fence.clone())));
        if config.exec.enable {
            builder = builder.with(Arc::new(Exec::new(fence, &config.exec)));
        }
        builder
    }

    /// What the model is offered, in a fixed order: by name, those of MCP servers last.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    /// Whether there is a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.spec.name == name)
    }

    /// Finds the tool, and checks that a session of that policy may call it, and the arguments; the error is for the
    /// model.
    pub(crate) fn prepare(&self, call: ToolCall, policy: &Policy) -> Result<Prepared, String> {
        let Some(entry) = self.entries.iter().find(|entry| entry.spec.name == call.name) else {
            return Err(self.unknown(&call.name, policy));
        };
        if let Err(denied) = policy.permits(&call.name) {
            return Err(format!("the tool {:?} is not open to this session: {denied}.", call.name));
        }
        let schema = &entry.spec.parameters;
        let arguments = arguments::prepare(&call.name, schema, entry.tool.aliases(), call.arguments)?;
        Ok(Prepared { tool: entry.tool.clone(), arguments })
    }

    fn unknown(&self, name: &str, policy: &Policy) -> String {
        let names = self.specs.iter().map(|spec| spec.name.as_str());
        let names: Vec<&str> = names.filter(|name| policy.permits(name).is_ok()).collect();
        let list = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        if name.is_empty() {
            return format!("the call names no tool. Tools: {list}");
        }
        let wanted = name.to_lowercase();
        let nearest = names
            .iter()
            .map(|known| (strsim::jaro_winkler(&wanted, &known.to_lowercase()), known))
            .filter(|(score, _)| *score >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
        match nearest {
            Some((_, known)) => format!("there is no tool {shown:?}; did you mean {known:?}? Tools: {list}"),
            None => format!("there is no tool {shown:?}. Tools: {list}"),
        }
    }
}

// === impl Builder ===

impl Builder {
    /// Adds a tool; it takes the place of an earlier one with the same name. A name that no provider would take
    /// (`[a-zA-Z0-9_-]{1,64}`) is reported and left out.
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The names of what was added.
    pub fn names(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        names.into_iter().collect()
    }

    /// All that was added.
    pub fn build(self) -> Catalog {
        let mut entries: Vec<Entry> = Vec::new();
        for tool in self.tools {
            let spec = tool.spec();
            if !is_name(&spec.name) {
                tracing::error!(tool = %spec.name, "tool left out: its name must match [a-zA-Z0-9_-]{{1,64}}");
                continue;
            }
            entries.retain(|entry| entry.spec.name != spec.name);
            entries.push(Entry { tool, spec });
        }
        entries.sort_by(|a, b| order(&a.spec.name).cmp(&order(&b.spec.name)));
        let specs = entries.iter().map(|entry| entry.spec.clone()).collect();
        let Self { result_chars_max, offload, policies, .. } = self;
        Catalog { entries, specs, result_chars_max, offload, policies }
    }
}

fn order(name: &str) -> (bool, &str) {
    (name.starts_with("mcp_"), name)
}

fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(legal)
}

//! The project of a chat: chosen by its client, kept by its session.

use std::path::PathBuf;
use std::sync::Arc;

use domain::scope::Scope;
use protocol::edit::{Edit, Patience};
use supervision::ports::offload;

use super::asked::Asked;
use super::connection::push_frame;
use super::order::ControlPlace;
use crate::doors::Door;
use crate::gateway::edits::edit;
use crate::json::Json;
use crate::media::Upload;

/// Who may choose what.
#[derive(Debug, Clone, Default)]
pub struct ProjectRules {
    /// Whether the door's sessions may change files at all.
    pub open: bool,
    /// Directories and files in which no project lies.
    pub private: Vec<PathBuf>,
}

/// What a connection may choose.
#[derive(Clone)]
pub(crate) struct Chooser {
    pub(crate) rules: Arc<ProjectRules>,
    /// Whether its client is on this machine; others can only take away what is open.
    pub(crate) local: bool,
}

/// Why no project was chosen: a word and a sentence.
type Refusal = (&'static str, String);

impl Asked {
    /// Chooses the project of the chat.
    pub(super) async fn choose(self, scope: Option<Scope>, chooser: Chooser, mut place: ControlPlace) {
        place.come().await;
        let frame = match self.chosen(scope, &chooser).await {
            Ok(frame) => frame,
            Err((reason, detail)) => self.error(&detail, reason, None),
        };
        push_frame(&self.outlet, frame);
    }

    /// Chooses the project of the chat, and says something there.
    pub(super) async fn choose_and_submit(
        mut self,
        (scope, text, media): (Scope, String, Vec<Upload>),
        chooser: Chooser,
        mut place: ControlPlace,
    ) {
        let body = match self.body(text, media).await {
            Ok(body) => body,
            Err(frame) => return push_frame(&self.outlet, frame),
        };
        place.come().await;
        match self.chosen(Some(scope), &chooser).await {
            Ok(frame) => push_frame(&self.outlet, frame),
            Err((reason, detail)) => return push_frame(&self.outlet, self.error(&detail, reason, None)),
        }
        let verdict = self.submit(body);
        self.answer(verdict, place).await;
    }

    async fn chosen(&self, scope: Option<Scope>, chooser: &Chooser) -> Result<String, Refusal> {
        let busy = || ("busy", "the project cannot be looked at right now".to_owned());
        let rules = Arc::clone(&chooser.rules);
        let judged = offload(&*self.doors.ports.offload, move || {
            scope.map(|scope| judged(scope, &rules)).transpose().map_err(|detail| ("bad_scope", detail))
        });
        let scope = judged.await.map_err(|_| busy())??;
        let shown =
            serde_json::to_string(&scope).map_err(|_| ("bad_scope", "the path is no Unicode text".to_owned()))?;
        let wanted = Edit::Scope { scope, only_less: !chooser.local };
        let doors = (&*self.doors.sessions, &*self.doors.journal);
        let edited = edit(doors, &self.room.session, wanted, Patience::Refuse).await;
        edited.map_err(|fault| {
            self.doors.rejected(Door::WebSocket, fault.code);
            (fault.code, fault.message)
        })?;
        let json = Json::event("session_updated").text("chat_id", &self.names.chat_id).text("scope", "metadata");
        Ok(json.raw("workspace_scope", shown).done())
    }
}

/// The scope with the real path of its project. Blocks.
fn judged(scope: Scope, rules: &ProjectRules) -> Result<Scope, String> {
    let shown = scope.project_path.display();
    if !rules.open {
        return Err("sessions of this door may not change files, so they have no project".to_owned());
    }
    let real = scope.project_path.canonicalize().map_err(|error| format!("{shown} cannot be a project: {error}"))?;
    if !real.is_dir() {
        return Err(format!("{shown} cannot be a project: it is no directory"));
    }
    let holds = |private: &PathBuf| real.starts_with(private.canonicalize().as_deref().unwrap_or(private));
    if real.parent().is_none() || KERNEL.iter().any(|root| real.starts_with(root)) || rules.private.iter().any(holds) {
        return Err(format!("{shown} cannot be a project: it is the system's, or the gateway's own"));
    }
    Ok(Scope { project_path: real, ..scope })
}

/// Kernel file systems.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Whether a request came through a proxy, whose own address says nothing of the client's.
pub(super) fn is_forwarded(headers: &axum::http::HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use domain::scope::AccessMode;

    use super::*;

    #[test]
    fn a_project_is_a_directory_of_the_owner() {
        let home = testkit::workspace::TempWorkspace::new();
        let root = home.home().canonicalize().unwrap();
        for directory in ["site/src", "data/journal/deep"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("site"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("data/journal"), root.join("site/inside")).unwrap();
        let rules = ProjectRules { open: true, private: vec![root.join("data/journal"), root.join("missing")] };
        let judge = |rules: &ProjectRules, path: &str| {
            let scope = Scope { project_path: root.join(path), access_mode: AccessMode::Full };
            judged(scope, rules).map(|scope| scope.project_path.strip_prefix(&root).unwrap().to_owned())
        };
        for (path, real) in [("site", "site"), ("link/src", "site/src"), ("site/../data", "data")] {
            assert_eq!(judge(&rules, path).unwrap(), Path::new(real), "{path}");
        }
        for (path, why) in [
            ("file", "it is no directory"),
            ("nowhere", "cannot be a project: "),
            ("data/journal", "the gateway's own"),
            ("data/journal/deep", "the gateway's own"),
            ("site/inside", "the gateway's own"),
            ("/", "it is the system's"),
            ("/proc/self", "it is the system's"),
        ] {
            let refusal = judge(&rules, path).unwrap_err();
            assert!(refusal.contains(why), "{path}: {refusal}");
        }
        assert!(judge(&ProjectRules::default(), "site").unwrap_err().contains("may not change files"));
    }
}

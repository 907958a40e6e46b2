"""nanobot's own session manager reads what Greenroom exports, as it reads what it wrote itself."""

import sys
from pathlib import Path

from nanobot.session.manager import SessionManager


def manager(directory: str) -> SessionManager:
    root = Path(directory)
    return SessionManager(root / "workspace", sessions_root=root / "sessions")


def seen(sessions: SessionManager, key: str) -> dict:
    session = sessions.get_or_create(key)
    return {
        "messages": session.messages,
        "metadata": session.metadata,
        "last_consolidated": session.last_consolidated,
        "created_at": session.created_at,
        "history": session.get_history(),
    }


def keys(sessions: SessionManager) -> list[str]:
    return sorted(row["key"] for row in sessions.list_sessions())


def equal(source: str, exported: str) -> None:
    theirs, ours = manager(source), manager(exported)
    assert keys(theirs) == keys(ours), (keys(theirs), keys(ours))
    for key in keys(theirs):
        one, other = seen(theirs, key), seen(ours, key)
        for field in one:
            assert one[field] == other[field], (key, field)
    print(f"{len(keys(theirs))} sessions: equal messages, metadata, history and last_consolidated")


def continued(source: str, exported: str, key: str, said: str) -> None:
    one, other = seen(manager(source), key), seen(manager(exported), key)
    assert other["messages"][: len(one["messages"])] == one["messages"], "earlier messages changed"
    assert other["last_consolidated"] == one["last_consolidated"], "last_consolidated changed"
    added = other["messages"][len(one["messages"]) :]
    assert [message["role"] for message in added] == ["user", "assistant"], added
    assert added[0]["content"] == said and other["history"][-2]["content"] == said, added
    print(f"{key}: goes on with {len(added)} messages")


if __name__ == "__main__":
    {"equal": equal, "continued": continued}[sys.argv[1]](*sys.argv[2:])

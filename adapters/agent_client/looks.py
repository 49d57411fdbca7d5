"""Requests that read a run as the Agent Client Protocol shows it."""

from collections.abc import Sequence

from babelgate.adapters.agent_client.carries import VERSION
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest


def looks(target: LookTarget) -> Sequence[Look]:
    """Return one request for the console, which reads the updates that repeat the session of a run."""
    path = f"/agent-client/{target.task.agent}/sessions/{target.task.thread_id}"
    return (Look(version=VERSION, title="Agent Client Protocol session", request=ReadRequest(path=path)),)

"""Requests that read a run over ACP. What ACP calls a run is a task of the gateway."""

from collections.abc import Sequence

from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest


def looks(target: LookTarget) -> Sequence[Look]:
    """Return two requests: one for the run, and one for the list of its events."""
    path = f"/acp/runs/{target.task.task_id}"
    return (
        Look(version=VERSION, title="ACP run", request=ReadRequest(path=path)),
        Look(version=VERSION, title="ACP events", form="list", request=ReadRequest(path=f"{path}/events")),
    )

"""Requests with which the console reads one run over AG-UI."""

from collections.abc import Sequence
from urllib.parse import quote

from babelgate.adapters.ag_ui.carries import VERSION
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest


def looks(target: LookTarget) -> Sequence[Look]:
    """Return the request with which the console reads a run over AG-UI: its event stream, from the first event."""
    path = f"/ag-ui/{quote(target.task.agent, safe='')}/connect"
    body = {"threadId": target.thread.thread_id, "runId": target.run.run_id, "protocolVersion": VERSION, "after": ""}
    request = ReadRequest(method="POST", path=path, headers={"Content-Type": "application/json"}, body=body)
    return (Look(version=VERSION, title="AG-UI events", form="stream", request=request),)

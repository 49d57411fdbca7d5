"""Requests that read a task over A2A, by JSON-RPC."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.kit.extension import START_HEADER

_METHODS: Final = {"0.3": ("tasks/get", "tasks/resubscribe"), "1.0": ("GetTask", "SubscribeToTask")}


def looks(target: LookTarget) -> Sequence[Look]:
    """Return two requests for each version: one for the task, and one for its stream. A header of the gateway makes the
    stream begin with the first event; without it, a task that has ended has no stream."""
    found: list[Look] = []
    for version, (get, subscribe) in _METHODS.items():
        title, headers = f"A2A {version}", {"Content-Type": "application/json", "A2A-Version": version}
        stream_headers = {**headers, "Accept": "text/event-stream", START_HEADER: "0"}
        task, stream = _request(target, get, headers), _request(target, subscribe, stream_headers)
        found.append(Look(version=version, title=f"{title} {get}", request=task))
        found.append(Look(version=version, title=f"{title} {subscribe}", form="stream", request=stream))
    return found


def _request(target: LookTarget, method: str, headers: Mapping[str, str]) -> ReadRequest:
    return ReadRequest(
        method="POST",
        path=f"/a2a/{quote(target.task.agent, safe='')}",
        headers=headers,
        body={"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": target.task.task_id}},
    )

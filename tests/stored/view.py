"""Views of a database in the public APIs: requests that change nothing, and their answers."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.stored.drive import thread_id

DELETED: Final = thread_id(5)
_REPLACEMENT_URL: Final = "http://gateway.example"
"""Replacement for the URL of the gateway, whose port changes with each start."""
Wire = dict[str, Any]


class Task(NamedTuple):
    thread_id: str
    task_id: str
    agent: str
    protocol: str
    """Protocol of its caller."""
    runs: tuple[str, ...]


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None
    version: str | None = None
    """Version of A2A. None for other protocols."""

    @property
    def protocol(self) -> str:
        first = self.path.split("/")[1]
        return {"a2a": "a2a", "acp": "acp", "agent": "aief"}.get(first, "langgraph")

    def __str__(self) -> str:
        words = [self.method, self.path, *([f"A2A {self.version}"] if self.version else [])]
        return " ".join(words) + (f" {json.dumps(self.body)}" if self.body is not None else "")


def tasks_of(database: Path) -> list[Task]:
    """Return all tasks of a database in the order of their creation."""
    runs_by_task: dict[tuple[str, str, str, str], list[str]] = {}
    sql = """
        SELECT thread.thread_id, task.task_id, task.agent, task.body, run.run_id
        FROM task JOIN thread ON thread.pk = task.thread_pk LEFT JOIN run ON run.task_id = task.task_id
        ORDER BY task.created_at, task.task_id, run.created_at, run.run_id
    """
    with closing(sqlite3.connect(database)) as connection:
        for thread_id, task_id, agent, body, run_id in connection.execute(sql):
            protocol = json.loads(body).get("protocol", "")
            runs_by_task.setdefault((thread_id, task_id, agent, protocol), []).extend([run_id] if run_id else [])
    return [Task(*task, tuple(runs)) for task, runs in runs_by_task.items()]


def requests_of(tasks: Iterable[Task], *, langgraph: bool, aief: bool) -> Iterator[Request]:
    """Yield the requests for all views of these tasks.

    Long views are requested only in the protocol of the task's caller. Those of the first task of each agent are
    requested in all protocols. `langgraph` and `aief` = the release that wrote the database had them.
    """
    tasks = list(tasks)
    firsts = list({task.agent: task for task in reversed(tasks)}.values())

    def whole(protocol: str) -> list[Task]:
        return [task for task in tasks if task.protocol == protocol or task in firsts]

    for task in tasks:
        yield from _a2a(task)
        yield Request("GET", f"/acp/runs/{task.task_id}")
    for task in firsts:
        yield _rpc(task.agent, "ListTasks", {"pageSize": 100, "historyLength": 0})
        yield Request("GET", f"/a2a/{task.agent}/v1/tasks/{task.task_id}", version="0.3")
    for task in whole("acp"):
        yield Request("GET", f"/acp/runs/{task.task_id}/events")
        yield Request("GET", f"/acp/session/{task.thread_id}")
    for task in whole("aief") if aief else ():
        yield from _aief(task.thread_id, task.agent)
    if langgraph:
        yield from _langgraph_lists()
        for thread in dict.fromkeys(task.thread_id for task in whole("langgraph")):
            yield from _langgraph(thread)
        for task in whole("langgraph"):
            for run in task.runs:
                yield from _langgraph_run(task.thread_id, run)


def _rpc(agent: str, method: str, params: Wire, version: str = "1.0") -> Request:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Request("POST", f"/a2a/{agent}", body, version)


def _a2a(task: Task) -> Iterator[Request]:
    one = {"id": task.task_id}
    yield _rpc(task.agent, "GetTask", one)
    yield _rpc(task.agent, "tasks/get", one, "0.3")
    yield _rpc(task.agent, "ListTaskPushNotificationConfigs", {"taskId": task.task_id})
    yield _rpc(task.agent, "tasks/pushNotificationConfig/list", one, "0.3")


def _aief(thread: str, agent: str) -> Iterator[Request]:
    tasks = f"/agent/{agent}/ap/v1/agent/tasks"
    for path in ("", "/steps?page_size=100", "/artifacts?page_size=100"):
        yield Request("GET", f"{tasks}/{thread}{path}")


def _langgraph_lists() -> Iterator[Request]:
    yield Request(
        "POST", "/threads/search", {"limit": 100, "select": ["thread_id", "status", "updated_at", "metadata"]}
    )
    yield Request("POST", "/threads/search", {"metadata": {"owner": "me"}})
    yield Request("POST", "/threads/count", {})
    yield Request("GET", f"/threads/{DELETED}")
    yield Request("POST", "/store/items/search", {"namespace_prefix": ["users"]})
    yield Request("POST", "/store/namespaces", {"prefix": []})
    yield Request("GET", "/store/items?namespace=users.u0&key=profile")
    yield Request("POST", "/agent-protocol/threads/search", {"limit": 2})
    yield Request("POST", "/agent-protocol/runs/search", {"limit": 5})


def _langgraph(thread: str) -> Iterator[Request]:
    for path in ("", "/state", "/runs?limit=100"):
        yield Request("GET", f"/threads/{thread}{path}")
    yield Request("POST", f"/threads/{thread}/history", {"limit": 100})
    yield Request("GET", f"/agent-protocol/threads/{thread}/history?limit=2")


def _langgraph_run(thread: str, run: str) -> Iterator[Request]:
    yield Request("GET", f"/threads/{thread}/runs/{run}")
    modes = "&".join(f"stream_mode={mode}" for mode in ("values", "updates", "messages", "custom"))
    yield Request("GET", f"/threads/{thread}/runs/{run}/stream?{modes}&last_event_id=-1")
    yield Request("GET", f"/agent-protocol/runs/{run}/wait")


def looks(url: str, requests: Iterable[Request]) -> Iterator[tuple[Request, Any]]:
    """Yield each request with the status and content of its answer. Listed files are requested, too."""
    with httpx.Client(base_url=url, timeout=30) as http:
        for request in requests:
            yield request, _answer(http, url, request)
            if request.path.endswith("/artifacts?page_size=100"):
                listed: list[Wire] = http.get(request.path).json().get("artifacts", [])
                for each in listed:
                    one = Request("GET", f"{request.path.partition('?')[0]}/{each['artifact_id']}")
                    yield one, _answer(http, url, one)


def _answer(http: httpx.Client, url: str, request: Request) -> Any:
    headers = {"A2A-Version": request.version} if request.version else {}
    if "/stream?" in request.path:
        headers["Last-Event-ID"] = "-1"
    answer = http.request(request.method, request.path, json=request.body, headers=headers)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    text = answer.content.decode("utf-8", "backslashreplace").replace(url, _REPLACEMENT_URL)
    if kind == "application/json":
        return {"status": answer.status_code, "json": json.loads(text)}
    if kind == "text/event-stream":
        return {"status": answer.status_code, "events": [_event(frame) for frame in text.split("\n\n") if frame]}
    return {"status": answer.status_code, "type": kind, "text": text}


def _event(frame: str) -> Any:
    """Return the fields of an event. JSON in `data` is decoded, so that it is compared as JSON."""
    fields: dict[str, Any] = {}
    for line in frame.replace("\r", "").split("\n"):
        name, _, value = line.partition(":")
        fields[name] = json.loads(value) if name == "data" and value.strip().startswith(("{", "[")) else value.strip()
    return fields

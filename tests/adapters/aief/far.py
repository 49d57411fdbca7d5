"""Another AIEF server, on a socket. A test prepares the steps of its tasks, and the responses to other calls."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.bridge import read_body
from tests.serving import listen, serving

TASKS = "/ap/v1/agent/tasks"
LOST: dict[str, Any] = {"additional_input": {}}
NO_TASKS: dict[str, Any] = {"tasks": [], "pagination": {}}

Answer = tuple[int, Any]
"""Status, and JSON or bytes. Status 0 breaks the connection, and -1 never responds."""


def step(output: str | None = None, *, last: bool = True, **more: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "task_id": "t",
        "step_id": "s",
        "status": "completed",
        "artifacts": [],
        "additional_input": {},
    }
    return {**defaults, "output": output, "is_last": last, **more}


@dataclass
class Far:
    url: str = ""
    steps: list[Any] = field(default_factory=lambda: [step("Hello")])
    """Steps of each task, or Answers. After the last one the response is the 500 of the Python SDK."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of each file, by the id of its artifact."""
    listed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Entries in the list of artifacts, the same for every task."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """Responses to calls such as `POST /ap/v1/…`, instead of the default ones."""
    keeps: bool = True
    """True if the server keeps the members of a created task, such as its additional input."""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    """Calls with their queries, headers and bodies."""
    stepping: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller disconnects during its step."""
    _step_counts: dict[str, int] = field(default_factory=dict[str, int])
    """Numbers of executed steps, by task."""

    def calls(self, method: str = "") -> list[str]:
        return [call.partition("?")[0] for call, _, _ in self.requests if call.startswith(method)]

    def body(self, call: str) -> Any:
        """Return the body of the last such call."""
        return next(body for name, _, body in reversed(self.requests) if name == call)

    def bodies(self, call: str) -> list[Any]:
        return [body for name, _, body in self.requests if name == call]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw = await read_body(receive)
        path: str = scope["raw_path"].decode().partition("?")[0]
        call = f"{scope['method']} {path}"
        query = scope["query_string"].decode()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        is_json = headers.get("content-type", "").startswith("application/json")
        self.requests.append((f"{call}?{query}" if query else call, headers, json.loads(raw) if is_json else raw))
        status, answer = self.answers.get(call) or self._answer(scope["method"], path, self.requests[-1][2])
        if status == -1:
            self.stepping.set()
            await receive()
            self.left.set()
        if status <= 0:  # without the end of the body, which cuts the connection
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            return
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = b"text/plain" if isinstance(answer, bytes) else b"application/json"
        head = [(b"content-type", kind), (b"location", b"http://127.0.0.1:9/")]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, path: str, body: Any) -> Answer:
        parts = path.removeprefix(TASKS).strip("/").split("/")
        match method, parts:
            case "POST", [""]:
                task_id = f"task-{len(self._step_counts) + 1}"
                self._step_counts[task_id] = 0
                task: dict[str, Any] = {"task_id": task_id, "artifacts": []}
                task |= body if self.keeps else LOST
                return 200, task
            case "GET", [""]:
                return 200, NO_TASKS
            case "POST", [task_id, "steps"] if task_id in self._step_counts:
                self._step_counts[task_id] += 1
                if self._step_counts[task_id] > len(self.steps):
                    return 500, b"Internal Server Error"
                found = self.steps[self._step_counts[task_id] - 1]
                return found if isinstance(found, tuple) else (200, found)  # pyright: ignore[reportUnknownVariableType]
            case "GET", [task_id, "steps"]:
                count = min(self._step_counts.get(task_id, 0), len(self.steps))
                done: list[Any] = [{"step_id": f"s{number}", "status": "completed"} for number in range(count)]
                return 200, {"steps": done, "pagination": {"total_items": count, "total_pages": 0}}
            case "POST", [_, "artifacts"]:
                upload = {"artifact_id": f"up-{len(self.calls('POST'))}", "agent_created": False, "file_name": "up"}
                self.listed.append(upload)
                return 200, upload
            case "GET", [_, "artifacts"]:
                return 200, {"artifacts": self.listed, "pagination": {"total_items": len(self.listed)}}
            case "GET", [_, "artifacts", artifact_id] if artifact_id in self.files:
                return 200, self.files[artifact_id]
            case _:
                return 404, {"message": f"{path} not found."}


@asynccontextmanager
async def far_server() -> AsyncGenerator[Far]:
    listener = listen()
    far = Far(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    async with serving(far, listener):
        yield far

"""Every position where a request may contain an id: in the paths of all routes, in parameters and in bodies."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from babelgate.canonical.value import Json, JsonObject
from tests.gateway.owning import STEPS, OwnerIds, acp_run, chat, message
from tests.gateway.route import ADMIN_SLOT, AGENT_SLOT, FREE_SLOT, PAGE_SLOT, ROUTES, Route
from tests.gateway.siege import body_for
from tests.gateway.valid import CALL, MCP, RPC, UPLOAD, V1, VALID, command, rpc

NO_ID: Final = AGENT_SLOT | FREE_SLOT | ADMIN_SLOT | {PAGE_SLOT}
"""Parameters of paths that do not identify a resource of an owner."""

Request = tuple[str, str, dict[str, Any]]
"""Method, path and further arguments of httpx's `request`."""


@dataclass(frozen=True)
class Position:
    name: str
    ask: Callable[[OwnerIds], Request]
    """Function that returns the request with these ids."""
    alike: bool = False
    """True if the owner of the ids gets the same answer as another owner."""

    def __str__(self) -> str:
        return self.name


def _by_path() -> list[Position]:
    positions: list[Position] = []
    for route in ROUTES:
        if not set(route.slots) - NO_ID:
            continue

        def ask(ids: OwnerIds, route: Route = route) -> Request:
            slots = ids.slots(route.protocol)
            if route.path.endswith(":subscribe"):  # the stream of the owner's waiting task would not end
                slots |= {"agent": "echo", "task_id": ids.ended}
            if "blob" in route.slots:
                slots |= {"agent": "files", "agent_id": "files", "model": "files"}
            kwargs: dict[str, Any] = {"headers": V1 if route.words == "rest" else {}}
            if str(route) in VALID:
                kwargs["json"] = body_for(route, slots)
            if route.method != "POST" and route.path.endswith("/{thread_id}/stream"):  # the owner's would not end
                return "HEAD", route.at(slots), kwargs
            if str(route) == UPLOAD:
                kwargs["files"] = {"file": ("a.txt", b"Bob")}
            return route.method, route.at(slots), kwargs

        positions.append(Position(str(route), ask, alike=route.waits))
    return positions


def _by_method() -> list[Position]:
    positions: list[Position] = []
    for each in RPC:
        if not {"$open", "$task"} & {v for v in each.valid.values() if isinstance(v, str)}:
            continue

        def ask(ids: OwnerIds, name: str = each.name, valid: JsonObject = each.valid) -> Request:
            tasks = {"$open": ids.task_id, "$task": ids.ended}
            params: JsonObject = {k: tasks.get(str(v), v) for k, v in valid.items()}
            agent = "echo" if "$task" in valid.values() else "ask"
            headers = {} if "/" in name else V1
            return "POST", f"/a2a/{agent}", {"json": rpc(name, params), "headers": headers}

        positions.append(Position(each.name, ask))
    return positions


def _send(**fields: str) -> Callable[[OwnerIds], Request]:
    """Return a function that makes a request from ids. The request sends a message whose members `fields` are the ids
    of these names."""

    def body(ids: OwnerIds) -> Json:
        return {"message": message(**{name: getattr(ids, value) for name, value in fields.items()})}

    return _call("POST", "/a2a/ask/message:send", body, V1)


def _call(
    method: str, path: str, body: Callable[[OwnerIds], Json] | None = None, headers: Mapping[str, str] | None = None
) -> Callable[[OwnerIds], Request]:
    """Return a function that makes a request from ids: the ids are in the path, in its query or in the body."""

    def ask(ids: OwnerIds) -> Request:
        at = re.sub(r"{(\w+)}", lambda match: getattr(ids, match[1]), path)
        kwargs: dict[str, Any] = {} if body is None else {"json": body(ids)}
        return method, at, kwargs if headers is None else {**kwargs, "headers": headers}

    return ask


def _import(host: str) -> Callable[[OwnerIds], Request]:
    """Return a function that makes a request from ids. Its session descriptor names a resource of the gateway
    itself."""

    def body(ids: OwnerIds) -> Json:
        history = [f"{host}/acp/resources/{ids.resource_id}"]
        return acp_run("echo", "hi", session={"id": "0b5b3b0a-3a55-4a5e-9a4e-1f0e0a5ad001", "history": history})

    return _call("POST", "/acp/runs", body)


_PARAMS: Final[Mapping[str, Callable[[OwnerIds], JsonObject]]] = {
    "agent.getTree": lambda ids: {"run_id": ids.asking_run},
    "state.listCheckpoints": lambda ids: {"before": ids.checkpoint_id},
    "state.fork": lambda ids: {"checkpoint_id": ids.checkpoint_id, "input": "Bob"},
    "input.respond": lambda ids: {"namespace": [], "interrupt_id": ids.question, "response": "Bob"},
    "input.respond, several": lambda ids: {"responses": [{"interrupt_id": ids.question, "response": "Bob"}]},
}


def _command(prefix: str, method: str, params: Callable[[OwnerIds], JsonObject]) -> Callable[[OwnerIds], Request]:
    return _call("POST", f"{prefix}/threads/{{thread_id}}/commands", lambda ids: command(method, params(ids)))


def _of_langgraph() -> Iterator[Position]:
    """Yield the positions in bodies of LangGraph, at the root and in the Agent Protocol's dialect.

    Ids of Alice's checkpoints and runs are unknown also on Bob's own thread.
    """
    body_of_bob = {"assistant_id": "echo", "input": "Bob"}
    bodies: Mapping[str, tuple[str, Callable[[OwnerIds], Json]]] = {
        "the assistant of a run": (
            "POST /threads/{later_thread}/runs",
            lambda ids: {"assistant_id": ids.assistant_id, "input": "Bob", "multitask_strategy": "reject"},
        ),
        "assistant_id of a stateless run": (
            "POST /runs/wait",
            lambda ids: {**body_of_bob, "assistant_id": ids.assistant_id},
        ),
        "ids of a search": ("POST /threads/search", lambda ids: {"ids": [ids.thread_id]}),
        "thread_ids of a prune": ("POST /threads/prune", lambda ids: {"thread_ids": [ids.thread_id]}),
        "thread_id of a search of runs": ("POST /runs/search", lambda ids: {"thread_id": ids.thread_id}),
        "run_ids of a cancel": (
            "POST /runs/cancel",
            lambda ids: {"thread_id": ids.later_thread, "run_ids": [ids.later]},
        ),
        "thread_id of a run": ("POST /runs/wait", lambda ids: {**body_of_bob, "thread_id": ids.thread_id}),
        "thread_id of a stream": ("POST /runs/stream", lambda ids: {**body_of_bob, "thread_id": ids.thread_id}),
        "thread_id in a batch": ("POST /runs/batch", lambda ids: [{**body_of_bob, "thread_id": ids.thread_id}]),
        "thread_id of an answer": (
            "POST /runs/wait",
            lambda ids: {"assistant_id": "ask", "thread_id": ids.thread_id, "command": {"resume": "Bob"}},
        ),
        "an interrupt that is answered": (
            "POST /threads/{thread_id}/runs/wait",
            lambda ids: {"assistant_id": "ask", "command": {"resume": {ids.question: "Bob"}}},
        ),
        "the checkpoint of a run": (
            "POST /threads/{thread_id}/runs/wait",
            lambda ids: {**body_of_bob, "checkpoint": {"checkpoint_id": ids.checkpoint_id}},
        ),
        "the checkpoint of a state": (
            "POST /threads/{thread_id}/state/checkpoint",
            lambda ids: {"checkpoint": {"checkpoint_id": ids.checkpoint_id}},
        ),
        "the checkpoint of an update": (
            "POST /threads/{thread_id}/state",
            lambda ids: {"values": {"a": 1}, "checkpoint_id": ids.checkpoint_id},
        ),
        "the checkpoint before a history": (
            "POST /threads/{thread_id}/history",
            lambda ids: {"before": ids.checkpoint_id},
        ),
        "the namespace of an item that is deleted": (
            "DELETE /store/items",
            lambda ids: {"namespace": [ids.label, "notes"], "key": "k"},
        ),
        "the namespace of a search": ("POST /store/items/search", lambda ids: {"namespace_prefix": [ids.label]}),
        "the prefix of namespaces": ("POST /store/namespaces", lambda ids: {"prefix": [ids.label]}),
    }
    for prefix in ("", "/agent-protocol"):
        for name, (route, body) in bodies.items():
            method, _, path = route.partition(" ")
            # LangGraph answers 204 even if the item does not exist.
            yield Position(
                f"{name}{prefix}", _call(method, prefix + path, body), alike=not prefix and method == "DELETE"
            )
        for name, params in _PARAMS.items():
            yield Position(f"{name} as a command{prefix}", _command(prefix, name.partition(",")[0], params))
        path = f"{prefix}/store/items?key=k&namespace={{label}}.notes"
        yield Position(f"the namespace of an item{prefix}", _call("GET", path))
    for method in ("GET", "DELETE"):
        yield Position(f"an item by its path, {method}", _call(method, "/store/{label}.notes/k"))
    replay = _call("GET", "/threads/{thread_id}/runs/{asking_run}/stream", headers={"Last-Event-ID": "-1"})
    yield Position("the replay of a run", replay)
    yield Position("a task of the other origin", _call("GET", f"/agent/echo{STEPS}/{{steps}}/steps"))


def _of_runtime() -> Iterator[Position]:
    """Yield the positions in bodies of the minimal runtime."""
    bodies: Mapping[str, tuple[str, Callable[[OwnerIds], Json]]] = {
        "task_id of an answer": ("/threads/{thread_id}/resume", lambda ids: {"task_id": ids.task_id, "input": 1}),
        "run_id of an answer": ("/threads/{thread_id}/resume", lambda ids: {"run_id": ids.asking_run, "input": 1}),
        "checkpoint_id of a run": (
            "/threads/{thread_id}/runs",
            lambda ids: {"assistant_id": "echo", "input": "Bob", "checkpoint_id": ids.checkpoint_id},
        ),
        "a file of an input": ("/runs", _with_file),
    }
    for name, (path, body) in bodies.items():
        yield Position(f"{name}, of the minimal runtime", _call("POST", f"/v1{path}", body))


def _with_file(ids: OwnerIds) -> Json:
    file: JsonObject = {"kind": "file", "blob": ids.blob}
    return {"assistant_id": "echo", "input": [{"role": "user", "parts": [file]}]}


def _modern(method: str, name: str, params: JsonObject, extensions: JsonObject | None = None) -> Request:
    """Return a request of MCP's revision of 2026-07-28."""
    prefix = "io.modelcontextprotocol/"
    capabilities = {"elicitation": {}, "extensions": extensions or {}}
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": capabilities}
    headers = {**MCP, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return "POST", "/mcp", {"json": body, "headers": headers}


def _called_again(ids: OwnerIds) -> Request:
    return _modern("tools/call", "ask", {"name": "ask", "arguments": {"message": "hi"}, "requestState": ids.mcp_state})


def _task(method: str, **params: Json) -> Callable[[OwnerIds], Request]:
    def ask(ids: OwnerIds) -> Request:
        extensions: JsonObject = {"io.modelcontextprotocol/tasks": {}}
        return _modern(method, ids.task_id, {"taskId": ids.task_id, **params}, extensions)

    return ask


_OF_A2A_AND_ACP: Final[Mapping[str, Callable[[OwnerIds], Request]]] = {
    "taskId of a message": _send(taskId="task_id"),
    "taskId and contextId of a message": _send(taskId="task_id", contextId="session_id"),
    "the replay of an ended task": _call(
        "GET", "/a2a/echo/tasks/{ended}:subscribe", headers={**V1, "Babelgate-From": "0"}
    ),
    "the stream of a run's events": _call("GET", "/acp/runs/{ended}/events", headers={"Accept": "text/event-stream"}),
    "contextId of a list": _call("GET", "/a2a/files/tasks?contextId={context_id}", headers=V1),
    "contextId of a list, a thread": _call("GET", "/a2a/ask/tasks?contextId={session_id}", headers=V1),
    "contextId of a list of 0.3": _call("GET", "/a2a/files/v1/tasks?contextId={context_id}"),
    "contextId of ListTasks": _call(
        "POST", "/a2a/files", lambda ids: rpc("ListTasks", {"contextId": ids.context_id}), V1
    ),
}


def _result(ids: OwnerIds) -> Json:
    return chat("ask", {"role": "tool", "tool_call_id": ids.call_id, "content": "Bob"})


def _output(ids: OwnerIds) -> Json:
    result: JsonObject = {"type": "function_call_output", "call_id": ids.output_id, "output": "Bob"}
    return {"model": "ask", "input": [result]}


def _response(name: str, value: str) -> Callable[[OwnerIds], Request]:
    """Return a function that makes a request from ids: a request for a response, whose member `name` is the id
    `value`."""
    return _call("POST", "/v1/responses", lambda ids: {"model": "echo", "input": "hi", name: getattr(ids, value)})


def _resumed(ids: OwnerIds) -> Json:
    arguments: JsonObject = {"run_id": ids.mcp_run, "answers": {ids.question: "Bob"}}
    return {**CALL, "params": {"name": "resume_run", "arguments": arguments}}


_OF_OPENAI_AND_MCP: Final[Mapping[str, Callable[[OwnerIds], Request]]] = {
    "tool_call_id of a result": _call("POST", "/v1/chat/completions", _result),
    "the completion before a page": _call("GET", "/v1/chat/completions?after={completion_id}"),
    "call_id of an output": _call("POST", "/v1/responses", _output),
    "the response before another": _response("previous_response_id", "response_id"),
    "the conversation of a response": _response("conversation", "conversation_id"),
    "run_id of a call that goes on": _call("POST", "/mcp", _resumed, MCP),
    "requestState of a call": _called_again,
    "taskId of tasks/get": _task("tasks/get"),
    "taskId of tasks/update": _task("tasks/update", inputResponses={}),
    "taskId of tasks/cancel": _task("tasks/cancel"),
    "history of a session": _import("{url}"),
}

POSITIONS: Final = (
    *_by_path(),
    *_by_method(),
    *(Position(name, ask) for name, ask in _OF_A2A_AND_ACP.items()),
    *_of_langgraph(),
    *_of_runtime(),
    *(Position(name, ask) for name, ask in _OF_OPENAI_AND_MCP.items()),
    # The gateway calls itself at this URL, without a key.
    Position("history of a session, by another name of the host", _import("{localhost}"), alike=True),
)

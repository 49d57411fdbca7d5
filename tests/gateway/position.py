"""Every position where a request may name something: in the paths of all routes, in parameters, in bodies."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from babelgate.canonical.value import Json, JsonObject
from tests.gateway.owning import STEPS, Made, acp_run, chat, message
from tests.gateway.route import AGENT_SLOT, FREE_SLOT, ROUTES, Route
from tests.gateway.siege import body_for
from tests.gateway.valid import CALL, MCP, RPC, UPLOAD, V1, VALID, command, rpc

NO_ID: Final = AGENT_SLOT | FREE_SLOT
"""Parameters that hold nothing of any owner's."""

Request = tuple[str, str, dict[str, Any]]
"""(method, path, what else httpx takes)."""


@dataclass(frozen=True)
class Position:
    name: str
    ask: Callable[[Made], Request]
    """(method, path, what else httpx takes) with these ids."""
    alike: bool = False
    """To whom they belong the answer is the same too: nothing there tells."""

    def __str__(self) -> str:
        return self.name


def _by_path() -> list[Position]:
    found: list[Position] = []
    for route in ROUTES:
        if not set(route.slots) - NO_ID:
            continue

        def ask(made: Made, route: Route = route) -> Request:
            slots = made.slots(route.protocol)
            if route.path.endswith(":subscribe"):  # of the owner's waiting task it would not end
                slots |= {"agent": "echo", "task_id": made.ended}
            if "blob" in route.slots:
                slots |= {"agent": "files", "agent_id": "files", "model": "files"}
            kwargs: dict[str, Any] = {"headers": V1 if route.words == "rest" else {}}
            if str(route) in VALID:
                kwargs["json"] = body_for(route, slots)
            if route.method != "POST" and route.path.endswith("/{thread_id}/stream"):  # of the owner's it would not end
                return "HEAD", route.at(slots), kwargs
            if str(route) == UPLOAD:
                kwargs["files"] = {"file": ("a.txt", b"Bob")}
            return route.method, route.at(slots), kwargs

        found.append(Position(str(route), ask, alike=route.waits))
    return found


def _by_method() -> list[Position]:
    found: list[Position] = []
    for each in RPC:
        if not {"$open", "$task"} & {v for v in each.valid.values() if isinstance(v, str)}:
            continue

        def ask(made: Made, name: str = each.name, valid: JsonObject = each.valid) -> Request:
            ids = {"$open": made.task_id, "$task": made.ended}
            params: JsonObject = {k: ids.get(str(v), v) for k, v in valid.items()}
            agent = "echo" if "$task" in valid.values() else "ask"
            headers = {} if "/" in name else V1
            return "POST", f"/a2a/{agent}", {"json": rpc(name, params), "headers": headers}

        found.append(Position(each.name, ask))
    return found


def _send(**fields: str) -> Callable[[Made], Request]:
    """A message with some of the ids in these members."""

    def body(made: Made) -> Json:
        return {"message": message(**{name: getattr(made, value) for name, value in fields.items()})}

    return _call("POST", "/a2a/ask/message:send", body, V1)


def _call(
    method: str, path: str, body: Callable[[Made], Json] | None = None, headers: Mapping[str, str] | None = None
) -> Callable[[Made], Request]:
    """A call with ids in the path and its query, or in the body."""

    def ask(made: Made) -> Request:
        at = re.sub(r"{(\w+)}", lambda match: getattr(made, match[1]), path)
        kwargs: dict[str, Any] = {} if body is None else {"json": body(made)}
        return method, at, kwargs if headers is None else {**kwargs, "headers": headers}

    return ask


def _import(host: str) -> Callable[[Made], Request]:
    """A session descriptor that names one of the gateway's own resources."""

    def body(made: Made) -> Json:
        history = [f"{host}/acp/resources/{made.resource_id}"]
        return acp_run("echo", "hi", session={"id": "0b5b3b0a-3a55-4a5e-9a4e-1f0e0a5ad001", "history": history})

    return _call("POST", "/acp/runs", body)


_PARAMS: Final[Mapping[str, Callable[[Made], JsonObject]]] = {
    "agent.getTree": lambda made: {"run_id": made.asked},
    "state.listCheckpoints": lambda made: {"before": made.checkpoint_id},
    "state.fork": lambda made: {"checkpoint_id": made.checkpoint_id, "input": "Bob"},
    "input.respond": lambda made: {"namespace": [], "interrupt_id": made.question, "response": "Bob"},
    "input.respond, several": lambda made: {"responses": [{"interrupt_id": made.question, "response": "Bob"}]},
}


def _command(prefix: str, method: str, params: Callable[[Made], JsonObject]) -> Callable[[Made], Request]:
    return _call("POST", f"{prefix}/threads/{{thread_id}}/commands", lambda made: command(method, params(made)))


def _of_langgraph() -> Iterator[Position]:
    """Where ids are in bodies, at the root and in the Agent Protocol's dialect. Of a thread that is Bob's own, neither
    an id of Alice's checkpoint nor one of her run is known."""
    said = {"assistant_id": "echo", "input": "Bob"}
    bodies: Mapping[str, tuple[str, Callable[[Made], Json]]] = {
        "the assistant of a run": (
            "POST /threads/{later_thread}/runs",
            lambda made: {"assistant_id": made.assistant_id, "input": "Bob", "multitask_strategy": "reject"},
        ),
        "assistant_id of a stateless run": (
            "POST /runs/wait",
            lambda made: {**said, "assistant_id": made.assistant_id},
        ),
        "ids of a search": ("POST /threads/search", lambda made: {"ids": [made.thread_id]}),
        "thread_ids of a prune": ("POST /threads/prune", lambda made: {"thread_ids": [made.thread_id]}),
        "thread_id of a search of runs": ("POST /runs/search", lambda made: {"thread_id": made.thread_id}),
        "run_ids of a cancel": (
            "POST /runs/cancel",
            lambda made: {"thread_id": made.later_thread, "run_ids": [made.later]},
        ),
        "thread_id of a run": ("POST /runs/wait", lambda made: {**said, "thread_id": made.thread_id}),
        "thread_id of a stream": ("POST /runs/stream", lambda made: {**said, "thread_id": made.thread_id}),
        "thread_id in a batch": ("POST /runs/batch", lambda made: [{**said, "thread_id": made.thread_id}]),
        "thread_id of an answer": (
            "POST /runs/wait",
            lambda made: {"assistant_id": "ask", "thread_id": made.thread_id, "command": {"resume": "Bob"}},
        ),
        "an interrupt that is answered": (
            "POST /threads/{thread_id}/runs/wait",
            lambda made: {"assistant_id": "ask", "command": {"resume": {made.question: "Bob"}}},
        ),
        "the checkpoint of a run": (
            "POST /threads/{thread_id}/runs/wait",
            lambda made: {**said, "checkpoint": {"checkpoint_id": made.checkpoint_id}},
        ),
        "the checkpoint of a state": (
            "POST /threads/{thread_id}/state/checkpoint",
            lambda made: {"checkpoint": {"checkpoint_id": made.checkpoint_id}},
        ),
        "the checkpoint of an update": (
            "POST /threads/{thread_id}/state",
            lambda made: {"values": {"a": 1}, "checkpoint_id": made.checkpoint_id},
        ),
        "the checkpoint before a history": (
            "POST /threads/{thread_id}/history",
            lambda made: {"before": made.checkpoint_id},
        ),
        "the namespace of an item that is deleted": (
            "DELETE /store/items",
            lambda made: {"namespace": [made.label, "notes"], "key": "k"},
        ),
        "the namespace of a search": ("POST /store/items/search", lambda made: {"namespace_prefix": [made.label]}),
        "the prefix of namespaces": ("POST /store/namespaces", lambda made: {"prefix": [made.label]}),
    }
    for prefix in ("", "/agent-protocol"):
        for name, (route, body) in bodies.items():
            method, _, path = route.partition(" ")
            # LangGraph answers 204 whether there was such an item or not.
            yield Position(
                f"{name}{prefix}", _call(method, prefix + path, body), alike=not prefix and method == "DELETE"
            )
        for name, params in _PARAMS.items():
            yield Position(f"{name} as a command{prefix}", _command(prefix, name.partition(",")[0], params))
        path = f"{prefix}/store/items?key=k&namespace={{label}}.notes"
        yield Position(f"the namespace of an item{prefix}", _call("GET", path))
    for method in ("GET", "DELETE"):
        yield Position(f"an item by its path, {method}", _call(method, "/store/{label}.notes/k"))
    replay = _call("GET", "/threads/{thread_id}/runs/{asked}/stream", headers={"Last-Event-ID": "-1"})
    yield Position("the replay of a run", replay)
    yield Position("a task of the other origin", _call("GET", f"/agent/echo{STEPS}/{{steps}}/steps"))


def _of_runtime() -> Iterator[Position]:
    """Where ids are in bodies."""
    bodies: Mapping[str, tuple[str, Callable[[Made], Json]]] = {
        "task_id of an answer": ("/threads/{thread_id}/resume", lambda made: {"task_id": made.task_id, "input": 1}),
        "run_id of an answer": ("/threads/{thread_id}/resume", lambda made: {"run_id": made.asked, "input": 1}),
        "checkpoint_id of a run": (
            "/threads/{thread_id}/runs",
            lambda made: {"assistant_id": "echo", "input": "Bob", "checkpoint_id": made.checkpoint_id},
        ),
        "a file of an input": ("/runs", _with_file),
    }
    for name, (path, body) in bodies.items():
        yield Position(f"{name}, of the minimal runtime", _call("POST", f"/v1{path}", body))


def _with_file(made: Made) -> Json:
    file: JsonObject = {"kind": "file", "blob": made.blob}
    return {"assistant_id": "echo", "input": [{"role": "user", "parts": [file]}]}


def _modern(method: str, name: str, params: JsonObject, extensions: JsonObject | None = None) -> Request:
    """As of 2026-07-28."""
    own = "io.modelcontextprotocol/"
    capabilities = {"elicitation": {}, "extensions": extensions or {}}
    meta = {f"{own}protocolVersion": "2026-07-28", f"{own}clientCapabilities": capabilities}
    headers = {**MCP, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return "POST", "/mcp", {"json": body, "headers": headers}


def _called_again(made: Made) -> Request:
    return _modern("tools/call", "ask", {"name": "ask", "arguments": {"message": "hi"}, "requestState": made.mcp_state})


def _task(method: str, **params: Json) -> Callable[[Made], Request]:
    def ask(made: Made) -> Request:
        extensions: JsonObject = {"io.modelcontextprotocol/tasks": {}}
        return _modern(method, made.task_id, {"taskId": made.task_id, **params}, extensions)

    return ask


_OF_A2A_AND_ACP: Final[Mapping[str, Callable[[Made], Request]]] = {
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
        "POST", "/a2a/files", lambda made: rpc("ListTasks", {"contextId": made.context_id}), V1
    ),
}


def _result(made: Made) -> Json:
    return chat("ask", {"role": "tool", "tool_call_id": made.call_id, "content": "Bob"})


def _output(made: Made) -> Json:
    result: JsonObject = {"type": "function_call_output", "call_id": made.output_id, "output": "Bob"}
    return {"model": "ask", "input": [result]}


def _response(name: str, value: str) -> Callable[[Made], Request]:
    """A response with one of the ids in this member."""
    return _call("POST", "/v1/responses", lambda made: {"model": "echo", "input": "hi", name: getattr(made, value)})


def _resumed(made: Made) -> Json:
    arguments: JsonObject = {"run_id": made.mcp_run, "answers": {made.question: "Bob"}}
    return {**CALL, "params": {"name": "resume_run", "arguments": arguments}}


_OF_OPENAI_AND_MCP: Final[Mapping[str, Callable[[Made], Request]]] = {
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
    # The gateway calls itself there, and it has no key.
    Position("history of a session, by another name of the host", _import("{localhost}"), alike=True),
)

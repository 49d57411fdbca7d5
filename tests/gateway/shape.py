"""Format of errors in each protocol, written from the protocols' documents and not from the adapters."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import httpx

from babelgate.gateway.runs.consents import CALLBACK
from tests.gateway.knowledge import knowledge
from tests.gateway.route import CHANGES, Words, is_waiting

MAX_ERROR: Final = 16_384
"""Maximum size of an error, in bytes. An error does not repeat the whole input of the caller."""

_LEAKS: Final = re.compile(r'Traceback|File "|\.py\b|<html|<!doctype|site-packages|pydantic|sqlalchemy|litestar', re.I)

_ACP_CODES: Final = {
    400: {"invalid_input"},
    401: {"invalid_input"},
    403: {"server_error", "invalid_input"},
    404: {"not_found"},
    405: {"server_error"},
    409: {"invalid_input"},
    413: {"invalid_input"},
    422: {"invalid_input"},
    429: {"server_error"},
}

_RPC_REASONS: Final = {
    -32700: {"PARSE_ERROR"},
    -32600: {"INVALID_REQUEST", "TOO_LARGE"},
    -32601: {"METHOD_NOT_FOUND", "NOT_FOUND"},
    -32602: {"INVALID_PARAMS"},
    -32000: {"UNAUTHENTICATED", "FORBIDDEN"},
    -32001: {"TASK_NOT_FOUND"},
    -32002: {"TASK_NOT_CANCELABLE"},
    -32004: {"UNSUPPORTED_OPERATION"},
    -32005: {"CONTENT_TYPE_NOT_SUPPORTED"},
    -32009: {"VERSION_NOT_SUPPORTED"},
    -32603: {"LIMITED"},
}
"""Reasons by code: A2A 1.0, 5.4, and JSON-RPC 2.0, 5.1; the gateway's own where these define none."""

_REST: Final = {
    400: {"INVALID_ARGUMENT", "FAILED_PRECONDITION"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    405: {"UNIMPLEMENTED"},
    409: {"ABORTED"},
    413: {"INVALID_ARGUMENT"},
    429: {"RESOURCE_EXHAUSTED"},
}
"""Names of google.rpc.Code that an error may have, by HTTP status (A2A 1.0.1, 11.6)."""

_AIEF: Final = {401, 403, 404, 405, 409, 413, 422, 429}
_LANGCHAIN: Final = {
    400: {"invalid"},
    401: {"unauthenticated"},
    403: {"forbidden"},
    404: {"not_found"},
    405: {"method_not_allowed"},
    409: {"conflict", "not_awaiting", "task_ended"},
    413: {"too_large"},
    422: {"invalid", "unsupported", "unsupported_type"},
    429: {"queue_full", "limited"},
}
"""Codes of the Agent Protocol's errors by status. Its document defines no codes."""
_OPENAI: Final = {
    **dict.fromkeys((400, 401, 403, 404, 405, 409, 410, 413), frozenset({"invalid_request_error"})),
    429: frozenset({"rate_limit_error", "insufficient_quota"}),
}
_RUNTIME: Final = {400, 401, 403, 404, 405, 409, 413, 415, 422, 429}
_COMMAND: Final = {
    "invalid_argument",
    "unknown_command",
    "unknown_error",
    "no_such_run",
    "no_such_subscription",
    "no_such_namespace",
    "no_such_interrupt",
    "no_such_checkpoint",
    "permission_denied",
    "not_supported",
}
"""Error codes of commands: the Agent Protocol's event streaming, CDDL 0.0.13, ErrorCode."""


def check_error(words: Words, response: httpx.Response) -> None:
    """Assert that the response is an error in this format and reveals no internals."""
    text = response.text
    is_page = response.headers.get("content-type", "").startswith("text/html")
    if is_page and response.url.path.endswith(CALLBACK):
        text = text.partition("<p>")[2]
        assert not _LEAKS.search(text), f"the answer leaks: {text[:300]}"
        return
    assert not _LEAKS.search(text), f"the answer leaks: {text[:300]}"
    echoed = (
        len(json.dumps(_envelope(response).get("id"))) if words in ("rpc", "mcp") else 0
    )  # JSON-RPC 2.0, 5: the id, as it is
    assert len(response.content) - echoed <= MAX_ERROR, f"{len(response.content)} bytes of error"
    # The SDK of A2A 0.3 reports UnsupportedOperation with 501 in REST.
    assert response.status_code < 500 or (words, response.status_code) == ("rest-0.3", 501), text[:300]
    _CHECKS[words](response)


def error_of(words: Words, response: httpx.Response) -> bool:
    """Return True if the response is an error.

    JSON-RPC and commands report errors with status 200. So does LangGraph for a joined run, because it has already
    sent the status when the run fails.
    """
    if response.status_code >= 400:
        return True
    if words == "mcp":  # errors of a tool call are in its result, so that the model can react
        envelope = _envelope(response)
        return "error" in envelope or envelope.get("result", {}).get("isError") is True
    if words == "rpc":  # a request without id is not answered (JSON-RPC 2.0, 4.1)
        return response.status_code != 204 and "error" in _envelope(response)
    if words in ("langgraph-command", "agent-protocol-command"):
        return check_reply(_json(response))["type"] == "error"
    return words in ("langgraph", "agent-protocol") and _late(response) is not None


def not_found(words: Words, response: httpx.Response) -> bool:
    """Return True if the response reports that the requested resource does not exist."""
    if response.status_code == 404:
        return True
    if words in ("langgraph-command", "agent-protocol-command"):
        return _json(response).get("error") == "no_such_run"
    late = _late(response) if words == "langgraph" else None
    return late is not None and late.get("message") == "404: Run not found"


def is_endless(response: httpx.Response) -> bool:
    """Return True if the response is a stream of a thread's events, which ends with the thread, or of changes."""
    content_type = response.headers.get("content-type", "")
    request = response.request
    never_ends = is_waiting(request.method, request.url.path) or request.url.path.endswith(CHANGES)
    return content_type.startswith("text/event-stream") and never_ends


def check_reply(reply: Any) -> Mapping[str, Any]:
    """Check the reply to a command, over any transport (CDDL 0.0.13, section 3: CommandResponse, ErrorResponse)."""
    if reply.get("type") == "success":
        _keys(reply, {"type", "id", "result"}, frozenset({"meta"}))
        assert isinstance(reply["result"], dict), reply
        assert type(reply["id"]) is int, reply
        return reply
    _keys(reply, {"type", "id", "error", "message"}, frozenset({"meta"}))
    assert reply["type"] == "error", reply
    assert reply["id"] is None or type(reply["id"]) is int, reply
    assert reply["error"] in _COMMAND, reply
    _message(reply["message"])
    return reply


def _json(response: httpx.Response, status: int | None = None) -> Any:
    assert response.headers["content-type"] == "application/json", response.headers["content-type"]
    if status is not None:
        assert response.status_code == status
    return json.loads(response.content)


def _keys(value: Any, required: set[str], optional: frozenset[str] = frozenset()) -> Mapping[str, Any]:
    assert isinstance(value, dict), value
    found = cast("dict[str, Any]", value)
    assert required <= set(found) <= required | optional, f"members {sorted(found)}"
    return found


def _message(value: object) -> None:
    assert isinstance(value, str), value
    assert value.strip(), "an error must have a message"


def _acp(response: httpx.Response) -> None:
    """Check OpenAPI 0.2.0, components.schemas.Error. The TypeScript client accepts no other codes."""
    error = _keys(_json(response), {"code", "message", "data"})
    assert error["code"] in _ACP_CODES[response.status_code], (response.status_code, error)
    _message(error["message"])


def _envelope(response: httpx.Response) -> Mapping[str, Any]:
    """Return a JSON-RPC response from JSON or from the only event of a stream, which clients of 0.3 require."""
    kind = response.headers["content-type"]
    if kind.startswith("text/event-stream"):
        lines = [line for line in response.text.splitlines() if line.startswith("data:")]
        return json.loads(lines[0].removeprefix("data:")) if lines else {}
    return json.loads(response.content) if response.content else {}


def _rpc(response: httpx.Response) -> None:
    """Check JSON-RPC 2.0, 5.1: the status is 200, unless the error occurred before the request was read."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        _json(response)
    reply = _keys(_envelope(response), {"jsonrpc", "id", "error"})
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] is None or isinstance(reply["id"], str | int | float)
    assert response.status_code in (200, 400, 401, 403, 404, 413), response.status_code
    error = _keys(reply["error"], {"code", "message"}, frozenset({"data"}))
    assert error["code"] in _RPC_REASONS, error
    _message(error["message"])
    if "data" in error:  # 1.0: an array of google.rpc details (9.5)
        assert _details(error["data"]) in _RPC_REASONS[error["code"]] | {"CONFLICT"}, error


def _details(value: Any) -> str:
    """Check the details of an error, and return the reason of its ErrorInfo."""
    assert isinstance(value, list), value
    details = cast("list[Mapping[str, Any]]", value)
    info = _keys(details[0], {"@type", "reason", "domain", "metadata"})
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert re.fullmatch(r"[A-Z][A-Z0-9_]+", info["reason"])
    assert info["domain"] in ("a2a-protocol.org", "babelgate")
    assert all(isinstance(each, str) for each in info["metadata"].values())
    for more in details[1:]:
        _keys(more, {"@type", "fieldViolations"})
        assert more["@type"] == "type.googleapis.com/google.rpc.BadRequest"
        for violation in more["fieldViolations"]:
            _keys(violation, {"field", "description"})
    return info["reason"]


def _rest(response: httpx.Response) -> None:
    """Check A2A 1.0, 11.6: a google.rpc.Status as in AIP-193."""
    error = _keys(_keys(_json(response), {"error"})["error"], {"code", "status", "message", "details"})
    assert error["code"] == response.status_code
    assert error["status"] in _REST[response.status_code], error
    _message(error["message"])
    _details(error["details"])


def _rest_0_3(response: httpx.Response) -> None:
    """Check an error of A2A 0.3, which does not define one: its SDK sends `message`, later clients need `type`."""
    error = _keys(_json(response), {"message", "type", "code"})
    _message(error["message"])
    assert re.fullmatch(r"([A-Z][a-z]+)+Error", error["type"])
    assert isinstance(error["code"], int)


def _aief(response: httpx.Response) -> None:
    """Check OpenAPI v1: a 404 has a `message`; a 422 is an object, here with the `detail` of the Python SDK."""
    assert response.status_code in _AIEF, response.status_code
    optional = frozenset({"detail"}) if response.status_code == 422 else frozenset[str]()
    error = _keys(_json(response), {"message"}, optional)
    _message(error["message"])
    for each in error.get("detail", ()):
        _keys(each, {"loc", "msg", "type"})
        _message(each["msg"])


def _late(response: httpx.Response) -> Mapping[str, Any] | None:
    """Return LangGraph's error at the end of a response: the only member of a body, or the last event of a stream."""
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        *_, last = ["", *response.text.replace("\r\n", "\n").strip().split("\n\n")]
        data = re.search(r"^data: (.*)$", last, re.MULTILINE)
        return json.loads(data[1]) if data and re.search(r"^event: error$", last, re.MULTILINE) else None
    if kind != "application/json" or b"__error__" not in response.content:
        return None
    body: Any = json.loads(response.content)
    return body.get("__error__") if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _langgraph(response: httpx.Response) -> None:
    """Check that the body is `{"detail": "…"}`, or, with status 200, that it ends with an exception's name and text."""
    if response.status_code == 200:
        _run_error(response)
        return
    assert response.status_code in _LANGCHAIN, response.status_code
    _message(_keys(_json(response), {"detail"})["detail"])


def _agent_protocol(response: httpx.Response) -> None:
    """Check OpenAPI 0.1.6, components.schemas.ErrorResponse."""
    if response.status_code == 200:
        _run_error(response)
        return
    error = _keys(_json(response), {"code", "message", "metadata"})
    assert error["code"] in _LANGCHAIN[response.status_code], (response.status_code, error)
    _message(error["message"])
    assert isinstance(error["metadata"], dict)


def _langgraph_command(response: httpx.Response) -> None:
    _command(response, 400, _langgraph)


def _agent_protocol_command(response: httpx.Response) -> None:
    _command(response, 422, _agent_protocol)


def _command(response: httpx.Response, refused: int, before: Callable[[httpx.Response], None]) -> None:
    """Check an error of a command.

    A parsed command is answered with 200, and an invalid one with the status `refused` in the same format. `before`
    checks errors in the dialect's own format, which occur before the command is parsed.
    """
    reply = _json(response)
    if response.status_code != 200 and "type" not in reply:
        before(response)
        return
    assert check_reply(reply)["type"] == "error"
    assert response.status_code == 200 or (response.status_code, reply["error"]) == (refused, "invalid_argument"), reply


def _run_error(response: httpx.Response) -> None:
    error = _keys(_late(response), {"error", "message"})
    assert re.fullmatch(r"[A-Z]\w+", error["error"]), error
    _message(error["message"])


def _openai(response: httpx.Response) -> None:
    """Check that the official client can read the error.

    It reads `error` and chooses the exception by the status (openai-python 3.52.0, types/shared/error_object.py and
    `_client.py`).
    """
    error = _keys(_keys(_json(response), {"error"})["error"], {"message", "type", "param", "code"})
    assert error["type"] in _OPENAI[response.status_code], (response.status_code, error)
    _message(error["message"])
    assert all(error[name] is None or isinstance(error[name], str) for name in ("param", "code")), error
    retried = response.status_code in (429, 503)
    assert (response.headers.get("x-should-retry") == "false") != retried, "the client retries any 409, 429 and 5xx"


def _ag_ui(response: httpx.Response) -> None:
    """Check the section "Errors" of docs/protocols/ag-ui.md. Clients show the body as text."""
    error = _keys(_keys(_json(response), {"error"})["error"], {"code", "message"}, frozenset({"details"}))
    assert re.fullmatch(r"[a-z_]+", error["code"])
    _message(error["message"])


def _runtime(response: httpx.Response) -> None:
    """Check the section "Errors" of docs/protocols/runtime.md."""
    assert response.status_code in _RUNTIME, response.status_code
    error = _keys(_keys(_json(response), {"error"})["error"], {"code", "message"}, frozenset({"errors"}))
    assert re.fullmatch(r"[a-z_]+", error["code"])
    _message(error["message"])
    for each in error.get("errors", ()):
        _keys(each, {"field", "description"})
        _message(each["description"])


_MCP: Final = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}


def _mcp(response: httpx.Response) -> None:
    """Check JSON-RPC 2.0, 5.1. The revision of 2025-11-25 reports errors of dispatch with status 200, in a stream."""
    reply = _envelope(response)
    if "result" in reply:
        (content,) = reply["result"]["content"]
        _message(content["text"])
        return
    reply = _keys(reply, {"jsonrpc", "id", "error"})
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] is None or isinstance(reply["id"], str | int)
    assert response.status_code in (200, 400, 401, 403, 404, 405, 406, 413, 415), response.status_code
    error = _keys(reply["error"], {"code", "message"}, frozenset({"data"}))
    assert error["code"] in _MCP, error
    _message(error["message"])


def _own(response: httpx.Response) -> None:
    error = _keys(_keys(_json(response), {"error"})["error"], {"code", "message"})
    assert re.fullmatch(r"[a-z_]+", error["code"])
    _message(error["message"])


_CHECKS: Final[Mapping[Words, Callable[[httpx.Response], None]]] = {
    "acp": _acp,
    "rpc": _rpc,
    "rest": _rest,
    "rest-0.3": _rest_0_3,
    "aief": _aief,
    "langgraph": _langgraph,
    "langgraph-command": _langgraph_command,
    "agent-protocol": _agent_protocol,
    "agent-protocol-command": _agent_protocol_command,
    "runtime": _runtime,
    "mcp": _mcp,
    "openai": _openai,
    "ag-ui": _ag_ui,
    "own": _own,
    **{name: each.check_error for name, each in knowledge().items()},
}

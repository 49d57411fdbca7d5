"""Bad params for every JSON-RPC method of A2A 0.3 and 1.0, and for every command of the Agent Protocol's event
streaming.

The gateway accepts them or answers with an error of the protocol, never with a 500, and keeps working.
"""

import json
from collections.abc import Awaitable, Callable, Mapping

import httpx
import pytest

from babelgate.canonical.value import Json, JsonObject
from tests.gateway.hostile import BODIES, UNKNOWN, WRONG, mutations
from tests.gateway.route import Route
from tests.gateway.shape import check_error, check_reply
from tests.gateway.siege import create_targets, dumped, problems
from tests.gateway.valid import COMMANDS, MESSAGE, RPC, SUBSCRIPTIONS, V1, Command, Rpc, command, filled, rpc
from tests.running import Running

Sending = Callable[[], Awaitable[httpx.Response]]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def rpc_params(gateway: Running, each: Rpc) -> tuple[str, JsonObject]:
    """Return the agent to call, and valid params for the method."""
    if "message" in each.valid:
        return "echo", each.valid
    if "$task" not in each.valid.values():
        slots = await create_targets(gateway, "/a2a")
        return "ask", {name: slots["task_id"] if v == "$open" else v for name, v in each.valid.items()}
    response = await gateway.http.post("/a2a/echo", json=rpc("SendMessage", {"message": MESSAGE}), headers=V1)
    ended = response.json()["result"]["task"]["id"]
    return "echo", {name: ended if v == "$task" else v for name, v in each.valid.items()}


def calling(gateway: Running, each: Rpc, agent: str, body: Json) -> Sending:
    headers = {} if each.old else dict(V1)
    return lambda: gateway.http.post(f"/a2a/{agent}", content=dumped(body), headers=headers)


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_refuses_params_that_are_not_an_object(gateway: Running, each: Rpc) -> None:
    agent, _ = await rpc_params(gateway, each)
    bad: list[Json] = [[1], ["x", {}], 7, "x", True, 1.5]
    cases = [(repr(params), calling(gateway, each, agent, rpc(each.name, params))) for params in bad]
    assert await problems(gateway, each.route, cases, refused=True) == []


@pytest.mark.parametrize("each", [each for each in RPC if not each.bare], ids=lambda each: each.name)
async def test_a_method_refuses_params_without_required_members(gateway: Running, each: Rpc) -> None:
    bad: list[Json] = [None, {}, {"nope": 1}, {"call": 1, "context": 2, "self": 3, "params": 4}]
    for params in bad:
        response = await calling(gateway, each, "ask", rpc(each.name, params))()
        check_error("rpc", response)
        assert '"code":-32602' in response.text, (params, response.text)


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_survives_wrong_types_in_every_param(gateway: Running, each: Rpc) -> None:
    agent, valid = await rpc_params(gateway, each)
    wrong = WRONG[:2] if "stream" in each.name.lower() else WRONG
    cases = [(name, calling(gateway, each, agent, rpc(each.name, params))) for name, params in mutations(valid, wrong)]
    assert await problems(gateway, each.route, cases, refused=False) == []


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("SendMessage", {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}),
        ("SendMessage", {"url": "http://127.0.0.1:9/a", "filename": "a.txt", "mediaType": "text/plain"}),
        ("message/send", {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}}),
        ("message/send", {"kind": "file", "file": {"uri": "http://127.0.0.1:9/a"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
async def test_a_file_survives_wrong_types_in_every_field(gateway: Running, method: str, part: JsonObject) -> None:
    each = Rpc(method, {})
    role = "user" if each.old else "ROLE_USER"
    cases = [
        (name, calling(gateway, each, "files", rpc(method, {"message": {"messageId": "1", "role": role, **parts}})))
        for name, parts in mutations({"parts": [part]})
        if isinstance(parts, dict)
    ]
    assert await problems(gateway, each.route, cases, refused=False) == []


async def test_ids_in_a_message_survive_wrong_types(gateway: Running) -> None:
    message: JsonObject = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    ids: JsonObject = {"contextId": "routes", "taskId": UNKNOWN, "referenceTaskIds": [UNKNOWN], "extensions": ["x"]}
    each = Rpc("SendMessage", {})
    cases = [
        (name, calling(gateway, each, "echo", rpc("SendMessage", {"message": {**message, **changed}})))
        for name, changed in mutations(ids)
        if isinstance(changed, dict)
    ]
    assert await problems(gateway, each.route, cases, refused=False) == []


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_of_another_version_is_refused(gateway: Running, each: Rpc) -> None:
    agent, valid = await rpc_params(gateway, each)
    for version in ("9.9", "0.3" if not each.old else "1.0"):
        response = await gateway.http.post(
            f"/a2a/{agent}", json=rpc(each.name, valid), headers={"A2A-Version": version}
        )
        check_error("rpc", response)
        assert ("-32600" if each.old else "-32009") in response.text


@pytest.mark.parametrize(
    ("body", "code", "reply_id"),
    [
        ([], -32600, None),
        ([rpc("GetTask", {"id": UNKNOWN})], -32600, None),
        ({}, -32600, None),
        ({"jsonrpc": "1.0", "id": 7, "method": "GetTask"}, -32600, 7),
        ({"id": 7, "method": "GetTask"}, -32600, 7),
        ({"jsonrpc": 2.0, "id": "x", "method": "GetTask"}, -32600, "x"),
        ({"jsonrpc": "2.0", "id": 7}, -32600, 7),
        (rpc("", {}), -32600, 7),
        (rpc(7, {}), -32600, 7),
        (rpc(None, {}), -32600, 7),
        (rpc({"a": 1}, {}), -32600, 7),
        (rpc("nope", {}), -32601, 7),
        (rpc("gettask", {}), -32601, 7),
        (rpc("__class__", {}), -32601, 7),
        (rpc("rpc.discover", {}), -32601, 7),
        (rpc("x" * 100_000, {}), -32601, 7),
        (rpc("GetTask", {}, True), -32600, None),
        (rpc("GetTask", {}, {}), -32600, None),
        (rpc("GetTask", {}, [1]), -32600, None),
        (rpc("GetTask", {}, "x"), -32602, "x"),
        (rpc("GetTask", {}, 10**30), -32602, 10**30),
        (rpc("GetTask", {}, 1.5), -32602, 1.5),
        (rpc("GetTask", {}, None), -32602, None),
        ({**rpc("GetTask", {}), "extra": 1}, -32602, 7),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict | list) else None,
)
async def test_an_invalid_request_is_refused_with_its_id(
    gateway: Running, body: Json, code: int, reply_id: Json
) -> None:
    response = await gateway.http.post("/a2a/echo", content=dumped(body), headers=V1)
    check_error("rpc", response)
    assert response.json()["error"]["code"] == code
    assert response.json()["id"] == reply_id


async def test_a_notification_gets_no_answer(gateway: Running) -> None:
    for method in ("ListTasks", "nope"):
        response = await gateway.http.post("/a2a/echo", json={"jsonrpc": "2.0", "method": method}, headers=V1)
        assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("name", ["not JSON", "invalid UTF-8", "a lone surrogate", "NaN", "1 000 levels", "1e999"])
async def test_invalid_json_is_a_parse_error(gateway: Running, name: str) -> None:
    response = await gateway.http.post("/a2a/echo", content=BODIES[name], headers=V1)
    check_error("rpc", response)
    assert response.json()["error"]["code"] == -32700
    assert response.json()["id"] is None


# Commands


COMMAND = Route("POST", "/threads/{thread_id}/commands")


def commanding(gateway: Running, body: Json, slots: Mapping[str, str] | None = None) -> Sending:
    """Return a request with a command to an interrupted thread: the given one, or a new one."""

    async def send() -> httpx.Response:
        at = slots or await create_targets(gateway, COMMAND.path)
        return await gateway.http.post(COMMAND.at(at), content=dumped(filled(body, at)))

    return send


@pytest.mark.parametrize("each", COMMANDS, ids=str)
async def test_a_valid_command_is_accepted(gateway: Running, each: Command) -> None:
    """Check that each command is valid, so that the tests below see only the effect of their changes."""
    response = await commanding(gateway, command(each.method, each.valid))()
    assert response.status_code == 200
    assert check_reply(response.json()).get("error") == each.refused, response.text
    assert response.json()["id"] == 7


@pytest.mark.parametrize("each", COMMANDS, ids=str)
async def test_params_that_are_not_an_object_count_as_missing(gateway: Running, each: Command) -> None:
    slots = await create_targets(gateway, COMMAND.path)
    bad: list[Json] = [None, [1], ["x", {}], 7, "x", True, 1.5, {}, {"nope": 1}, {"call": 1, "self": 3, "params": 4}]
    cases = [(repr(params), commanding(gateway, command(each.method, params), slots)) for params in bad]
    assert await problems(gateway, COMMAND, cases, refused=not each.bare) == []


@pytest.mark.parametrize("each", COMMANDS, ids=str)
async def test_a_command_survives_wrong_types_in_every_param(gateway: Running, each: Command) -> None:
    slots = None if each.once else await create_targets(gateway, COMMAND.path)
    wrong = (*WRONG[:3], *WRONG[7:]) if each.once else WRONG
    cases = [
        (name, commanding(gateway, command(each.method, params), slots))
        for name, params in mutations(each.valid, wrong)
    ]
    assert await problems(gateway, COMMAND, cases, refused=False) == []


@pytest.mark.parametrize("each", SUBSCRIPTIONS, ids=str)
async def test_a_subscription_over_http_is_not_supported(gateway: Running, each: Command) -> None:
    response = await commanding(gateway, command(each.method, each.valid))()
    assert (response.status_code, response.json()["error"]) == (200, "not_supported")


@pytest.mark.parametrize(
    ("body", "status", "code", "reply_id"),
    [
        ([], 400, "invalid_argument", None),
        ([command("state.get", {})], 400, "invalid_argument", None),
        ({}, 400, "invalid_argument", None),
        ({"method": "state.get", "params": {}}, 400, "invalid_argument", None),
        ({"id": 7, "params": {}}, 400, "invalid_argument", 7),
        (command("state.get", {}, None), 400, "invalid_argument", None),
        (command("state.get", {}, "7"), 400, "invalid_argument", None),
        (command("state.get", {}, True), 400, "invalid_argument", None),
        (command("state.get", {}, 1.5), 400, "invalid_argument", None),
        (command("state.get", {}, {}), 400, "invalid_argument", None),
        (command("state.get", {}, [7]), 400, "invalid_argument", None),
        (command(7, {}), 400, "invalid_argument", 7),
        (command(None, {}), 400, "invalid_argument", 7),
        (command({"a": 1}, {}), 400, "invalid_argument", 7),
        (command(["state.get"], {}), 400, "invalid_argument", 7),
        (command("", {}), 200, "unknown_command", 7),
        (command("nope", {}), 200, "unknown_command", 7),
        (command("State.Get", {}), 200, "unknown_command", 7),
        (command("_start", {}), 200, "unknown_command", 7),
        (command("__class__", {}), 200, "unknown_command", 7),
        (command("x" * 100_000, {}), 200, "unknown_command", 7),
        ({**command("state.fork", {}), "extra": 1}, 200, "no_such_checkpoint", 7),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict | list) else None,
)
async def test_an_invalid_command_is_refused_with_its_id(
    gateway: Running, body: Json, status: int, code: str, reply_id: Json
) -> None:
    for prefix in ("", "/agent-protocol"):
        path = f"{prefix}{COMMAND.at(await create_targets(gateway, COMMAND.path))}"
        response = await gateway.http.post(path, content=dumped(body))
        check_error("agent-protocol-command" if prefix else "langgraph-command", response)
        assert response.status_code == (422 if prefix and status == 400 else status)
        assert response.json()["error"] == code
        assert response.json()["id"] == reply_id

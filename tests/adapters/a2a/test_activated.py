"""Extensions that the gateway does not know: callers activate those that the agent's server declares.

Their data are in metadata, which the gateway relays.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.kit.extension import URI
from tests.adapters.a2a.far import Far, card_0_3, card_1_0
from tests.adapters.a2a.recorded import recorded
from tests.adapters.a2a.site import message, message_0_3
from tests.running import Running, running

ADK, KAGENT = "https://google.github.io/adk-docs/a2a/a2a-extension/", "https://kagent.dev/extensions/hitl/v1"
SECRETS, OTHER = "https://a2a-extensions.agentstack.beeai.dev/auth/secrets/v1", "https://example.com/other"
DECLARED: list[dict[str, Any]] = [
    *({"uri": uri} for uri in (ADK, KAGENT, SECRETS)),
    {"uri": "https://example.com/x\r\nX-Evil: 1"},
    *({"uri": f"https://example.com/{number}"} for number in range(60)),
]
ASKED = {
    "id": "t1",
    "contextId": "c1",
    "status": {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Who?"}]},
    },
}
ENDED = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
HEADERS = ("a2a-extensions", "x-a2a-extensions")


@asynccontextmanager
async def serving(far: Far, folder: Path, extensions: list[dict[str, Any]]) -> AsyncGenerator[Running]:
    """Run a gateway in front of a server whose card declares these extensions."""
    capabilities = {"streaming": True, "extensions": extensions}
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, "JSONRPC", capabilities=capabilities))
    async with running(folder, configured={"far": {"url": far.url, "protocol": "a2a"}}) as gateway:
        yield gateway


@pytest.fixture
async def gateway(far: Far, tmp_path: Path) -> AsyncGenerator[Running]:
    far.set("SendStreamingMessage", [{"task": ENDED}])
    async with serving(far, tmp_path, DECLARED) as gateway:
        yield gateway


async def _send(gateway: Running, header: dict[str, str], params: Any, method: str = "SendMessage") -> Any:
    version = "1.0" if method == "SendMessage" else "0.3"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await gateway.http.post("/a2a/far", json=body, headers={"A2A-Version": version, **header})
    assert "error" not in response.json(), response.text
    return response


def _extension_headers(far: Far) -> list[list[str | None]]:
    """Return the two headers of each call, except those for cards."""
    return [[headers.get(name) for name in HEADERS] for call, headers, _ in far.requests if not call.endswith(".json")]


@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_extensions_of_both_caller_and_server_are_activated(far: Far, gateway: Running, name: str) -> None:
    far.set("SendStreamingMessage", [{"task": ASKED}], [{"task": ENDED}])
    value = f"{KAGENT}, {OTHER},{SECRETS} ,, {ADK}"
    waiting = await _send(gateway, {name: value}, message("Hello"))
    assert _extension_headers(far) == [[f"{ADK}, {KAGENT}"] * 2]
    assert waiting.headers[name] == f"{KAGENT}, {ADK}"
    task_id = waiting.json()["result"]["task"]["id"]
    await _send(gateway, {name: ADK}, message("Ada", taskId=task_id))
    assert _extension_headers(far)[1:] == [[ADK] * 2]


@pytest.mark.parametrize("header", [{}, {"A2A-Extensions": OTHER}, {"A2A-Extensions": URI}])
async def test_other_extensions_of_a_caller_are_not_activated(
    far: Far, gateway: Running, header: dict[str, str]
) -> None:
    response = await _send(gateway, header, message("Hello"))
    assert _extension_headers(far) == [[None, None]]
    assert response.headers.get("A2A-Extensions") == (URI if URI in header.values() else None)


async def test_activated_extensions_are_limited_and_cannot_inject_headers(far: Far, gateway: Running) -> None:
    value = ", ".join(["https://example.com/x", "X-Evil: 1", *(str(each["uri"]) for each in DECLARED[4:])])
    await _send(gateway, {"A2A-Extensions": value}, message_0_3("Hello"), "message/send")
    [[sent, _]] = _extension_headers(far)
    assert sent is not None
    assert 0 < len(sent.split(", ")) <= 32
    assert not any("x-evil" in headers for _, headers, _ in far.requests)
    card = (await gateway.http.get("/a2a/far/.well-known/agent-card.json")).json()
    assert not any("Evil" in each["uri"] for each in card["capabilities"]["extensions"])


async def test_a_caller_of_another_protocol_activates_nothing(far: Far, gateway: Running) -> None:
    await _ask_by_acp(gateway, **{"A2A-Extensions": ADK})
    assert _extension_headers(far) == [[None, None]]


STREAMING = "https://a2a-extensions.adk.kagenti.dev/ui/streaming/v1"


@pytest.fixture
async def kagenti(far: Far, tmp_path: Path) -> AsyncGenerator[Running]:
    far.set("SendStreamingMessage", recorded("kagenti_streaming"))
    async with serving(far, tmp_path, [{"uri": STREAMING}]) as gateway:
        yield gateway


async def _ask_by_acp(gateway: Running, **headers: str) -> Any:
    message = {"role": "user", "parts": [{"content_type": "text/plain", "content": "Hello"}]}
    body = {"agent_name": "far", "input": [message], "mode": "sync"}
    return (await gateway.http.post("/acp/runs", json=body, headers=headers)).json()


async def test_streaming_extension_is_activated_for_other_protocols(far: Far, kagenti: Running) -> None:
    run = await _ask_by_acp(kagenti)
    assert _extension_headers(far) == [[STREAMING] * 2]
    parts = [part for message in run["output"] for part in message["parts"]]
    texts = [part["content"] for part in parts if part["content"] and not part["name"]]
    assert texts == ["It is ", "sunny.", "Bye."]


@pytest.mark.parametrize("header", [{}, {"A2A-Extensions": STREAMING}])
async def test_caller_of_a2a_receives_draft_changes_and_message(
    far: Far, kagenti: Running, header: dict[str, str]
) -> None:
    task = (await _send(kagenti, header, message("Hello"))).json()["result"]["task"]
    assert _extension_headers(far) == [[STREAMING] * 2 if header else [None, None]]
    assert [part["text"] for part in task["status"]["message"]["parts"]] == ["It is sunny.", "Bye."]
    assert [each["name"] for each in task["artifacts"]] == ["report.txt"]
    assert task["metadata"][STREAMING]["message_update"] == [
        {"op": "add", "path": "/parts/-", "value": {"text": "Bye."}}
    ]
    assert "history" not in task or all(each["role"] == "ROLE_USER" for each in task["history"])


async def test_one_header_lists_all_extensions_for_0_3(far: Far, tmp_path: Path) -> None:
    capabilities = {"streaming": True, "extensions": [{"uri": ADK}, {"uri": URI}]}
    far.set("GET /.well-known/agent-card.json", card_0_3(far.url, capabilities=capabilities))
    task = {**ENDED, "kind": "task", "status": {"state": "completed"}}
    far.set("message/stream", [task])
    async with running(tmp_path, configured={"far": {"url": far.url, "protocol": "a2a"}}) as gateway:
        await _send(gateway, {"A2A-Extensions": f"{ADK}, {URI}"}, message("Hello"))
    assert _extension_headers(far)[0] == [f"{URI}, {ADK}"] * 2

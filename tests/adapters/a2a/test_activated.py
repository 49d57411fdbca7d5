"""Extensions that the gateway knows nothing of: their data stand in metadata, and what activates them goes through to
the agent's server, if that one has them."""

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
    """A gateway before a server whose card declares these."""
    able = {"streaming": True, "extensions": extensions}
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, "JSONRPC", capabilities=able))
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


def _heard(far: Far) -> list[list[str | None]]:
    """The two headers of each call but those for cards."""
    return [[headers.get(name) for name in HEADERS] for call, headers, _ in far.asked if not call.endswith(".json")]


@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_what_both_the_caller_and_the_server_have_is_activated(far: Far, gateway: Running, name: str) -> None:
    far.set("SendStreamingMessage", [{"task": ASKED}], [{"task": ENDED}])
    named = f"{KAGENT}, {OTHER},{SECRETS} ,, {ADK}"
    asked = await _send(gateway, {name: named}, message("Hello"))
    assert _heard(far) == [[f"{ADK}, {KAGENT}"] * 2]
    assert asked.headers[name] == f"{KAGENT}, {ADK}"
    task_id = asked.json()["result"]["task"]["id"]
    await _send(gateway, {name: ADK}, message("Ada", taskId=task_id))
    assert _heard(far)[1:] == [[ADK] * 2]


@pytest.mark.parametrize("header", [{}, {"A2A-Extensions": OTHER}, {"A2A-Extensions": URI}])
async def test_who_activates_none_of_them_activates_nothing(far: Far, gateway: Running, header: dict[str, str]) -> None:
    response = await _send(gateway, header, message("Hello"))
    assert _heard(far) == [[None, None]]
    assert response.headers.get("A2A-Extensions") == (URI if URI in header.values() else None)


async def test_they_are_bounded_and_are_no_headers_of_their_own(far: Far, gateway: Running) -> None:
    named = ", ".join(["https://example.com/x", "X-Evil: 1", *(str(each["uri"]) for each in DECLARED[4:])])
    await _send(gateway, {"A2A-Extensions": named}, message_0_3("Hello"), "message/send")
    [[sent, _]] = _heard(far)
    assert sent is not None
    assert 0 < len(sent.split(", ")) <= 32
    assert not any("x-evil" in headers for _, headers, _ in far.asked)
    card = (await gateway.http.get("/a2a/far/.well-known/agent-card.json")).json()
    assert not any("Evil" in each["uri"] for each in card["capabilities"]["extensions"])


async def test_a_caller_of_another_protocol_activates_nothing(far: Far, gateway: Running) -> None:
    await _ask_by_acp(gateway, **{"A2A-Extensions": ADK})
    assert _heard(far) == [[None, None]]


STREAMING = "https://a2a-extensions.adk.kagenti.dev/ui/streaming/v1"


@pytest.fixture
async def kagenti(far: Far, tmp_path: Path) -> AsyncGenerator[Running]:
    far.set("SendStreamingMessage", recorded("kagenti_streaming"))
    async with serving(far, tmp_path, [{"uri": STREAMING}]) as gateway:
        yield gateway


async def _ask_by_acp(gateway: Running, **headers: str) -> Any:
    said = {"role": "user", "parts": [{"content_type": "text/plain", "content": "Hello"}]}
    body = {"agent_name": "far", "input": [said], "mode": "sync"}
    return (await gateway.http.post("/acp/runs", json=body, headers=headers)).json()


async def test_an_agent_that_tells_its_answer_as_it_is_made_is_asked_to(far: Far, kagenti: Running) -> None:
    run = await _ask_by_acp(kagenti)
    assert _heard(far) == [[STREAMING] * 2]
    parts = [part for said in run["output"] for part in said["parts"]]
    told = [part["content"] for part in parts if part["content"] and not part["name"]]
    assert told == ["It is ", "sunny.", "Bye."]


@pytest.mark.parametrize("header", [{}, {"A2A-Extensions": STREAMING}])
async def test_a_caller_of_a2a_sees_changes_and_message(far: Far, kagenti: Running, header: dict[str, str]) -> None:
    task = (await _send(kagenti, header, message("Hello"))).json()["result"]["task"]
    assert _heard(far) == [[STREAMING] * 2 if header else [None, None]]
    assert [part["text"] for part in task["status"]["message"]["parts"]] == ["It is sunny.", "Bye."]
    assert [each["name"] for each in task["artifacts"]] == ["report.txt"]
    assert task["metadata"][STREAMING]["message_update"] == [
        {"op": "add", "path": "/parts/-", "value": {"text": "Bye."}}
    ]
    assert "history" not in task or all(each["role"] == "ROLE_USER" for each in task["history"])


async def test_all_extensions_are_named_in_one_header_to_an_old_server(far: Far, tmp_path: Path) -> None:
    able = {"streaming": True, "extensions": [{"uri": ADK}, {"uri": URI}]}
    far.set("GET /.well-known/agent-card.json", card_0_3(far.url, capabilities=able))
    old = {**ENDED, "kind": "task", "status": {"state": "completed"}}
    far.set("message/stream", [old])
    async with running(tmp_path, configured={"far": {"url": far.url, "protocol": "a2a"}}) as gateway:
        await _send(gateway, {"A2A-Extensions": f"{ADK}, {URI}"}, message("Hello"))
    assert _heard(far)[0] == [f"{URI}, {ADK}"] * 2

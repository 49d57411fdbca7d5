"""The endpoints of UI message streams on real sockets, with requests as the SDK's transports send them."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.canonical import Ask, Invocation, RunStatus, UseTool
from babelgate.canonical.value import JsonObject
from babelgate.gateway import demo
from tests.adapters.vercel_ui.testing import chunks_of, text_of, user
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30.0
GATE: Final = asyncio.Semaphore(0)


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield the text, and then wait if the text is `one`."""
    yield text
    if text == "one":
        await GATE.acquire()
    yield " done"


async def recall(call: Invocation) -> str:
    return " | ".join(message.text for message in (*call.history, *call.messages))


async def both(call: Invocation) -> AsyncGenerator[list[UseTool | Ask] | str, Any]:
    """Call a tool of the page, and ask for a number."""
    weather, number = yield [UseTool("weather", {"city": "Rome"}), Ask("How many?", schema={"type": "integer"})]
    yield f"{weather} {number}"


async def choose(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for an approval in two words."""
    schema = {"type": "object", "properties": {"decision": {"enum": ["approve", "reject"]}}, "required": ["decision"]}
    answer = yield Ask("May I?", schema=schema, kind="approval")
    yield answer["decision"]


AGENTS: Final[dict[str, object]] = {
    **{name: getattr(demo, name) for name in ("echo", "ask", "approve", "fail", "stream")},
    **{each.__name__: each for each in (gated, recall, both, choose)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("vercel-ui"), AGENTS) as found:
        yield found


class Page:
    """A chat with one agent."""

    def __init__(self, gateway: Running, agent: str) -> None:
        self.gateway = gateway
        self.id = uuid4().hex[:16]
        self.url = f"/vercel-ui/{agent}"

    async def post(self, *messages: JsonObject, status: int = 200, query: str = "", **more: Any) -> list[JsonObject]:
        body = {"id": self.id, "messages": messages, "trigger": "submit-message", **more}
        response = await self.gateway.http.post(self.url + query, json=body)
        assert response.status_code == status, response.text
        return chunks_of(response.text) if status == 200 else [{"text": response.text}]

    async def history(self) -> list[JsonObject]:
        response = await self.gateway.http.get(f"{self.url}/{self.id}")
        assert response.status_code == 200, response.text
        return response.json()["messages"]

    async def runs(self) -> int:
        """Return the number of runs of the chat."""
        found = [message for message in await self.history() if message["role"] == "assistant"]
        return sum(part["type"] == "step-start" for message in found for part in message["parts"])


def completed(message: JsonObject, **outputs: Any) -> JsonObject:
    """Return a message of the assistant with the outputs of its tools, by the name of the tool."""
    parts: list[JsonObject] = []
    for part in message["parts"]:
        name = part["type"].removeprefix("tool-")
        state = {"state": "output-available", "output": outputs[name]} if name in outputs else {}
        parts.append({**part, **state})
    return {**message, "parts": parts}


async def test_a_repeated_request_joins_the_run_that_it_started(gateway: Running) -> None:
    page = Page(gateway, "echo")
    first = await page.post(user("hi"))
    assert await page.post(user("hi")) == first
    assert await page.runs() == 1


async def test_an_app_may_send_only_the_last_message(gateway: Running) -> None:
    page = Page(gateway, "recall")
    await gateway.http.post(page.url, json={"id": page.id, "message": user("one")})
    response = await gateway.http.post(page.url, json={"id": page.id, "message": user("two", "u2")})
    assert text_of(chunks_of(response.text)) == "one | one | two"
    again = {"id": page.id, "message": user("two", "u2"), "trigger": "regenerate-message"}
    response = await gateway.http.post(page.url, json=again)
    assert text_of(chunks_of(response.text)) == "one | one | two"


async def test_a_request_without_a_chat_has_its_history(gateway: Running) -> None:
    answer = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "1"}]}
    body = {"messages": [user("one"), answer, user("two", "u2")]}
    response = await gateway.http.post("/vercel-ui/recall", json=body)
    assert text_of(chunks_of(response.text)) == "one | 1 | two"
    assert response.headers["x-workflow-run-id"] == response.headers["babelgate-run"]
    completion = await gateway.http.post("/vercel-ui/recall", json={"prompt": "one"})
    assert text_of(chunks_of(completion.text)) == "one"


async def test_a_chat_continues_after_an_earlier_answer_as_a_branch(gateway: Running) -> None:
    page = Page(gateway, "recall")
    await page.post(user("one"))
    first = await page.history()
    await page.post(*first, user("two", "u2"))
    chunks = await page.post(*first, user("three", "u3"))
    assert text_of(chunks) == "one | one | three"
    assert [message["id"] for message in await page.history()][2] == "u3"


async def test_a_new_message_interrupts_the_active_run(gateway: Running) -> None:
    page = Page(gateway, "gated")
    body = {"id": page.id, "messages": [user("one")], "trigger": "submit-message"}
    async with gateway.http.stream("POST", page.url, json=body) as response:
        lines = response.aiter_lines()
        while "one" not in await anext(lines):
            pass
        chunks = await page.post(user("one"), user("two", "u2"))
        assert text_of(chunks) == "two done"
        rest = [line async for line in lines]
    assert 'data: {"type":"abort"}' in rest
    assert rest[-2:] == ["data: [DONE]", ""]


async def test_a_stop_cancels_the_run(gateway: Running) -> None:
    page = Page(gateway, "gated")
    body = {"id": page.id, "messages": [user("one")], "trigger": "submit-message"}
    async with gateway.http.stream("POST", page.url, json=body) as response:
        lines = response.aiter_lines()
        while "one" not in await anext(lines):
            pass
        stopped = await gateway.http.post(f"{page.url}/{page.id}/stop")
        assert stopped.json() == {"success": True}
        rest = [line async for line in lines]
    assert 'data: {"type":"abort"}' in rest
    again = await gateway.http.post(f"{page.url}/{page.id}/stop")
    assert again.json() == {"success": True}
    assert (await page.history())[-1]["metadata"]["babelgate"]["status"] == "cancelled"


@pytest.mark.parametrize(("query", "status"), [("", "running"), ("?on_disconnect=cancel", "cancelled")])
async def test_a_disconnect_cancels_only_on_request(gateway: Running, query: str, status: str) -> None:
    page = Page(gateway, "gated")
    body = {"id": page.id, "messages": [user("one")], "trigger": "submit-message"}
    async with gateway.http.stream("POST", page.url + query, json=body) as response:
        run_id = response.headers["babelgate-run"]
        async for line in response.aiter_lines():
            if "one" in line:
                break
    if status == "running":
        assert (await gateway.hub.reads.run("default", run_id)).status is RunStatus.RUNNING
        GATE.release()
    resumed = await gateway.http.get(f"{page.url}/{run_id}/stream")
    assert ('"type":"abort"' in resumed.text) is (status == "cancelled")


async def test_a_run_is_repeated_from_any_chunk(gateway: Running) -> None:
    message = user("one two three")
    response = await gateway.http.post("/vercel-ui/stream", json={"messages": [message]})
    url = f"/vercel-ui/stream/{response.headers['x-workflow-run-id']}/stream"
    frames = response.text.split("\n\n")[:-1]
    assert len(frames) == 10
    for index in range(len(frames)):
        rest = await gateway.http.get(url, params={"startIndex": index})
        assert rest.text.split("\n\n")[:-1] == frames[index:] or index == len(frames) - 1


async def test_all_answers_of_a_message_continue_the_run(gateway: Running) -> None:
    page = Page(gateway, "both")
    tools: JsonObject = {"ask_caller": {}}
    chunks = await page.post(user("go"), tools=tools)
    assert chunks[-1]["finishReason"] == "tool-calls"
    message, answer = await page.history()
    partly = completed(answer, weather="rain")
    chunks = await page.post(message, partly, messageId=answer["id"], tools=tools)
    assert [chunk["type"] for chunk in chunks] == ["start", "tool-output-available", "finish"]
    whole = completed(partly, ask_caller=3)
    chunks = await page.post(message, whole, messageId=answer["id"], tools=tools)
    assert text_of(chunks) == "rain 3"
    assert chunks[0]["messageId"] == answer["id"]
    assert await page.post(message, whole, messageId=answer["id"], tools=tools) == chunks
    (_, latest) = await page.history()
    (refused,) = await page.post(message, latest, messageId=answer["id"], status=409)
    assert refused["text"] == "The last message is the assistant's, and it answers no open question."


async def test_an_answer_that_violates_its_schema_is_rejected(gateway: Running) -> None:
    page = Page(gateway, "both")
    await page.post(user("go"), tools={"ask_caller": {}})
    message, answer = await page.history()
    await page.post(message, completed(answer, ask_caller="many"), messageId=answer["id"], status=400)


async def test_a_message_that_is_no_answer_starts_a_new_turn(gateway: Running) -> None:
    page = Page(gateway, "both")
    await page.post(user("go"))
    first = await page.history()
    chunks = await page.post(*first, user("Never mind.", "u2"))
    assert chunks[-1]["finishReason"] == "tool-calls"
    history = await page.history()
    assert len(history) == 4
    calls = [part["state"] for message in history for part in message["parts"] if part["type"] == "tool-weather"]
    assert calls == ["output-error", "input-available"]


@pytest.mark.parametrize("sdk", [5, 6])
async def test_approvals_are_answered_in_each_form(gateway: Running, sdk: int) -> None:
    page = Page(gateway, "approve")
    query = f"?sdk={sdk}"
    chunks = await page.post(user("go"), query=query)
    message, answer = await page.history()
    if sdk == 5:
        assert chunks[-1]["finishReason"] == "stop"
        await page.post(message, answer, user("yes", "u2"), query=query)
        chunks = await page.post(*await page.history(), user("no", "u3"), query=query)
    else:
        decisions = iter((True, False))
        parts = [
            {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": next(decisions)}}
            if part["type"] == "dynamic-tool"
            else part
            for part in answer["parts"]
        ]
        chunks = await page.post(message, {**answer, "parts": parts}, messageId=answer["id"])
        outcomes = [chunk["type"] for chunk in chunks if chunk["type"].startswith("tool-")]
        assert outcomes == ["tool-output-available", "tool-output-denied"]
    assert text_of(chunks) == "write: approved\nsend: not approved\n"


@pytest.mark.parametrize("base", ["/vercel-ui/gated", "/agent/gated/vercel-ui"])
async def test_a_chat_has_a_url_below_its_agent(gateway: Running, base: str) -> None:
    chat, body = f"{base}/{uuid4().hex[:16]}", {"messages": [user("one")]}
    assert (await gateway.http.get(f"{chat}/stream")).status_code == 204
    sent = {**body, "id": chat.rpartition("/")[2]}
    async with gateway.http.stream("POST", base, json=sent) as response:
        assert response.status_code == 200
        async with gateway.http.stream("GET", f"{chat}/stream") as resumed:
            assert resumed.status_code == 200
            assert (await gateway.http.post(f"{chat}/stop")).json() == {"success": True}
            assert await resumed.aread() == await response.aread()
    messages = (await gateway.http.get(chat)).json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/vercel-ui/echo", 404),
        ("GET", "/vercel-ui/echo/stream", 404),  # a chat of that name
        ("POST", "/vercel-ui/echo/stop", 404),
        ("GET", "/agent/missing/vercel-ui/chat", 404),
    ],
)
async def test_a_path_without_a_chat_needs_one_agent(gateway: Running, method: str, path: str, status: int) -> None:
    assert (await gateway.http.request(method, path, json={})).status_code == status


@pytest.mark.parametrize(("headers", "has_approval"), [({}, False), ({"Babelgate-Sdk": "6"}, True)])
async def test_a_request_overrides_the_sdk_of_the_agent(
    tmp_path: Path, headers: dict[str, str], has_approval: bool
) -> None:
    agents = {"old": {"python": "babelgate.gateway.demo:approve", "ai_sdk": 5}}
    async with running(tmp_path, configured=agents) as gateway:
        response = await gateway.http.post("/vercel-ui/old", json={"messages": [user("go")]}, headers=headers)
    assert ("tool-approval-request" in response.text) == has_approval


@pytest.mark.parametrize(
    ("is_approved", "word", "outcome"),
    [(True, "approve", "tool-output-available"), (False, "reject", "tool-output-denied")],
)
async def test_an_approval_is_decided_in_words(gateway: Running, is_approved: bool, word: str, outcome: str) -> None:
    page = Page(gateway, "choose")
    await page.post(user("go"), query="?sdk=7")
    message, answer = await page.history()
    parts = [
        {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": is_approved}}
        if part["type"] == "dynamic-tool"
        else part
        for part in answer["parts"]
    ]
    chunks = await page.post(message, {**answer, "parts": parts}, messageId=answer["id"], query="?sdk=7")
    assert outcome in [chunk["type"] for chunk in chunks]
    assert text_of(chunks) == word


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/vercel-ui/missing", 404, "There is no agent 'missing'"),
        ("/vercel-ui/echo?sdk=4", 400, "sdk: expected 5, 6 or 7, got '4'"),
        ("/vercel-ui/echo?on_disconnect=stop", 400, "on_disconnect: expected cancel or continue, got 'stop'"),
    ],
)
async def test_a_refusal_is_a_short_text(gateway: Running, path: str, status: int, words: str) -> None:
    response = await gateway.http.post(path, json={"messages": [user("hi")]})
    assert (response.status_code, response.text) == (status, words)
    assert response.headers["content-type"].startswith("text/plain")


async def test_an_answer_to_an_unknown_message_is_rejected(gateway: Running) -> None:
    answer = {"id": str(uuid4()), "role": "assistant", "parts": [{"type": "text", "text": "1"}]}
    response = await gateway.http.post("/vercel-ui/echo", json={"messages": [user("hi"), answer]})
    assert response.status_code == 409
    assert "this gateway has no such message" in response.text


async def test_a_chat_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as first:
        page = Page(first, "ask")
        await page.post(user("hi"))
        before = await page.history()
    async with running(tmp_path, AGENTS) as second:
        page.gateway = second
        assert await page.history() == before
        chunks = await page.post(*before, user("Ada", "u2"))
        assert text_of(chunks) == "Hello, Ada."


async def test_two_equal_first_posts_start_one_run(gateway: Running) -> None:
    page = Page(gateway, "echo")
    one, other = await asyncio.gather(*(page.post(user("Hello", "m1")) for _ in range(2)))
    assert text_of(one) == text_of(other) == "Hello"
    assert await page.runs() == 1

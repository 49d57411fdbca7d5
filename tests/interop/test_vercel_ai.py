"""The unmodified chat of the Vercel AI SDK 5, 6 and 7 against the gateway on real sockets."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.adapters.vercel_ui.write.ui_message import UiMessageBuilder
from babelgate.canonical import Ask, Invocation, ToolCall, UseTool
from babelgate.gateway import demo
from tests.goldens import CASES, GOLDEN
from tests.interop.driver import OfficialClient, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SDKS: Final = {"ai-5-strict": 5, "ai-5": 5, "ai-6": 6, "ai-7": 7}
"""Versions of the SDK in the peer: the first release of a major with strict schemas, and the newest of each."""
APPROVERS: Final = ("ai-6", "ai-7")
"""Versions that have approvals."""

GATE: Final = asyncio.Semaphore(0)
"""Gate at which an agent waits in the middle of its answer."""


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, and the next when the gate opens."""
    yield "first"
    await GATE.acquire()
    yield " second"


async def recall(call: Invocation) -> str:
    """Return the texts of the conversation."""
    return " | ".join(message.text for message in (*call.history, *call.messages))


async def weather(call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
    """Let the page execute a tool."""
    result = yield UseTool("weather", {"city": "Paris"})
    yield f"In Paris: {result}"


async def mail(text: str) -> AsyncGenerator[Ask | ToolCall | str, Any]:
    """Use a tool, ask for an approval, and answer."""
    yield ToolCall("look_up", {"name": text}, output="x@example.com")
    approved = yield Ask("Send it?", kind="approval", value={"name": "send_mail", "args": {"to": "x"}})
    yield f"Sent: {approved}."


AGENTS: Final[dict[str, object]] = {
    **{name: getattr(demo, name) for name in ("echo", "stream", "ask", "fail", "json", "files", "approve")},
    **{each.__name__: each for each in (gated, recall, weather, mail)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("vercel-ai"), AGENTS) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncGenerator[OfficialClient]:
    async with start_client("vercel-ai") as client:
        yield client


class Chat:
    """One chat of a page with an agent."""

    def __init__(self, page: OfficialClient, url: str, sdk: str, agent: str) -> None:
        self.id = uuid4().hex[:16]
        self.sdk = sdk
        self._page = page
        self._open: dict[str, Any] = {"sdk": sdk, "id": self.id, "api": f"{url}/vercel-ui/{agent}"}
        self._open["headers"] = {"Babelgate-Sdk": str(SDKS[sdk])}

    async def open(self, **options: Any) -> "Chat":
        await self._page.call("open", **self._open, **options)
        return self

    async def call(self, name: str, **args: Any) -> Any:
        view = await self._page.call(name, id=self.id, **args)
        if view["messages"]:
            await self._page.call("validate", sdk=self.sdk, messages=view["messages"])
        return view


def comparable(message: Any) -> Any:
    """Return a message without what the SDK adds to its parts."""
    dropped = ("id", "state", "title")
    parts = [
        {name: value for name, value in part.items() if name not in dropped or part["type"].startswith("data-")}
        for part in message["parts"]
    ]
    return {**message, "parts": parts}


def text(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_page_holds_a_conversation(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "recall").open()
    await chat.call("send", text="one")
    view = await chat.call("send", text="two")
    assert (view["status"], view["error"]) == ("ready", None)
    assert [message["role"] for message in view["messages"]] == ["user", "assistant"] * 2
    assert text(view["messages"][-1]) == "one | one | two"
    again = await chat.call("regenerate")
    assert text(again["messages"][-1]) == "one | one | two"
    assert again["messages"][-1]["id"] != view["messages"][-1]["id"]
    first = view["messages"][0]["id"]
    edited = await chat.call("send", text="three", message_id=first)
    assert [text(message) for message in edited["messages"]] == ["three", "three"]
    stored = (await gateway.http.get(f"/vercel-ui/recall/{chat.id}")).json()
    assert [(each["id"], text(each)) for each in stored["messages"]] == [
        (each["id"], text(each)) for each in edited["messages"]
    ]


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_page_executes_a_tool(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "weather").open(auto="tools", outputs={"weather": "21 °C"})
    await chat.call("send", text="go")
    view = await chat.call("settle", requests=2)
    assert (view["status"], view["error"], view["requests"]) == ("ready", None, 2)
    assert view["calls"] == ["weather"]
    (_, answer) = view["messages"]
    assert text(answer) == "In Paris: 21 °C"


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("sdk", APPROVERS)
async def test_a_page_approves_a_tool_of_the_agent(
    gateway: Running, page: OfficialClient, sdk: str, approved: bool
) -> None:
    chat = await Chat(page, gateway.url, sdk, "mail").open(auto="approvals")
    view = await chat.call("send", text="x")
    (approval,) = [part for part in view["messages"][-1]["parts"] if part.get("state") == "approval-requested"]
    assert (approval["toolName"], approval["input"]) == ("send_mail", {"to": "x"})
    view = await chat.call("approve", approval_id=approval["approval"]["id"], approved=approved, requests=2)
    assert view["requests"] == 2
    assert len(view["messages"]) == 2
    (done,) = [part for part in view["messages"][-1]["parts"] if part.get("toolName") == "send_mail"]
    if approved:
        assert (done["state"], text(view["messages"][-1])) == ("output-available", "Send it?Sent: True.")
    else:
        assert done["state"] == "output-denied"
        assert view["error"] is not None  # the agent does not catch the refusal


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_typed_text_answers_a_question(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "ask").open()
    view = await chat.call("send", text="hi")
    assert text(view["messages"][-1]) == "What is your name?"
    view = await chat.call("send", text="Ada")
    assert [text(message) for message in view["messages"]] == ["hi", "What is your name?", "Ada", "Hello, Ada."]
    assert len({message["id"] for message in view["messages"]}) == 4


@pytest.mark.parametrize("sdk", APPROVERS)
async def test_a_typed_text_supersedes_an_approval(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "mail").open(auto="approvals")
    await chat.call("send", text="x")
    view = await chat.call("send", text="y")
    assert view["error"] is None
    assert [part["input"] for part in view["messages"][-1]["parts"] if part.get("toolName") == "look_up"] == [
        {"name": "y"}
    ]
    stored = (await gateway.http.get(f"/vercel-ui/mail/{chat.id}")).json()["messages"]
    states = [part["state"] for message in stored for part in message["parts"] if part.get("toolName") == "send_mail"]
    assert states == ["output-denied", "approval-requested"]


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_page_resumes_a_stream(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "gated").open()
    assert (await chat.call("resume"))["status"] == "ready"  # what `resume: true` does on a new page
    await chat.call("start", text="go", until="first")
    await chat.call("stop")
    history = (await gateway.http.get(f"/vercel-ui/gated/{chat.id}")).json()["messages"]
    assert [message["role"] for message in history] == ["user"]
    await chat.open(messages=history)
    await chat.call("start", until="first")
    GATE.release()
    view = await chat.call("settle")
    assert [text(message) for message in view["messages"]] == ["go", "first second"]
    assert (view["status"], view["error"]) == ("ready", None)
    await chat.call("resume")  # 204: nothing runs


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_failure_is_an_error_of_the_chat(gateway: Running, page: OfficialClient, sdk: str) -> None:
    chat = await Chat(page, gateway.url, sdk, "fail").open()
    view = await chat.call("send", text="It broke.")
    assert (view["status"], view["error"]) == ("error", "RuntimeError: It broke.")
    assert text(view["messages"][-1]) == "Failing."
    refused = await Chat(page, gateway.url, sdk, "missing").open()
    view = await refused.call("send", text="hi")
    assert (view["status"], view["error"]) == ("error", "There is no agent 'missing'")


@pytest.mark.parametrize("breaks", [False, True])
async def test_the_workflow_transport_reads_on_after_a_cut(
    gateway: Running, page: OfficialClient, breaks: bool
) -> None:
    for cut in range(1, 9):
        chat = await Chat(page, gateway.url, "ai-7", "stream").open(transport="workflow", cut=cut, breaks=breaks)
        view = await chat.call("send", text="one two three")
        assert (view["status"], view["error"], view["requests"]) == ("ready", None, 2)
        assert [text(message) for message in view["messages"]] == ["one two three"] * 2


async def test_the_assistant_transport_declares_tools_and_resumes(gateway: Running, page: OfficialClient) -> None:
    tools = {"ask_caller": {"description": "Ask.", "parameters": {"type": "object"}}}
    context = {"system": "Be kind.", "tools": tools}
    chat = await Chat(page, gateway.url, "ai-7", "ask").open(transport="assistant", context=context, auto="tools")
    view = await chat.call("send", text="hi")
    (question,) = [part for part in view["messages"][-1]["parts"] if part["type"] == "tool-ask_caller"]
    assert question["input"] == {"question": "What is your name?"}
    view = await chat.call("add_output", tool="ask_caller", call_id=question["toolCallId"], output="Ada", requests=2)
    assert text(view["messages"][-1]) == "Hello, Ada."
    cut = await Chat(page, gateway.url, "ai-7", "stream").open(transport="assistant", cut=5, breaks=True)
    view = await cut.call("send", text="one two three")
    assert view["status"] == "error"
    view = await cut.call("resume")
    assert (view["status"], text(view["messages"][-1])) == ("ready", "one two three")


@pytest.mark.parametrize("sdk", SDKS)
async def test_each_chunk_of_the_goldens_is_valid(page: OfficialClient, sdk: str) -> None:
    for case in CASES:
        for reply in json.loads((GOLDEN / case / "vercel-ui.json").read_text()):
            chunks = reply[f"sdk {SDKS[sdk]}"]
            chunks = reply["sdk 6"] if chunks == "as sdk 6" else chunks
            body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
            # A message needs a part, and SDK 6 has no chunk for the answer to an approval.
            validates = case != "empty" and (sdk != "ai-6" or "approval" not in body)
            result = await page.call("parse", sdk=sdk, body=body, validates=validates)
            assert result["chunks"] == chunks
            if sdk == "ai-7" and validates:
                builder = UiMessageBuilder()
                builder.add(chunks)
                assert comparable(result["message"]) == comparable(builder.message)


@pytest.mark.parametrize("agent", ["echo", "stream", "ask", "json", "files", "approve", "weather", "mail"])
@pytest.mark.parametrize("sdk", SDKS)
async def test_each_chunk_is_valid(gateway: Running, page: OfficialClient, sdk: str, agent: str) -> None:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "two words"}]}
    url = f"/vercel-ui/{agent}?sdk={SDKS[sdk]}&steps=true"
    response = await gateway.http.post(url, json={"messages": [message]})
    result = await page.call("parse", sdk=sdk, body=response.text)
    assert result["errors"] == []
    assert result["chunks"][-1]["type"] == "finish"

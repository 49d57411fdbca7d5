"""The official AG-UI clients, over real sockets, run agents of the gateway: version 1.0 and the older one that
CopilotKit contains."""

import asyncio
import json
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation
from babelgate.gateway import demo
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.interop.peers import peer_python
from tests.pairs.cast import Cast
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS: Final = ("client", "client-0")
"""Names of the packages: @ag-ui/client 1.0.0, and 0.0.59."""
VALIDATE: Final = """
import sys
from ag_ui_validate.cli import main
paths, codes = sys.argv[1:], []
for path in paths:
    sys.argv = ["ag-ui-validate", path, "--max-warnings", "0"]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code)
sys.exit(codes != [0] * len(paths))
"""
"""Program that validates the files of its arguments with the command of ag-ui-validate."""
WEATHER: Final[Any] = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def players() -> Cast:
    return Cast()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, players: Cast) -> AsyncGenerator[Running]:
    agents: dict[str, Any] = {f"demo-{name}": getattr(demo, name) for name in demo.__all__}

    async def known(call: Invocation) -> str:
        return str(sorted(call.state.items()))

    async with running(tmp_path_factory.mktemp("ag-ui"), {**agents, **players.agents(), "known": known}) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CLIENTS)
async def client(request: pytest.FixtureRequest, gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("ag-ui", base_url=gateway.url, package=request.param) as client:
        yield client


class Talk:
    """A conversation of the official client with an agent."""

    def __init__(self, client: OfficialClient, agent: str) -> None:
        self._client = client
        self._args = {"conversation": f"{id(self)}-{agent}", "agent": agent}

    async def run(self, text: str | None = None, **more: Any) -> list[Any]:
        """Return the events of a run."""
        words = {} if text is None else {"text": text}
        return await self._client.call("run", **self._args, **words, **more)

    def stream(self, text: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Yield the events of a run as the client receives them."""
        return self._client.stream("run", **self._args, text=text)

    async def view(self) -> Any:
        """Return the messages and the state that the client holds."""
        return await self._client.call("view", conversation=self._args["conversation"])

    async def said(self) -> list[tuple[str, Any]]:
        return [(each["role"], each.get("content")) for each in (await self.view())["messages"]]


def frames(body: str) -> list[Any]:
    """Return the events of a stream."""
    return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]


def kinds(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


async def test_text_arrives_and_the_conversation_goes_on(client: OfficialClient) -> None:
    talk = Talk(client, "history")
    assert kinds(await talk.run("one")) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    await talk.run("two")
    assert await talk.said() == [
        ("user", "one"),
        ("assistant", "0 before: one"),
        ("user", "two"),
        ("assistant", "2 before: two"),
    ]


async def test_a_failed_run_ends_with_an_error(client: OfficialClient) -> None:
    events = await Talk(client, "fail").run("broken")
    assert kinds(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert events[-1]["code"] == "agent_failed"


async def test_an_unknown_agent_is_refused_with_its_reason(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as refused:
        await Talk(client, "nobody").run("hello")
    assert "404" in refused.value.message and "nobody" in refused.value.message


async def test_every_kind_of_event_passes_the_verification_of_the_clients(client: OfficialClient) -> None:
    expected = {
        "metadata": {"REASONING_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "CUSTOM"},
        "varied": {"STEP_FINISHED", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"},
        "progress": {"ACTIVITY_SNAPSHOT"},
        "count": {"RUN_FINISHED"},
    }
    for agent, some in expected.items():
        events = await Talk(client, agent).run("two words")
        assert some <= {*kinds(events)}, agent
        assert events[-1]["type"] == "RUN_FINISHED"


async def test_interrupts_are_answered_by_resume(client: OfficialClient) -> None:
    talk = Talk(client, "approve")
    stopped = (await talk.run("go"))[-1]
    assert stopped["type"] == "RUN_FINISHED"
    interrupts = stopped["outcome"]["interrupts"]
    assert [each["reason"] for each in interrupts] == ["input_required", "confirmation"]
    answers = [{"interruptId": each["id"], "status": "resolved"} for each in interrupts]
    resume = [{**answers[0], "payload": "Ada"}, {**answers[1], "payload": {"approved": True}}]
    await talk.run(resume=resume)
    assert (await talk.said())[-1] == ("assistant", "Ada said yes.")


async def test_an_interrupt_can_be_abandoned(client: OfficialClient) -> None:
    talk = Talk(client, "ask")
    (interrupt,) = (await talk.run("go"))[-1]["outcome"]["interrupts"]
    events = await talk.run(resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
    assert events[-1]["type"] == "RUN_ERROR"


async def test_a_typed_text_answers_a_question(client: OfficialClient, gateway: Running) -> None:
    talk = Talk(client, "ask")
    stopped = (await talk.run("go"))[-1]
    answer = {"id": "typed", "role": "user", "content": "Ada"}
    body = {"threadId": stopped["threadId"], "runId": "typed-run", "messages": [answer]}
    response = await gateway.http.post("/ag-ui/ask", json=body)
    assert "Hello, Ada." in response.text


async def test_frontend_tools_are_pending_until_their_result_is_sent(client: OfficialClient) -> None:
    talk = Talk(client, "outside")
    events = await talk.run("go", tools=[WEATHER])
    assert events[-1]["type"] == "RUN_FINISHED"
    (started,) = (event for event in events if event["type"] == "TOOL_CALL_START")
    assert started["toolCallName"] == "weather"
    call_id = started["toolCallId"]
    assert events[-1].get("outcome", {}).get("pendingToolCallIds", [call_id]) == [call_id]
    result = {"id": "result", "role": "tool", "toolCallId": call_id, "content": "sunny"}
    await talk.run(messages=[result], tools=[WEATHER])
    assert (await talk.said())[-1] == ("assistant", "['weather']: sunny")


async def test_changed_state_reaches_the_agent(client: OfficialClient) -> None:
    talk = Talk(client, "known")
    await talk.run("go", state={"theme": "dark"})
    assert (await talk.said())[-1] == ("assistant", "[('theme', 'dark')]")


async def test_an_abort_cancels_only_if_the_request_says_so(
    client: OfficialClient, gateway: Running, players: Cast
) -> None:
    players.reset()
    talk = Talk(client, "slow")
    events = await talk.run("go", abortAfter="TEXT_MESSAGE_CONTENT")
    thread_id = events[0]["threadId"]
    players.gate.release()
    response = await gateway.http.post("/ag-ui/slow/connect", json={"threadId": thread_id})
    assert '"first last"' in response.text or '" last"' in response.text
    cancels = {"babelgate": {"onDisconnect": "cancel"}}
    await Talk(client, "slow").run("go", abortAfter="TEXT_MESSAGE_CONTENT", forwardedProps=cancels)
    async with asyncio.timeout(30):
        await players.closed.wait()


async def test_a_cancelled_run_ends_in_the_vocabulary_of_the_client(
    client: OfficialClient, gateway: Running, players: Cast
) -> None:
    players.reset()
    talk = Talk(client, "slow")
    thread_id, last = "", dict[str, Any]()
    async with talk.stream("go") as events:
        async for last in events:
            if last["type"] == "RUN_STARTED":
                thread_id = last["threadId"]
            elif last["type"] == "TEXT_MESSAGE_CONTENT":
                response = await gateway.http.post("/ag-ui/slow/cancel", json={"threadId": thread_id})
                assert response.status_code == 202
    assert last.get("code") == "cancelled" or last["outcome"] == {"type": "cancelled"}


async def test_connect_restates_the_conversation(client: OfficialClient, gateway: Running) -> None:
    talk = Talk(client, "metadata")
    thread_id = (await talk.run("two words"))[0]["threadId"]
    response = await gateway.http.post("/ag-ui/metadata/connect", json={"threadId": thread_id})
    snapshot = next(event for event in frames(response.text) if event["type"] == "MESSAGES_SNAPSHOT")
    held = (await talk.view())["messages"]
    assert [(each["role"], each.get("content")) for each in snapshot["messages"]] == [
        (each["role"], each.get("content")) for each in held
    ]
    assert [each["id"] for each in snapshot["messages"]] == [each["id"] for each in held]


async def test_the_validator_accepts_the_stream_of_every_agent(gateway: Running, tmp_path: Path) -> None:
    agents = [info.name for info in gateway.hub.agents() if info.name not in ("slow", "stream")]
    assert len(agents) > 10
    for agent in agents:
        body: dict[str, Any] = {"threadId": str(uuid4()), "runId": "r", "protocolVersion": "1.0", "tools": [WEATHER]}
        body["messages"] = [{"id": "m", "role": "user", "content": "two words"}]
        response = await gateway.http.post(f"/ag-ui/{agent}", json=body)
        (tmp_path / f"{agent}.sse").write_bytes(response.content)
    command = [str(peer_python("ag-ui")), "-c", VALIDATE, *(f"{agent}.sse" for agent in agents)]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=PIPE, stderr=STDOUT)
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()

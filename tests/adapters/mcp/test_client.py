"""Client for tools of another server, which here is a gateway. Both eras of MCP are tested: versions with a handshake,
and the stateless version 2026-07-28."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.adapters.mcp.client import Client, discover, open_call
from babelgate.canonical import (
    Ask,
    Event,
    FaultCode,
    FaultError,
    Invocation,
    Message,
    Record,
    RunInput,
    TextPart,
)
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, PartAdded, UpstreamBound
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
GATE: Final = asyncio.Event()
STARTED: Final = asyncio.Event()
CANCELLED: Final = asyncio.Event()
VERSIONS: Final = ("2025-11-25", "2026-07-28")


async def echo(text: str) -> str:
    return text


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    name = yield Ask("What is your name?")
    yield f"Hello, {name}."


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield a word, wait until the test sets `GATE`, and yield another."""
    yield "one "
    await GATE.wait()
    yield "two"


async def held(text: str) -> AsyncGenerator[str]:
    """Yield a word, and wait until the run is cancelled. Set `STARTED` at the beginning and `CANCELLED` at the end."""
    STARTED.set()
    try:
        yield "one "
        await asyncio.Event().wait()
    finally:
        CANCELLED.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {each.__name__: each for each in (echo, ask, gated, held)}
    async with running(tmp_path_factory.mktemp("server"), agents) as gateway:
        yield gateway


def call_of(text: str, **more: Any) -> Invocation:
    run_input = RunInput(messages=(Message.of(text, "user"),))
    ids = {"thread_id": str(uuid4()), "task_id": str(uuid4()), "run_id": str(uuid4())}
    return Invocation(agent="tool", input=run_input, **ids, **more)


async def run(client: Client, call: Invocation) -> list[Event]:
    async with asyncio.timeout(BOUND):
        return [event async for event in client.run(call)]


def text_in(events: list[Event]) -> str:
    parts = [event.part for event in events if isinstance(event, PartAdded)]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def ids_in(events: list[Event]) -> dict[str, str]:
    return {name: id for event in events if isinstance(event, UpstreamBound) for name, id in event.ids.items()}


async def test_tools_are_discovered(server: Running) -> None:
    infos = {info.name: info for info in await discover(f"{server.url}/mcp", server.http)}
    assert infos.keys() == {"echo", "ask", "gated", "held", "resume_run"}
    assert infos["echo"].remembers
    assert "input" not in infos["echo"].schemas


async def test_a_server_of_another_protocol_is_refused(server: Running) -> None:
    with pytest.raises(FaultError):
        await discover(f"{server.url}/acp", server.http)


async def test_the_version_of_a_server_is_detected(server: Running) -> None:
    client = Client(f"{server.url}/mcp", "echo")
    assert text_in(await run(client, call_of("hello"))) == "hello"
    assert await client.server.is_stateless()
    await client.aclose()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_question_is_answered_in_the_next_run(server: Running, version: Any) -> None:
    client = Client(f"{server.url}/mcp", "ask", version=version)
    call = call_of("go")
    events = await run(client, call)
    (question,) = [event for event in events if isinstance(event, InterruptRaised)]
    assert (question.message.text, question.answer_schema) == ("What is your name?", None)
    stored = question.replace(interrupt_id="q")

    async def past() -> list[Record]:
        return [Record(1, 0, call.task_id, call.run_id, 1, stored)]

    answers = (InterruptAnswered(interrupt_id="q", value="Ada"),)
    answered = await run(client, replace(call, answers=answers, past=past, upstream=ids_in(events), cause="answer"))
    assert text_in(answered) == "Hello, Ada."
    await client.aclose()


async def test_a_lost_call_in_a_session_cannot_be_answered(server: Running) -> None:
    client = Client(f"{server.url}/mcp", "ask", version="2025-11-25")
    answers = (InterruptAnswered(interrupt_id="q", value="Ada"),)
    with pytest.raises(FaultError) as raised:
        await run(client, replace(call_of("go"), answers=answers))
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


async def test_a_task_is_found_again(server: Running) -> None:
    GATE.clear()
    client, call, ids = Client(f"{server.url}/mcp", "gated"), call_of("go"), dict[str, str]()
    bound = asyncio.Event()

    async def read() -> None:
        async for event in client.run(call):
            if isinstance(event, UpstreamBound):
                ids.update(event.ids)
                if "task" in ids:
                    bound.set()

    reading = asyncio.ensure_future(read())
    async with asyncio.timeout(BOUND):
        await bound.wait()
        reading.cancel(DETACH)  # as a gateway that restarts
        await asyncio.wait([reading])
        GATE.set()
        events = [event async for event in client.reattach(replace(call, upstream=ids))]
    assert text_in(events) == "one two"
    await client.aclose()


async def test_a_cancel_reaches_a_task_with_an_unread_id(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_call, "_GRACE", BOUND)
    client = Client(f"{server.url}/mcp", "held", version="2026-07-28")
    reading = asyncio.ensure_future(run(client, call_of("go")))
    async with asyncio.timeout(BOUND):
        await STARTED.wait()
        reading.cancel()
        await asyncio.wait([reading])
        await CANCELLED.wait()
    await client.aclose()


async def test_a_run_without_a_task_is_not_found_again(server: Running) -> None:
    client = Client(f"{server.url}/mcp", "echo")
    with pytest.raises(FaultError) as raised:
        _ = [event async for event in client.reattach(call_of("go"))]
    assert raised.value.fault.code is FaultCode.AGENT_INVALID
    await client.aclose()


async def test_an_unknown_tool_is_a_fault(server: Running) -> None:
    client = Client(f"{server.url}/mcp", "missing")
    with pytest.raises(FaultError) as raised:
        await run(client, call_of("go"))
    assert raised.value.fault.code is FaultCode.AGENT_INVALID
    await client.aclose()


class Unauthorized(httpx.Auth):
    """Authorization that the user has not given yet, and that only calls of tools need."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if b'"tools/call"' in await request.aread():
            raise AuthorizationNeeded(["read"])
        yield request


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_authorization_ends_the_run(server: Running, version: Any) -> None:
    async with httpx.AsyncClient(auth=Unauthorized()) as http:
        client = Client(f"{server.url}/mcp", "echo", version=version, http=http)
        with pytest.raises(AuthorizationNeeded):
            await run(client, call_of("go"))

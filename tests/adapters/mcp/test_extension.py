"""The Babelgate extension on MCP: the result of a call has the records of its task, for who asks for them."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from babelgate.adapters._extension import MAX_SLICE, RecordReader
from babelgate.adapters.mcp.codec.run_id import encode_run_id
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import AgentInfo, Event, FilePart, Invocation, Message, ToolCallPart
from babelgate.canonical.event import InterruptRaised, RunEnded, ToolEnded
from babelgate.gateway import demo
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.mcp.site import Client, Modern, enter
from tests.running import running


@pytest.fixture
async def http(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(tmp_path, {name: getattr(demo, name) for name in ("echo", "tools")}) as made:
        yield made.http


async def test_a_result_has_its_records_for_a_client_that_declares_the_extension(http: httpx.AsyncClient) -> None:
    client = Modern(http, capabilities={"extensions": {RECORDS: {}}})
    result = await client.call("tools", {"message": "one two"})
    reader = RecordReader(of_run=True)
    read = reader.read(result["_meta"][RECORDS])
    assert [event.output for event in read if isinstance(event, ToolEnded)] == [2]
    assert isinstance(read[-1], RunEnded)
    assert not reader.behind
    assert RECORDS in (await client.ask("server/discover"))["result"]["capabilities"]["extensions"]


@pytest.mark.parametrize("era", [Client, Modern])
async def test_a_request_may_ask_for_it_by_itself_and_who_does_not_sees_nothing_of_it(
    http: httpx.AsyncClient, era: type[Client]
) -> None:
    client = Modern(http) if era is Modern else (await enter(http))[0]
    plain = await client.call("echo", {"message": "Hello"})
    assert RECORDS not in plain["_meta"]
    asked = await client.call("echo", {"message": "Hello"}, _meta={RECORDS: {}})
    assert asked["content"] == plain["content"]
    assert asked["_meta"][RECORDS]["events"]


async def test_what_is_larger_than_the_bound_is_named_as_missing(http: httpx.AsyncClient) -> None:
    client = Modern(http, capabilities={"extensions": {RECORDS: {}}})
    told = (await client.call("echo", {"message": "x" * MAX_SLICE}))["_meta"][RECORDS]
    assert told["next"] > told["events"][-1]["seq"]
    reader = RecordReader()
    reader.read(told)
    assert reader.behind


async def test_a_request_says_by_it_what_mcp_has_no_field_for(tmp_path: Path) -> None:
    heard: list[Invocation] = []

    class Listening:
        async def run(self, call: Invocation) -> AsyncGenerator[Event]:
            heard.append(call)
            if not call.answers:
                asked = ToolCallPart(call_id="c1", name="weather", arguments="{}", side="caller")
                yield InterruptRaised(interrupt_id="c1", message=Message(parts=(asked,)))

    weather = {"name": "weather", "parameters": {"type": "object"}}
    upload = {"name": "a.bin", "media_type": "application/x-a", "bytes": b64encode(bytes(range(256))).decode()}
    told = {"tools": [weather], "metadata": {"ticket": "no-1"}, "uploads": [upload]}
    info = AgentInfo(name="listening", input_types=("*/*",))
    async with running(tmp_path, registered={"listening": RegisteredAgent(info, Listening())}) as made:
        client = Modern(made.http, capabilities={"elicitation": {"form": {}}})
        asked = await client.call("listening", {"message": "Hello"}, _meta={RECORDS: told})
        reader = RecordReader(of_run=True)
        read = reader.read(asked["_meta"][RECORDS])
        [question] = [event for event in read if isinstance(event, InterruptRaised)]
        assert isinstance(question.message.parts[0], ToolCallPart)
        wrong = await client.call("listening", {"message": "Hello"}, _meta={RECORDS: {"uploads": [{"name": 1}]}})
        arguments = {"run_id": encode_run_id(asked["_meta"]["babelgate"]["task_id"]), "answers": {"c1": "rain"}}
        answered = await client.call("resume_run", arguments, _meta={RECORDS: {"tools": [weather]}})
    [call, answer] = heard
    assert [tool.name for tool in answer.tools] == ["weather"]
    assert isinstance(
        RecordReader(of_run=True, told={reader.run_id or ""}).read(answered["_meta"][RECORDS])[-1], RunEnded
    )
    assert [tool.name for tool in call.tools] == ["weather"]
    assert call.metadata == {"ticket": "no-1"}
    [message] = call.messages
    assert call.input.uploaded == 1
    file = message.parts[-1]
    assert isinstance(file, FilePart)
    assert (file.name, file.media_type, file.inline) == ("a.bin", "application/x-a", bytes(range(256)))
    assert wrong["isError"] is True

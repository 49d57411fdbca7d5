"""The Babelgate extension on MCP: the result of a call has the records of its task if the client requests them."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from babelgate.adapters.kit.extension import MAX_SLICE, RecordReader
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical.event import RunEnded, ToolEnded
from babelgate.gateway import demo
from tests.adapters.mcp.site import Client, Modern, enter
from tests.running import running


@pytest.fixture
async def http(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(tmp_path, {name: getattr(demo, name) for name in ("echo", "tools")}) as gateway:
        yield gateway.http


async def test_a_client_that_declares_the_extension_gets_the_records(http: httpx.AsyncClient) -> None:
    client = Modern(http, capabilities={"extensions": {RECORDS: {}}})
    result = await client.call("tools", {"message": "one two"})
    reader = RecordReader(of_run=True)
    read = reader.read(result["_meta"][RECORDS])
    assert [event.output for event in read if isinstance(event, ToolEnded)] == [2]
    assert isinstance(read[-1], RunEnded)
    assert not reader.behind
    assert RECORDS in (await client.ask("server/discover"))["result"]["capabilities"]["extensions"]


@pytest.mark.parametrize("era", [Client, Modern])
async def test_a_single_request_can_ask_for_the_records(http: httpx.AsyncClient, era: type[Client]) -> None:
    client = Modern(http) if era is Modern else (await enter(http))[0]
    plain = await client.call("echo", {"message": "Hello"})
    assert RECORDS not in plain["_meta"]
    extended = await client.call("echo", {"message": "Hello"}, _meta={RECORDS: {}})
    assert extended["content"] == plain["content"]
    assert extended["_meta"][RECORDS]["events"]


async def test_records_over_the_size_limit_are_reported_as_missing(http: httpx.AsyncClient) -> None:
    client = Modern(http, capabilities={"extensions": {RECORDS: {}}})
    records = (await client.call("echo", {"message": "x" * MAX_SLICE}))["_meta"][RECORDS]
    assert records["next"] > records["events"][-1]["seq"]
    reader = RecordReader()
    reader.read(records)
    assert reader.behind

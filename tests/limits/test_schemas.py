"""Output schemas that take too long to check: they are not checked, and other callers are not affected."""

import asyncio

import pytest

from babelgate.canonical import AgentInfo
from babelgate.gateway.runs.output_schema import schema_error
from tests.limits.schemas import AGENTS
from tests.limits.strain import MB, SLOW, Strained, python_agents

pytestmark = SLOW
SETTINGS = {"agents": python_agents(*AGENTS, module="schemas")}


@pytest.mark.parametrize("name", AGENTS)
async def test_an_endless_schema_does_not_block_others(gateway: Strained, name: str) -> None:
    async with gateway.watched() as strain:
        answer = await gateway.http.post("/runs/wait", json={"assistant_id": name, "input": {"message": "hi"}})
    assert answer.status_code == 200
    assert "__error__" not in answer.json()
    strain.check(memory=100 * MB)


async def test_external_references_of_a_schema_are_not_fetched(caplog: pytest.LogCaptureFixture) -> None:
    fetched = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/schema"
        for schema in (
            {"$ref": url},
            {"$dynamicRef": url},
            {"pattern": "a", "$ref": url},
            {"$schema": url, "$ref": "#a"},
        ):
            caplog.clear()
            assert await schema_error(AgentInfo(name="a", schemas={"output": schema}), {"n": 1}) is None
            assert "not checked against its schema: it cannot be followed" in caplog.text
    assert not fetched.is_set()

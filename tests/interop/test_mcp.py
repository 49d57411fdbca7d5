"""The official MCP client, over real sockets, calls agents of the gateway as tools in both versions of the protocol."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Ask, Message
from babelgate.gateway import demo
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
MODES: Final = ("legacy", "auto")
ANSWERS: Final = {"What is your name?": {"answer": "Ada"}, "May I write?": {"approved": True}}
APPROVAL: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
ENDED: Final = asyncio.Event()
SPEAKING: Final = asyncio.Event()


async def approve(text: str) -> AsyncGenerator[list[Ask] | str, Any]:
    name, approval = yield [Ask("What is your name?"), Ask("May I write?", schema=APPROVAL, kind="approval")]
    yield f"{name} said {approval['approved']}."


async def failing(text: str) -> str:
    raise RuntimeError("on purpose")


async def waiting(text: str) -> AsyncGenerator[Message]:
    """Wait for a cancel."""
    try:
        yield Message.of("Half way.", phase="progress")
        await asyncio.Event().wait()
    finally:
        ENDED.set()


async def speaking(text: str) -> AsyncGenerator[str]:
    """Wait between two words."""
    yield "first "
    await SPEAKING.wait()
    yield "last"


async def count(text: str) -> dict[str, Any]:
    return {"words": len(text.split())}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents: dict[str, Any] = {name: getattr(demo, name) for name in demo.__all__}
    agents |= {each.__name__: each for each in (approve, failing, waiting, speaking, count)}
    async with running(tmp_path_factory.mktemp("mcp"), agents) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODES)
async def client(request: pytest.FixtureRequest, gateway: Running) -> AsyncGenerator[OfficialClient]:
    """Client that cannot show forms."""
    async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode=request.param) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODES)
async def form_client(request: pytest.FixtureRequest, gateway: Running) -> AsyncGenerator[OfficialClient]:
    """Client that fills in forms."""
    async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode=request.param, answers=ANSWERS) as client:
        yield client


def text_of(result: Any) -> str:
    return "".join(each["text"] for each in result["content"] if each["type"] == "text")


async def test_both_protocol_versions_are_negotiated(client: OfficialClient) -> None:
    assert await client.call("version") in ("2025-11-25", "2026-07-28")


async def test_the_agents_are_tools(client: OfficialClient) -> None:
    names = [tool["name"] for tool in await client.call("tools")]
    assert {"echo", "approve", "resume_run"} <= set(names)


async def test_a_tool_is_called(client: OfficialClient) -> None:
    assert text_of(await client.call("call", name="echo", message="hello")) == "hello"


async def test_the_client_accepts_structured_output(client: OfficialClient) -> None:
    result = await client.call("call", name="count", message="two words")
    assert result["structuredContent"] == {"words": 2}


async def test_a_failure_is_an_error_result(client: OfficialClient) -> None:
    result = await client.call("call", name="failing", message="hello")
    assert (result["isError"], text_of(result)) == (True, "RuntimeError: on purpose")


async def test_an_unknown_tool_is_an_error(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as raised:
        await client.call("call", name="missing", message="hello")
    assert raised.value.data == -32602


async def test_a_client_with_forms_answers_questions(form_client: OfficialClient) -> None:
    result = await form_client.call("call", name="approve", message="go")
    assert "Ada" in text_of(result)


async def test_a_client_without_forms_answers_with_a_tool(client: OfficialClient) -> None:
    result = (await client.call("call", name="approve", message="go"))["structuredContent"]
    assert result["status"] == "input_required"
    values = {"What is your name?": "Ada", "May I write?": {"approved": True}}
    answers = {each["id"]: values[each["message"]] for each in result["interrupts"]}
    done = await client.call("call", name="resume_run", run_id=result["run_id"], answers=answers)
    assert text_of(done) == "Ada said True."


async def test_a_cancelled_question_ends_the_run(gateway: Running) -> None:
    for mode in MODES:
        answers = dict.fromkeys(ANSWERS)
        async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode=mode, answers=answers) as client:
            result = await client.call("call", name="approve", message="go")
            assert (result["isError"], text_of(result)) == (True, "The run was cancelled.")


async def test_progress_arrives_during_the_run_and_a_disconnect_cancels_it(
    client: OfficialClient,
) -> None:
    ENDED.clear()
    async with client.stream("follow", name="waiting", message="go") as lines:
        assert await anext(lines) == {"progress": 1, "message": "Half way."}
    async with asyncio.timeout(BOUND):
        await ENDED.wait()


async def test_text_arrives_as_progress_during_the_run(client: OfficialClient) -> None:
    SPEAKING.clear()
    async with client.stream("follow", name="speaking", message="go") as lines:
        assert await anext(lines) == {"progress": 1, "message": "first "}
        SPEAKING.set()
        rest = [line async for line in lines]
    assert text_of(rest[-1]["result"]) == "first last"

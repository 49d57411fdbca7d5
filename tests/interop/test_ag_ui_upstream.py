"""Agents on unmodified servers of AG-UI behind the gateway: ag-ui-langgraph and Pydantic AI."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.interop.driver import start_server
from tests.pairs.ag_ui import AgUi
from tests.pairs.caller import Data, TaskView
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER: Final[Any] = {
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@asynccontextmanager
async def fronting(folder: Path, peer: str, *names: str) -> AsyncGenerator[Running]:
    async with start_server(peer) as server:
        agents = {name: {"url": f"{server.url}/{name}", "protocol": "ag-ui"} for name in names}
        registry = await connect(Settings.model_validate({"agents": agents}))
        assert all(each.broken is None for each in registry.all())
        async with running(folder, registered={each.info.name: each for each in registry.all()}) as front:
            yield front


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def langgraph(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    names = ("echo", "plain", "ask", "call", "fail", "outcome", "bare")
    async with fronting(tmp_path_factory.mktemp("ag-ui-langgraph"), "ag-ui-langgraph", *names) as front:
        yield front


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pydantic(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    names = ("tool", "approve", "frontend", "count")
    async with fronting(tmp_path_factory.mktemp("ag-ui-pydantic"), "ag-ui-pydantic", *names) as front:
        yield front


async def test_a_graph_with_a_model_streams_its_answer(langgraph: Running) -> None:
    caller = AgUi(langgraph.http, "echo")
    assert (await caller.send("hello")).text == "You said: hello"
    assert (await caller.send("again")).text == "You said: again"


async def test_an_answer_without_a_model_arrives_once(langgraph: Running) -> None:
    caller = AgUi(langgraph.http, "plain")
    first = await caller.send("one")
    assert (first.state, first.text) == ("completed", "1 messages, theme None")
    await caller.change({"theme": "dark"})
    # The graph has the messages under the same ids, so none is there twice.
    assert (await caller.send("two")).text == "3 messages, theme dark"
    assert (await caller.values())["theme"] == "light"


@pytest.mark.parametrize("agent", ["ask", "outcome", "bare"])
async def test_each_form_of_a_question_is_answered(langgraph: Running, agent: str) -> None:
    caller = AgUi(langgraph.http, agent)
    paused = await caller.send("go")
    assert (paused.state, [each.text for each in paused.questions]) == ("input_required", ["What is your name?"])
    assert (await caller.answer(paused, "Ada")).text == "Hello, Ada."


async def test_a_graph_calls_a_tool_of_the_caller(langgraph: Running) -> None:
    caller = AgUi(langgraph.http, "call")
    caller.tools = (WEATHER,)
    paused = await caller.send("go")
    assert [each.value["name"] for each in paused.questions] == ["weather"]
    assert (await caller.answer(paused, "rain")).text == "It gave rain"


async def test_a_failed_graph_is_a_failed_run(langgraph: Running) -> None:
    view = await AgUi(langgraph.http, "fail").send("go")
    assert view.state == "failed" and "on purpose" in view.fault


async def test_an_agent_of_pydantic_ai_thinks_and_uses_its_tool(pydantic: Running) -> None:
    caller = AgUi(pydantic.http, "tool")
    assert await caller.run_to_end("go") == TaskView(
        "completed", text="It gave sun in Rome", asides=("I should look.",)
    )
    assert (await AgUi(pydantic.http, "count").send("go")).text == "1 messages"


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_of_pydantic_ai_is_a_question(pydantic: Running, approved: bool) -> None:
    caller = AgUi(pydantic.http, "approve")
    paused = await caller.send("go")
    (question,) = paused.questions
    assert "approved" in question.schema["properties"]
    view = await caller.answer(paused, Data({"approved": approved}))
    assert view.state == "completed"
    assert ("sun in Rome" in view.text) == approved


async def test_pydantic_ai_calls_a_tool_of_the_caller(pydantic: Running) -> None:
    caller = AgUi(pydantic.http, "frontend")
    caller.tools = (WEATHER,)
    paused = await caller.send("go")
    assert [each.value["name"] for each in paused.questions] == ["weather"]
    assert (await caller.answer(paused, "rain")).text == "It gave rain"

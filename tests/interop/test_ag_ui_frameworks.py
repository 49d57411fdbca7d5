"""Agents of ADK, Agno and Strands on their unmodified AG-UI servers, behind the gateway."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.interop.driver import start_server
from tests.pairs.ag_ui import AgUi
from tests.pairs.caller import Data
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICK: Final[Any] = {
    "name": "pick",
    "description": "Pick a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a framework serves AG-UI, and how its tool `wipe` asks before it runs."""

    peer: str
    path: str
    question: str
    """Text of the question."""
    yes: Any
    no: Any
    done: str
    """Part of the answer after a yes."""
    refused: str
    """Part of the answer after a no."""


HINT: Final = "Please approve or reject the tool call wipe() "
CASES: Final = {
    "adk": Case("ag-ui-adk", "/plain", HINT, {"approved": True}, {"approved": False}, "{'wiped': 'sda'}", "rejected"),
    "adk-interrupts": Case(
        "ag-ui-adk", "/demo", HINT, {"approved": True}, {"approved": False}, "{'wiped': 'sda'}", "rejected"
    ),
    "agno": Case(
        "ag-ui-agno",
        "/demo/agui",
        'wipe({"disk": "sda"})',
        {"accepted": True},
        {"accepted": False},
        "wiped sda",
        "rejected",
    ),
    "strands": Case("ag-ui-strands", "/demo", "Wipe sda?", "yes", "no", "'yes'} for sda", "'no'} for sda"),
}


@dataclass(frozen=True, slots=True)
class Framework:
    case: Case
    front: Running

    def caller(self) -> AgUi:
        caller = AgUi(self.front.http, "demo")
        caller.tools = (PICK,)
        return caller


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CASES)
async def framework(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Framework]:
    case = CASES[request.param]
    async with start_server(case.peer) as server:
        agents = {"demo": {"url": f"{server.url}{case.path}", "protocol": "ag-ui"}}
        registry = await connect(Settings.model_validate({"agents": agents}))
        registered = {each.info.name: each for each in registry.all()}
        async with running(tmp_path_factory.mktemp(case.peer), registered=registered) as front:
            yield Framework(case, front)


async def test_an_agent_streams_text_in_each_turn(framework: Framework) -> None:
    caller = framework.caller()
    async with framework.front.http.stream("POST", "/ag-ui/demo", json=body("talk")) as response:
        deltas = [line async for line in response.aiter_lines() if "TEXT_MESSAGE_CONTENT" in line]
    assert len(deltas) == 2
    for _ in range(2):
        view = await caller.send("talk")
        assert (view.state, view.text) == ("completed", "Hello, Ada")


def body(text: str) -> dict[str, Any]:
    return {"threadId": "streamed", "runId": "r", "messages": [{"id": "u", "role": "user", "content": text}]}


async def test_an_agent_uses_its_tool(framework: Framework) -> None:
    view = await framework.caller().send("weather")
    assert view.state == "completed" and "sun in Rome" in view.text
    response = await framework.front.http.post("/ag-ui/demo/connect", json={"threadId": view.context_id})
    assert response.text.count('"name":"weather"') == 1


async def test_a_failed_model_is_a_failed_run(framework: Framework) -> None:
    view = await framework.caller().send("fail")
    assert view.state == "failed" and "The model broke on purpose" in view.fault


async def test_an_agent_calls_a_tool_of_the_caller(framework: Framework) -> None:
    caller = framework.caller()
    paused = await caller.send("pick")
    assert [each.value["name"] for each in paused.questions] == ["pick"]
    view = await caller.answer(paused, "rain")
    assert view.state == "completed" and "rain" in view.text


@pytest.mark.parametrize("is_yes", [True, False])
async def test_a_tool_asks_before_it_runs(framework: Framework, is_yes: bool) -> None:
    case, caller = framework.case, framework.caller()
    paused = await caller.send("wipe")
    (question,) = paused.questions
    assert paused.state == "input_required" and question.text.startswith(case.question)
    answer = case.yes if is_yes else case.no
    view = await caller.answer(paused, answer if isinstance(answer, str) else Data(answer))
    assert view.state == "completed" and (case.done if is_yes else case.refused) in view.text

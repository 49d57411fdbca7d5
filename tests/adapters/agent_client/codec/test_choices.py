"""Tests of the options of a session: the members of a graph's configuration that have a few values."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.agent_client.editor import RpcError, Wire, choose, editing
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOOLEANS: Final[Wire] = {"session": {"configOptions": {"boolean": {}}}}
SESSION: Final[Wire] = {"cwd": "/work", "mcpServers": []}


@dataclass
class Voice:
    """Configuration of a graph."""

    tone: Literal["calm", "loud"]
    pace: Literal["slow", "fast"] = "fast"
    is_short: bool = False
    name: str = "Ada"


def voice() -> Any:
    """Return a graph that asks whether it may speak, and then says its configuration."""

    async def speak(state: MessagesState, runtime: Runtime[Voice]) -> Any:
        interrupt("May I speak?")
        found = runtime.context
        return {"messages": [AIMessage(f"{found.tone} {found.pace} {found.is_short} {found.name}")]}

    graph: Any = StateGraph(MessagesState, context_schema=Voice)
    graph.add_node("speak", speak)
    graph.add_edge(START, "speak")
    return graph


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"voice": RegisteredAgent(*wrap_graph(voice(), "voice"))}
    async with running(tmp_path_factory.mktemp("options"), registered=agents) as found:
        yield found


def current(result: Wire) -> dict[str, Any]:
    return {each["id"]: each["currentValue"] for each in result["configOptions"]}


async def test_values_of_options_reach_every_run_of_the_agent(gateway: Running) -> None:
    async with editing(gateway.url, "voice", choose("allow")) as editor:
        await editor.initialize(**BOOLEANS)
        created = await editor.call("session/new", **SESSION)
        place = {"sessionId": created["sessionId"]}
        assert current(created) == {"tone": "calm", "pace": "fast", "is_short": False}
        offers = [[each["value"] for each in option.get("options", ())] for option in created["configOptions"]]
        assert offers == [["calm", "loud"], ["slow", "fast"], []]
        for option, value in (("tone", "loud"), ("is_short", True)):
            changed = await editor.call("session/set_config_option", **place, configId=option, value=value)
        assert current(changed) == {"tone": "loud", "pace": "fast", "is_short": True}
        for method in ("session/load", "session/resume"):
            assert current(await editor.call(method, **place, **SESSION)) == current(changed)
        await editor.prompt(place["sessionId"], "Speak.")
        await editor.prompt(place["sessionId"], "yes")  # answers the question, with the same options
        assert editor.text.endswith("loud fast True Ada")


async def test_client_without_booleans_receives_none(gateway: Running) -> None:
    async with editing(gateway.url, "voice") as editor:
        await editor.initialize()
        assert current(await editor.call("session/new", **SESSION)) == {"tone": "calm", "pace": "fast"}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/set_config_option", {"configId": "volume", "value": "loud"}, -32602),
        ("session/set_config_option", {"configId": "tone", "value": "angry"}, -32602),
        ("session/set_config_option", {"configId": "tone", "value": True}, -32602),
        ("session/set_config_option", {"configId": "tone"}, -32602),
        ("session/set_config_option", {"configId": "tone", "value": "loud", "sessionId": "no-such"}, -32002),
        ("session/set_mode", {"modeId": "code"}, -32601),
    ],
)
async def test_wrong_choice_is_refused(gateway: Running, method: str, params: Wire, code: int) -> None:
    async with editing(gateway.url, "voice") as editor:
        await editor.initialize()
        created = await editor.call("session/new", **SESSION)
        with pytest.raises(RpcError) as raised:
            await editor.call(method, **{"sessionId": created["sessionId"], **params})
        assert raised.value.code == code

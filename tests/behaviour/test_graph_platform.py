"""What LangGraph Platform gives to graphs beside their input, and shows of the graphs within them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.gateway.graphs import builder, writes
from tests.gateway.platform import Caller
from tests.running import running


class Told(TypedDict, total=False):
    told: Any
    answer: Any


def configured() -> Any:
    def tell(_: Told, config: RunnableConfig) -> Any:
        given: Any = config.get("configurable", {})
        names = ("model", "x-tenant", "x-other", "assistant_id")
        found = {name: given[name] for name in names if name in given}
        return {"told": {**found, "tags": config.get("tags"), "of": (config.get("metadata") or {}).get("of")}}

    return builder(Told, {"node": tell})


def asking() -> Any:
    """A graph within a graph, which asks."""

    def ask(_: Told) -> Any:
        return {"answer": interrupt("Sure?")}

    inner = builder(Told, {"before": writes({"told": "inside"}), "ask": ask})
    return builder(Told, {"inner": inner.compile()})


@asynccontextmanager
async def served(folder: Path, **graphs: Any) -> AsyncGenerator[Caller]:
    async with running(folder, {name: wrap_graph(graph, name)[1] for name, graph in graphs.items()}) as gateway:
        yield Caller(gateway)


async def test_what_an_assistant_says_is_in_the_config_of_its_graph(tmp_path: Path) -> None:
    async with served(tmp_path, told=configured()) as caller:
        config = {"tags": ["t"], "configurable": {"model": "small"}}
        body = {"graph_id": "told", "config": config, "metadata": {"of": "alice"}}
        made = await caller.post("/assistants", body)
        values = await caller.wait(await caller.thread(), made["assistant_id"], {"told": None})
        assistant_id = made["assistant_id"]
        assert values["told"] == {"model": "small", "assistant_id": assistant_id, "tags": ["t"], "of": "alice"}
        theirs = {"configurable": {"model": "large"}}
        values = await caller.wait(await caller.thread(), assistant_id, {"told": None}, config=theirs)
        assert values["told"]["model"] == "large"


async def test_headers_that_are_let_through_are_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    graph = {"graph": "tests.behaviour.test_graph_platform:configured", "forward": ["X-Tenant"]}
    settings = Settings.model_validate({"agents": {"told": graph}})
    registry = await connect(settings)
    registered = {"told": registry.get("told")}
    assert registered["told"].broken is None
    async with running(tmp_path, registered=registered, configured={"told": graph}) as gateway:
        body = {
            "assistant_id": "told",
            "input": {"told": None},
            "config": {"configurable": {"x-tenant": "mine", "x-other": "said"}},
        }
        sent = {"X-Tenant": "t1", "X-Other": "o"}
        told = (await gateway.http.post("/runs/wait", json=body, headers=sent)).json()["told"]
        assert (told["x-tenant"], told["x-other"]) == ("t1", "said")
        told = (await gateway.http.post("/runs/wait", json={**body, "config": {}}, headers={"X-Other": "o"})).json()
        assert not {"x-tenant", "x-other"} & told["told"].keys()


async def test_the_state_of_the_graph_within_is_shown_to_those_who_ask_for_it(tmp_path: Path) -> None:
    async with served(tmp_path, asking=asking()) as caller:
        thread_id = await caller.thread()
        await caller.wait(thread_id, "asking", {"told": "outside"})
        (task,) = (await caller.state(thread_id))["tasks"]
        assert task["state"] is None
        assert task["checkpoint"]["checkpoint_ns"].startswith("inner:")
        whole = await caller.get(f"/threads/{thread_id}/state?subgraphs=true")
        (task,) = whole["tasks"]
        assert (task["name"], task["checkpoint"]) == ("inner", None)
        assert (task["state"]["values"]["told"], task["state"]["next"]) == ("inside", ["ask"])
        assert [inner["name"] for inner in task["state"]["tasks"]] == ["ask"]
        body = {"checkpoint": whole["checkpoint"], "subgraphs": True}
        assert await caller.post(f"/threads/{thread_id}/state/checkpoint", body) == whole
        await caller.resume(thread_id, "asking", "yes")
        ended = await caller.get(f"/threads/{thread_id}/state?subgraphs=true")
        assert (ended["values"]["answer"], ended["tasks"]) == ("yes", [])

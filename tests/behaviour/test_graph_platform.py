"""LangGraph Platform features: configuration that graphs receive in addition to their input, and the state of
subgraphs.
"""

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


class ConfigState(TypedDict, total=False):
    run_config: Any
    answer: Any


def configured() -> Any:
    def tell(_: ConfigState, config: RunnableConfig) -> Any:
        configurable: Any = config.get("configurable", {})
        names = ("model", "x-tenant", "x-other", "assistant_id")
        values = {name: configurable[name] for name in names if name in configurable}
        return {"run_config": {**values, "tags": config.get("tags"), "of": (config.get("metadata") or {}).get("of")}}

    return builder(ConfigState, {"node": tell})


def asking() -> Any:
    """Return a graph with a subgraph that asks a question."""

    def ask(_: ConfigState) -> Any:
        return {"answer": interrupt("Sure?")}

    inner = builder(ConfigState, {"before": writes({"run_config": "inside"}), "ask": ask})
    return builder(ConfigState, {"inner": inner.compile()})


@asynccontextmanager
async def served(folder: Path, **graphs: Any) -> AsyncGenerator[Caller]:
    async with running(folder, {name: wrap_graph(graph, name)[1] for name, graph in graphs.items()}) as gateway:
        yield Caller(gateway)


async def test_an_assistants_config_reaches_its_graph(tmp_path: Path) -> None:
    async with served(tmp_path, run_config=configured()) as caller:
        config = {"tags": ["t"], "configurable": {"model": "small"}}
        body = {"graph_id": "run_config", "config": config, "metadata": {"of": "alice"}}
        assistant = await caller.post("/assistants", body)
        values = await caller.wait(await caller.thread(), assistant["assistant_id"], {"run_config": None})
        assistant_id = assistant["assistant_id"]
        assert values["run_config"] == {"model": "small", "assistant_id": assistant_id, "tags": ["t"], "of": "alice"}
        override = {"configurable": {"model": "large"}}
        values = await caller.wait(await caller.thread(), assistant_id, {"run_config": None}, config=override)
        assert values["run_config"]["model"] == "large"


async def test_forwarded_headers_are_in_the_configurable_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    graph = {"graph": "tests.behaviour.test_graph_platform:configured", "forward": ["X-Tenant"]}
    settings = Settings.model_validate({"agents": {"run_config": graph}})
    registry = await connect(settings)
    registered = {"run_config": registry.get("run_config")}
    assert registered["run_config"].broken is None
    async with running(tmp_path, registered=registered, configured={"run_config": graph}) as gateway:
        body = {
            "assistant_id": "run_config",
            "input": {"run_config": None},
            "config": {"configurable": {"x-tenant": "mine", "x-other": "said"}},
        }
        sent = {"X-Tenant": "t1", "X-Other": "o"}
        received = (await gateway.http.post("/runs/wait", json=body, headers=sent)).json()["run_config"]
        assert (received["x-tenant"], received["x-other"]) == ("t1", "said")
        received = (await gateway.http.post("/runs/wait", json={**body, "config": {}}, headers={"X-Other": "o"})).json()
        assert not {"x-tenant", "x-other"} & received["run_config"].keys()


async def test_the_state_of_a_subgraph_is_included_on_request(tmp_path: Path) -> None:
    async with served(tmp_path, asking=asking()) as caller:
        thread_id = await caller.thread()
        await caller.wait(thread_id, "asking", {"run_config": "outside"})
        (task,) = (await caller.state(thread_id))["tasks"]
        assert task["state"] is None
        assert task["checkpoint"]["checkpoint_ns"].startswith("inner:")
        whole = await caller.get(f"/threads/{thread_id}/state?subgraphs=true")
        (task,) = whole["tasks"]
        assert (task["name"], task["checkpoint"]) == ("inner", None)
        assert (task["state"]["values"]["run_config"], task["state"]["next"]) == ("inside", ["ask"])
        assert [inner["name"] for inner in task["state"]["tasks"]] == ["ask"]
        body = {"checkpoint": whole["checkpoint"], "subgraphs": True}
        assert await caller.post(f"/threads/{thread_id}/state/checkpoint", body) == whole
        await caller.resume(thread_id, "asking", "yes")
        ended = await caller.get(f"/threads/{thread_id}/state?subgraphs=true")
        assert (ended["values"]["answer"], ended["tasks"]) == ("yes", [])

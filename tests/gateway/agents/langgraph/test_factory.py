"""Tests of functions that create graphs: their parameters, the calls of them, and the use of their results."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.agents.langgraph.signature import can_make_graphs
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.gateway import factories
from tests.gateway.hubs import eventually, within
from tests.gateway.platform import Caller
from tests.running import running

INPUT = {"messages": [{"role": "user", "content": "Hi"}]}
MINT = {"configurable": {"flavour": "mint"}}


@pytest.fixture(autouse=True)
def log() -> list[str]:
    factories.LOG.clear()
    return factories.LOG


@asynccontextmanager
async def served(folder: Path, *names: str, kind: str = "graph", **settings: Any) -> AsyncGenerator[Caller]:
    agents = {name: {kind: f"tests.gateway.factories:{name}"} for name in names}
    async with running(folder, configured=agents, **settings) as gateway:
        yield Caller(gateway)


async def last(caller: Caller, agent: str, **body: Any) -> str:
    values = await caller.wait(await caller.thread(), agent, INPUT, **body)
    return values["messages"][-1]["content"]


REPLIES = {
    "nothing": "nothing",
    "annotated": "annotated",
    "config": "config mint",
    "unannotated": "unannotated",
    "asynchronous": "asynchronous mint",
    "runtime": "runtime threads.create_run None {'flavour': 'mint'}",
    "both": "both mint threads.create_run",
    "plain": "plain mint threads.create_run",
    "blocking": "blocking mint",
    "entered": "entered",
    "needy": "needy mint",
    "contextual": "context {'flavour': 'mint'}",
    "called": "called",
}
"""Reply of the graph of each function to a caller whose configuration says mint."""


async def test_the_factory_builds_a_graph_for_each_run(tmp_path: Path) -> None:
    async with served(tmp_path, *REPLIES) as caller:
        for name, words in REPLIES.items():
            assert await last(caller, name, config=MINT) == words
            assert await last(caller, name, context=MINT["configurable"]) == words


@pytest.mark.parametrize(
    ("name", "is_factory"),
    [(name, True) for name in ("annotated", "config", "unannotated", "asynchronous", "runtime", "both", "entered")]
    + [(name, True) for name in ("blocking", "called", "plain")]
    + [(name, False) for name in ("nothing", "odd", "Called", "says", "MINT")],
)
async def test_an_annotated_factory_needs_no_setting(name: str, is_factory: bool) -> None:
    assert can_make_graphs(getattr(factories, name, MINT)) is is_factory


async def test_an_annotated_factory_works_as_a_python_agent(tmp_path: Path) -> None:
    async with served(tmp_path, "both", kind="python") as caller:
        assert await last(caller, "both", config=MINT) == "both mint threads.create_run"


async def test_a_file_may_be_named_instead_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "from tests.gateway import factories\nfactories.LOG.append('run')\nmake = factories.nothing\n"
    (tmp_path / "my-graphs.py").write_text(source)
    agents = {name: {"graph": "./my-graphs.py:make"} for name in ("a", "b")}
    async with running(tmp_path, configured=agents) as gateway:
        assert await last(Caller(gateway), "b") == "nothing"
    assert factories.LOG == ["run"], "once"


async def test_a_caller_with_a_key_is_the_user(tmp_path: Path) -> None:
    async with served(tmp_path, "runtime", keys={"alice": "a-key"}) as caller:
        caller.gateway.http.headers["x-api-key"] = "a-key"
        assert await last(caller, "runtime") == "runtime threads.create_run alice {}"


async def test_the_factory_receives_the_purpose_of_the_graph(tmp_path: Path, log: list[str]) -> None:
    async with served(tmp_path, "runtime") as caller:
        assert log == ["assistants.read"], "the gateway reads the schemas at its start"
        log.clear()
        thread_id = await caller.thread()
        await caller.wait(thread_id, "runtime", INPUT)
        await caller.update(thread_id, {"messages": [{"role": "user", "content": "More"}]})
        (found,) = await caller.post("/assistants/search", {"graph_id": "runtime"})
        drawn = await caller.get(f"/assistants/{found['assistant_id']}/graph")
        assert [node["id"] for node in drawn["nodes"]] == ["__start__", "say", "__end__"]
        assert await caller.get(f"/assistants/{found['assistant_id']}/subgraphs") == {}
        schemas = await caller.get(f"/assistants/{found['assistant_id']}/schemas")
        assert list(schemas["input_schema"]["properties"]) == ["messages"]
    assert log == ["threads.create_run", "threads.update", "assistants.read", "assistants.read"]


async def test_threads_and_questions_of_a_factory_survive_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path, "asking") as caller:
        thread_id = await caller.thread()
        (question,) = (await caller.wait(thread_id, "asking", INPUT, config=MINT))["__interrupt__"]
        assert question["value"] == "Name?"
    async with served(tmp_path, "asking") as caller:
        values = await caller.resume(thread_id, "asking", "Ann", config=MINT)
        assert [message["content"] for message in values["messages"]] == ["Hi", "mint: Ann"]
        assert (await caller.state(thread_id))["next"] == []


async def test_a_context_manager_is_left_after_its_run(tmp_path: Path, log: list[str]) -> None:
    async with served(tmp_path, "entered", "blocking") as caller:
        log.clear()
        await last(caller, "entered")
        assert log == ["in", "out"]
        log.clear()
        await last(caller, "blocking")
        assert log == ["in False", "out"], "a blocking factory must not block the gateway"


async def test_a_failure_suppressed_by_the_context_manager_is_reported(tmp_path: Path, log: list[str]) -> None:
    async with served(tmp_path, "failing") as caller:
        log.clear()
        thread_id = await caller.thread()
        body = {"assistant_id": "failing", "input": INPUT}
        answer = await caller.post(f"/threads/{thread_id}/runs/wait", body)
    assert answer == {"__error__": {"error": "ValueError", "message": "no more"}}
    assert log == ["in False", "failed no more", "out"]


async def test_a_cancelled_run_leaves_its_context_manager(tmp_path: Path, log: list[str]) -> None:
    async with served(tmp_path, "waiting") as caller:
        log.clear()
        thread_id = await caller.thread()
        run = await caller.post(f"/threads/{thread_id}/runs", {"assistant_id": "waiting", "input": INPUT})
        await within(eventually(lambda: log == ["waits"]), "the node")
        await caller.post(f"/threads/{thread_id}/runs/{run['run_id']}/cancel?wait=true")
        assert log == ["waits", "out"]


async def test_a_factory_that_needs_a_config_is_served_without_schemas(tmp_path: Path) -> None:
    async with served(tmp_path, "needy") as caller:
        assert await last(caller, "needy", config=MINT) == "needy mint"
        failed = await caller.wait(await caller.thread(), "needy", INPUT)
        assert failed == {"__error__": {"error": "KeyError", "message": "'flavour'"}}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong", "a value of type int is not a graph"),
        ("odd", "a function that makes a graph takes a RunnableConfig and a ServerRuntime, and not 'other'"),
        ("LOG", "a value of type list is not a graph"),
        ("absent", "the module tests.gateway.factories has no absent"),
    ],
)
async def test_a_factory_that_returns_no_graph_is_broken(name: str, reason: str) -> None:
    settings = Settings.model_validate({"agents": {"a": {"graph": f"tests.gateway.factories:{name}"}}})
    (found,) = (await connect(settings)).all()
    assert found.broken is not None
    assert reason in found.broken


# The store


async def test_a_graph_uses_the_store_of_its_caller(tmp_path: Path) -> None:
    async with served(tmp_path, "memory", keys={"alice": "a-key", "bob": "b-key"}) as caller:
        http = caller.gateway.http
        for key, count in (("a-key", 1), ("a-key", 2), ("b-key", 1)):
            http.headers["x-api-key"] = key
            messages = (await caller.wait(await caller.thread(), "memory", INPUT))["messages"]
            first, second = messages[-2]["content"], messages[-1]["content"]
            assert first.startswith(f"{count} ")
            assert "'count'" in first
            assert second.startswith("['k', 'count'] [('notes', 'deep')]")
        http.headers["x-api-key"] = "a-key"
        found = (await http.get("/store/items", params={"key": "count", "namespace": "notes"})).json()
        assert found["value"] == {"n": 2}, "callers of the store must see the items"

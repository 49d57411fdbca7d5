"""Tests of graphs in separate processes: each result equals that of the same graph in the gateway's process."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway.agents.processes import agent as module
from babelgate.gateway.agents.processes.agent import ProcessAgent
from babelgate.gateway.agents.processes.process import Unstartable
from tests.gateway.agents.langgraph.test_frames import Names
from tests.gateway.platform import Caller, Thread, begin
from tests.gateway.talk import within
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

GRAPHS: Final = "tests.gateway.agents.processes.graphs"
MODES: Final = ("values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "events")
_UNEQUAL: Final = ("created_at", "updated_at", "assistant_id", "graph_id", "run_attempt", "timestamp", "ts")
"""Names of members that differ between two runs of the same graph."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def graphs(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Caller]:
    """Caller of a gateway with the same graph in its process (`here`) and in another one (`away`)."""
    agents = {
        "here": {"graph": f"{GRAPHS}:talk"},
        "away": {"graph": f"{GRAPHS}:talk", "process": True},
        "echo": {"python": "babelgate.gateway.demo:echo"},
    }
    async with running(tmp_path_factory.mktemp("graphs"), configured=agents) as gateway:
        yield Caller(gateway)


def user_input(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text, "id": "h1"}]}


def _comparable(value: Any) -> Any:
    """Return JSON without the members and the names that differ between two agents."""
    if isinstance(value, dict):
        members: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {name: _comparable(member) for name, member in members.items() if name not in _UNEQUAL}
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return "agent" if value in ("here", "away") else value


async def streams(thread: Thread) -> Any:
    return await thread.stream(user_input("hey "), *MODES)


async def answers(thread: Thread) -> Any:
    question = await thread.stream(user_input("ask "), *MODES)
    return [question, await thread.state(), await thread.stream(None, *MODES, command={"resume": "Ann"})]


async def reads_the_history(thread: Thread) -> Any:
    await thread.wait(user_input("ask "))
    history = await thread.history()
    return [history, await thread.state(history[-2]["checkpoint"]["checkpoint_id"]), await thread.status()]


async def changes_the_state(thread: Thread) -> Any:
    await thread.wait(user_input("ask "))
    update = {"items": ["more"], "messages": [{"role": "user", "content": "hey ", "id": "h1"}]}
    await thread.update(update, as_node="speak")
    return [await thread.state(), await thread.wait(None), await thread.history()]


async def refuses_a_change(thread: Thread) -> Any:
    url = f"/threads/{thread.thread_id}/state"
    await thread.wait(user_input("ask "))
    answer = await thread.caller.gateway.http.post(url, json={"values": {"items": ["x"]}, "as_node": "nobody"})
    return [answer.status_code, answer.json()]


async def branches(thread: Thread) -> Any:
    await thread.wait(user_input("ask "))
    first = (await thread.history())[-1]["checkpoint"]["checkpoint_id"]
    return [await thread.wait(None, checkpoint_id=first), await thread.history()]


async def stores_an_item(thread: Thread) -> Any:
    await thread.wait(user_input("note"))
    return await thread.caller.post("/store/items/search", {"namespace_prefix": ["notes"]})


async def is_described(thread: Thread) -> Any:
    found = await thread.caller.post("/assistants/search", {"graph_id": thread.graph})
    url = f"/assistants/{found[0]['assistant_id']}"
    below = ("graph?xray=true", "subgraphs?recurse=true", "schemas")
    return [await thread.caller.get(f"{url}/{each}") for each in below]


async def keeps_only_the_last_state(thread: Thread) -> Any:
    await thread.wait(user_input("ask "), durability="exit")
    return await thread.history()


async def reports_an_error(thread: Thread) -> Any:
    return [await thread.stream(user_input("fail"), "values", "updates"), await thread.state()]


@pytest.mark.parametrize(
    "scenario",
    [
        streams,
        answers,
        reads_the_history,
        changes_the_state,
        refuses_a_change,
        branches,
        stores_an_item,
        is_described,
        keeps_only_the_last_state,
        reports_an_error,
    ],
)
async def test_a_graph_in_a_process_behaves_as_in_the_gateway(
    scenario: Callable[[Thread], Awaitable[Any]], graphs: Caller
) -> None:
    pid = (await graphs.wait(await graphs.thread(), "away", user_input("hey ")))["items"][-1]
    assert int(pid) != os.getpid()
    results: list[Any] = []
    for name, pid_here in (("here", str(os.getpid())), ("away", pid)):
        result = Names()(_comparable(await scenario(await begin(graphs, name))))
        results.append(_without_pid(result, pid_here))
    assert results[0] == results[1]


def _without_pid(value: Any, pid: str) -> Any:
    """Return JSON in which a text that is a process id is replaced."""
    if isinstance(value, dict):
        return {key: _without_pid(member, pid) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_without_pid(each, pid) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return "pid" if value == pid else value


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("exit", "The process of agent away ended with status 3 during the run."),
        ("kill", "The process of agent away was killed by SIGKILL during the run."),
        ("fail", "a failure of the graph"),
    ],
)
async def test_a_graph_that_ends_badly_fails_its_run_alone(end: str, message: str, graphs: Caller) -> None:
    thread = await begin(graphs, "away")
    body = {"assistant_id": "away", "input": user_input(end)}
    failed, other = await asyncio.gather(
        graphs.gateway.http.post(f"/threads/{thread.thread_id}/runs/wait", json=body),
        graphs.wait(await graphs.thread(), "echo", user_input("hi")),
    )
    assert message in failed.text
    assert other["messages"][-1]["content"] == "hi"
    assert (await thread.state())["values"]["items"] == [end] * 3, "the steps before the end are stored"
    assert "items" in await thread.wait(user_input("hey "))


async def test_a_graph_that_blocks_its_process_is_without_pid(graphs: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PONG", 0.1)
    thread, http = await begin(graphs, "away"), graphs.gateway.http
    body = {"assistant_id": "away", "input": user_input("bloc"), "stream_mode": "updates"}
    async with http.stream("POST", f"/threads/{thread.thread_id}/runs/stream", json=body) as response:
        run_id = response.headers["content-location"].rpartition("/")[2]
        async for line in response.aiter_lines():
            if '"inner"' in line:
                break
        assert (await graphs.wait(await graphs.thread(), "echo", user_input("hi")))["messages"][-1]["content"] == "hi"
        await graphs.post(f"/threads/{thread.thread_id}/runs/{run_id}/cancel?wait=true")
    await within(_until_usable(thread))


async def _until_usable(thread: Thread) -> None:
    """Run the graph until it succeeds. A run that reaches the blocked process fails when that is killed."""
    while "items" not in await thread.wait(user_input("hey ")):
        pass


@pytest.mark.slow
async def test_an_interrupted_run_continues_in_the_next_process(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    agents = {"patient": {"graph": f"{GRAPHS}:patient", "process": True, "idempotent": True}}
    async with running(tmp_path, configured=agents) as gateway:
        thread = await begin(Caller(gateway), "patient")
        body = {
            "assistant_id": "patient",
            "input": user_input(str(pipe)),
            "stream_mode": "updates",
            "on_disconnect": "continue",
        }
        async with gateway.http.stream("POST", f"/threads/{thread.thread_id}/runs/stream", json=body) as response:
            run_id = response.headers["content-location"].rpartition("/")[2]
            async for line in response.aiter_lines():
                if '"first"' in line:
                    break
    async with running(tmp_path, configured=agents) as gateway:
        await within(asyncio.to_thread(pipe.write_text, "through"))
        values = await Caller(gateway).get(f"/threads/{thread.thread_id}/runs/{run_id}/join")
        assert values["items"] == ["first", "through"]


async def test_an_object_that_is_no_graph_is_broken() -> None:
    remote = ProcessAgent(f"{GRAPHS}:operator", "agent", is_graph=True, replay=True, patience=60, memory=None)
    with pytest.raises(Unstartable, match="a value of type module is not a graph"):
        await remote.open()

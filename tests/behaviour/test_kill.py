"""Gateways killed with SIGKILL.

After the restart, everything acknowledged or shown is there. Runs continue unnoticed by their callers, or end with an
error that says why they cannot.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical.event import UpstreamBound
from tests.gateway.hubs import eventually, within
from tests.gateway.scene import Company, Scene, together, was_cut
from tests.gateway.stage import Nursery, Puppets, Stage, nursery, puppets
from tests.gateway.victim import ask, paced
from tests.pairs.a2a import JsonRpc03, JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.ag_ui import AgUi
from tests.pairs.agent_client import AgentClient
from tests.pairs.anthropic import Anthropic
from tests.pairs.caller import Caller
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.mcp import Mcp
from tests.pairs.openai import Responses
from tests.pairs.runtime import Runtime
from tests.running import running
from tests.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True)
class Theatre:
    nursery: Nursery
    puppets: Puppets
    upstream: str
    """URL of a gateway that is never killed."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theatre(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Theatre]:
    async with (
        puppets() as strings,
        running(tmp_path_factory.mktemp("upstream"), {"paced": paced, "ask": ask}) as upstream,
        nursery() as born,
    ):
        yield Theatre(born, strings, upstream.url)


@pytest_asyncio.fixture(loop_scope="module")
async def stage(theatre: Theatre, tmp_path: Path) -> AsyncGenerator[Stage]:
    theatre.puppets.order.clear()
    theatre.puppets.ending = False
    here = "tests.gateway.victim:"
    far = {"url": f"{theatre.upstream}/acp", "protocol": "acp"}
    agents: dict[str, Any] = {
        "echo": {"python": "babelgate.gateway.demo:echo"},
        "ask": {"python": here + "ask"},
        "approve": {"python": here + "approve"},
        "paced": {"python": here + "paced"},
        "stubborn": {"python": here + "stubborn"},
        "single": {"python": here + "paced", "concurrency": 1},
        "again": {"python": here + "paced", "idempotent": True},
        "far": {**far, "agent": "paced"},
        "far-ask": {**far, "agent": "ask"},
        "far-a2a": {"url": f"{theatre.upstream}/a2a/paced", "protocol": "a2a"},
        "far-langgraph": {"url": theatre.upstream, "protocol": "langgraph", "agent": "paced"},
    }
    new_stage = Stage(tmp_path, theatre.nursery, {"agents": agents, "limits": {"cancel_grace": 60}})
    yield new_stage
    theatre.puppets.end_all()  # calls of the upstream, which still runs
    await new_stage.close()


@pytest.mark.parametrize(("frames", "twice"), [(17, False), (98, True), (230, False)])
async def test_runs_continue_after_a_kill(theatre: Theatre, stage: Stage, frames: int, twice: bool) -> None:
    await stage.start()
    company = Company(stage, theatre.puppets, frames)
    assert len(company.parts) > 50
    await company.play()
    await company.restart()
    if twice:  # while the resumed runs have hardly begun
        await theatre.puppets.called(company.queue[1].text)
        await company.restart()
    await company.check_stopped(cut=2 if twice else 1)
    await company.check_queue(cut=2 if twice else 1)
    await company.check_resume()
    await company.check_last_moment()
    await company.check_kept()
    await company.check_that_another_kill_changes_nothing()
    await company.check_paused()
    await company.check_kept()
    assert "Traceback" not in stage.complaints()


@pytest.mark.parametrize("frames", [7, 61])
async def test_acknowledged_runs_continue_after_a_kill_at_their_start(
    theatre: Theatre, stage: Stage, frames: int
) -> None:
    await stage.start()
    theatre.puppets.ending = True
    scene = Scene(stage, theatre.puppets, frames, seed=frames)
    scene.moment.armed = True
    for agent in ("echo", "ask", "far-ask", "paced", "single", "again", "far", "stubborn"):
        scene.cast(agent, 7)
    scene.random.shuffle(scene.parts)
    await together([part.play(scene.moment.tick) for part in scene.parts])
    assert stage.dead and scene.acknowledged

    scene.move(await stage.restart())
    for part in scene.acknowledged:
        view = await part.settle()
        if part.agent.endswith("ask"):
            assert view.state == "input_required" or was_cut(view)
        elif part.agent == "again":
            assert view.state == "completed"
        else:
            assert view.state == "completed" or was_cut(view)
        if view.state == "completed" and part.agent in ("paced", "single", "again", "far"):
            texts = [puppet.content for puppet in theatre.puppets.order if puppet.text == part.text]
            assert view.text == texts[-1] if part.agent == "again" else [view.text] == texts
    await scene.check_kept()
    await scene.check_that_another_kill_changes_nothing()
    for part in scene.acknowledged:
        paused = await part.caller.look(part.task_id)
        if paused.questions:
            view = await part.caller.answer(paused, "Ada")
            assert (view.state, view.text) == ("completed", "Hello, Ada.")
    assert "Traceback" not in stage.complaints()


@pytest.mark.parametrize("caller_class", [Acp, AgUi, JsonRpc10])
async def test_a_question_is_answered_after_a_kill(stage: Stage, caller_class: type[Caller]) -> None:
    caller = caller_class(await stage.start(), "approve")
    first = await caller.send("go")
    caller.http = await stage.restart()
    second = await caller.answer(first, "Ada")
    assert [question.text for question in second.questions] == ["Second?"]
    caller.http = await stage.restart()
    assert await caller.look(second.task_id) == second
    view = await caller.answer(second, "Bob")
    assert (view.state, view.text) == ("completed", "Two questions. Ada and Bob.")


# Agents behind the gateway


BEHIND: Final = {"mcp": "/mcp", "anthropic": "/anthropic", "openai": "/v1", "ag-ui": "/ag-ui/paced"}
"""Path of the upstream for each protocol, besides those of `Company`."""
FINDS_TASKS: Final = frozenset({"mcp"})
"""Protocols of `BEHIND` in which the next gateway finds the run again."""
READERS: Final = (
    Acp,
    JsonRpc03,
    JsonRpc10,
    LangGraph,
    AgentProtocol,
    Runtime,
    Responses,
    Anthropic,
    Mcp,
    AgUi,
    AgentClient,
)


def behind(upstream: str) -> dict[str, Any]:
    """Return the settings of an agent for each protocol, and of one that can be started again."""
    found: dict[str, Any] = {
        protocol: {"url": upstream + path, "protocol": protocol, "agent": "paced"} for protocol, path in BEHIND.items()
    }
    return {**found, **{f"{name}-again": {**settings, "idempotent": True} for name, settings in found.items()}}


@pytest_asyncio.fixture(loop_scope="module")
async def front(theatre: Theatre, tmp_path: Path) -> AsyncGenerator[Stage]:
    """A gateway in front of an agent of each kind."""
    theatre.puppets.order.clear()
    theatre.puppets.ending = False
    new_stage = Stage(tmp_path, theatre.nursery, {"agents": behind(theatre.upstream)})
    yield new_stage
    theatre.puppets.end_all()
    await new_stage.close()


async def test_a_run_behind_has_one_end_after_a_kill(theatre: Theatre, front: Stage) -> None:
    """Kill the gateway while an agent of each kind runs behind it. Each run continues, starts again or is cut off, and
    every protocol shows the same end."""
    agents = behind(theatre.upstream)
    http = await front.start()
    async with AsyncExitStack() as stack:
        feeds = {name: await stack.enter_async_context(Acp(http, name).stream(name)) for name in agents}
        first = {name: await theatre.puppets.called(name) for name in agents}
        for puppet in first.values():
            puppet.say(2)
        await within(eventually(lambda: len(bound(front)) >= 2 * len(FINDS_TASKS)), "the ids of tasks")
        await front.killed()
    theatre.puppets.ending = True  # of runs that start again
    http = await front.start()
    for name, puppet in first.items():
        if name.removesuffix("-again") in FINDS_TASKS:
            puppet.say(2)
            puppet.end()
    for name, feed in feeds.items():
        protocol = name.removesuffix("-again")
        async with Acp(http, name).reconnect(feed) as back:
            end = await back.end()
        starts = [puppet for puppet in theatre.puppets.order if puppet.text == name]
        if protocol not in FINDS_TASKS and protocol == name:
            assert was_cut(end) and len(starts) == 1, (name, end)
        else:
            assert (end.state, end.text) == ("completed", starts[-1].content), name
            assert len(starts) == (1 if protocol in FINDS_TASKS else 2), name
        for reader in READERS:
            view = await reader(http, name).look(feed.ids.task)
            assert (view.state, view.text, view.fault) == (end.state, end.text, end.fault), (name, reader.name)
    assert "Traceback" not in front.complaints()


def bound(stage: Stage) -> Sequence[str]:
    """Return the ids of the tasks that the gateway has logged of its upstream."""
    events = [record.event for record in stage.records("SELECT pk FROM thread")]
    return [event.ids["task"] for event in events if isinstance(event, UpstreamBound) and "task" in event.ids]


# The first byte of an answer


def acp_message(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"content": text}]}


def a2a_call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def a2a_message(text: str, **more: Any) -> dict[str, Any]:
    return {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **more}


Post = tuple[str, Any]


def creates(_: Sequence[str]) -> list[Post]:
    acp: list[Post] = [
        ("/acp/runs", {"agent_name": "echo", "input": [acp_message(f"{mode}-{number}")], "mode": mode})
        for number in range(3)
        for mode in ("async", "sync", "stream")
    ]
    a2a: list[Post] = [
        ("/a2a/echo", a2a_call(method, message=a2a_message(f"{method}-{number}")))
        for number in range(3)
        for method in ("SendMessage", "SendStreamingMessage")
    ]
    return [*acp, *a2a]


def answers(tasks: Sequence[str]) -> list[Post]:
    resume = {"type": "message", "message": acp_message("Ada")}
    return [
        (f"/acp/runs/{task}", {"await_resume": resume, "mode": "async"})
        if number % 2
        else ("/a2a/ask", a2a_call("SendMessage", message=a2a_message(task, taskId=task)))
        for number, task in enumerate(tasks)
    ]


def cancels(tasks: Sequence[str]) -> list[Post]:
    return [
        (f"/acp/runs/{task}/cancel", None) if number % 2 else ("/a2a/ask", a2a_call("CancelTask", id=task))
        for number, task in enumerate(tasks)
    ]


def webhooks(tasks: Sequence[str]) -> list[Post]:
    config = {"id": "mine", "url": "http://127.0.0.1:9/hook"}
    return [("/a2a/ask", a2a_call("CreateTaskPushNotificationConfig", taskId=task, **config)) for task in tasks]


class Shots:
    """Requests sent at once; the gateway is killed at the first byte of the first response."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._url = stage.http.base_url
        self.acknowledged: list[str] = []
        """Tasks named in the headers of responses."""

    async def post(self, post: Post) -> None:
        path, body = post
        content = b"" if body is None else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._url.host}\r\nA2A-Version: 1.0\r\nContent-Length: {len(content)}"
        reader, writer = await asyncio.open_connection(self._url.host, self._url.port)
        response = b""
        with suppress(OSError):
            writer.write(head.encode() + b"\r\n\r\n" + content)
            response = await within(reader.read(1), "the first byte")
            self._stage.kill()
            while more := await within(reader.read(65536), "the end of the connection"):
                response += more
        writer.close()
        if response:
            status, *headers = response.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
            assert status.split()[1] in ("200", "202"), response
            named = dict(header.split(": ", 1) for header in headers)
            self.acknowledged.append(named["babelgate-task"])


@pytest.mark.parametrize(
    ("posts", "rows"),
    [
        pytest.param(
            creates,
            "SELECT task.task_id FROM task JOIN run USING (task_id) JOIN event "
            "ON event.thread_pk = run.thread_pk AND event.run_id = '#' || run.first_seq",
            id="create",
        ),
        pytest.param(answers, "SELECT task_id FROM interrupt WHERE action = 'answer'", id="answer"),
        pytest.param(cancels, "SELECT task_id FROM task WHERE state IN ('cancelling', 'cancelled')", id="cancel"),
        pytest.param(webhooks, "SELECT task_id FROM webhook", id="webhook"),
    ],
)
async def test_a_change_is_stored_before_the_response_begins(
    stage: Stage, posts: Callable[[Sequence[str]], list[Post]], rows: str
) -> None:
    http = await stage.start()
    task_ids = [] if posts is creates else [(await Acp(http, "ask").send("go")).task_id for _ in range(8)]
    shots = Shots(stage)
    await together([shots.post(post) for post in posts(task_ids)])
    await stage.killed()
    assert shots.acknowledged
    assert set(shots.acknowledged) <= {task_id for (task_id,) in stage.rows(rows)}


# Webhooks


class Receiver:
    """A receiver of push notifications, which acknowledges them only while it is open."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.open = asyncio.Event()
        self.refuses = False
        """True if the receiver refuses each notification with a retry time that is hours away."""
        self._news = asyncio.Condition()

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event["more_body"]:
                break
        self.updates.append(json.loads(body))
        async with self._news:
            self._news.notify_all()
        if self.refuses:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"7200")]})
        else:
            await self.open.wait()
            await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def has(self, reached: Callable[[], bool]) -> None:
        async with self._news:
            await within(self._news.wait_for(reached), f"a delivery after {self.updates}")


async def test_pending_webhook_deliveries_continue_in_order_after_a_kill(stage: Stage) -> None:
    caller = JsonRpc10(await stage.start(), "ask")
    receiver = Receiver()
    async with serving(receiver) as url:
        hook = {"taskPushNotificationConfig": {"url": f"{url}/hook"}}
        call = a2a_call("SendMessage", message=a2a_message("go"), configuration=hook)
        answered = await caller.http.post("/a2a/ask", json=call, headers={"A2A-Version": "1.0"})
        task_id: str = answered.json()["result"]["task"]["id"]
        await receiver.has(lambda: len(receiver.updates) == 1)  # and it does not acknowledge it
        caller.http = await stage.restart()
        receiver.open.set()
        await receiver.has(lambda: waits_for_input(receiver.updates[-1]))
        receiver.open.clear()
        paused = await caller.look(task_id)
        assert (await caller.answer(paused, "Ada")).state == "completed"
        caller.http = await stage.restart()
        receiver.open.set()
        async with caller.replay(task_id) as whole:
            await whole.end()
        updates = [json.loads(frame.removeprefix(b"data: "))["result"] for frame in whole.frames]
        await receiver.has(lambda: receiver.updates[-1] == updates[-1])
    order = [updates.index(update) for update in receiver.updates]
    assert set(order) == set(range(len(updates)))
    assert order[:2] == [0, 0] and all(later <= earlier + 1 for earlier, later in pairwise(order))


def waits_for_input(update: Any) -> bool:
    return update.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_INPUT_REQUIRED"


async def test_a_kill_does_not_change_a_webhooks_next_try(stage: Stage) -> None:
    tries = "SELECT failures, next_try, reason, done FROM webhook WHERE webhook_id = 'first'"

    async def submit(text: str, url: str, webhook_id: str) -> str:
        hook = {"taskPushNotificationConfig": {"id": webhook_id, "url": f"{url}/hook"}}
        call = a2a_call("SendMessage", message=a2a_message(text), configuration=hook)
        answered = await stage.http.post("/a2a/echo", json=call, headers={"A2A-Version": "1.0"})
        task_id: str = answered.json()["result"]["task"]["id"]
        return task_id

    await stage.start()
    first, second = Receiver(), Receiver()
    second.open.set()
    first.refuses = True
    async with serving(first) as url, serving(second) as other:
        await submit("go", url, "first")
        await within(eventually(lambda: stage.rows(tries)[0][0] == 1), "the failed try")
        failed = stage.rows(tries)
        await stage.restart()
        await submit("after the kill", other, "second")  # due deliveries are made
        await second.has(lambda: "TASK_STATE_COMPLETED" in str(second.updates[-1:]))
        assert (stage.rows(tries), len(first.updates)) == (failed, 1)
        await stage.killed()
        with closing(sqlite3.connect(stage.folder / "gateway.db")) as database:
            database.execute("UPDATE webhook SET next_try = 1 WHERE webhook_id = 'first'")
            database.commit()
        await stage.start()
        await within(eventually(lambda: stage.rows(tries)[0][0] == 2), "the second try")
    assert first.updates[0] == first.updates[1]

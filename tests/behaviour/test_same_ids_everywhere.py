"""Two owners with the same ids, in every protocol that lets callers choose ids.

Each owner has a separate run, stream, question and webhook, and the requests of one do not affect the other.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from babelgate.canonical.value import JsonObject
from tests import loopback
from tests.adapters.a2a.receiver import Received, Receiver, receiving
from tests.gateway.hubs import Activation, Scripted, check_invariants, within
from tests.gateway.log_capture import capture_log
from tests.gateway.owning import STEPS
from tests.running import running

THREAD: Final = str(uuid4())
KEYS: Final = {"alice": "alice-0123456789-key", "bob": "bob-0123456789-key"}
V1: Final = {"A2A-Version": "1.0"}


@dataclass
class Site:
    agent: Scripted
    clients: Mapping[str, httpx.AsyncClient]
    hooks: Mapping[str, Receiver]


@asynccontextmanager
async def two_owners(folder: Path) -> AsyncGenerator[Site]:
    agent = Scripted()
    with capture_log() as log:
        async with (
            running(folder, {"a": agent}, keys=KEYS) as gateway,
            receiving() as alices,
            receiving() as bobs,
            _client(gateway.url, "alice") as alice,
            _client(gateway.url, "bob") as bob,
        ):
            yield Site(agent, {"alice": alice, "bob": bob}, {"alice": alices, "bob": bobs})
            await check_invariants(gateway.hub)
    assert log.errors == []


def _client(url: str, owner: str) -> httpx.AsyncClient:
    return loopback.client(base_url=url, headers={"Authorization": f"Bearer {KEYS[owner]}"}, timeout=30)


@dataclass(frozen=True)
class Protocol:
    """Requests of a caller in one protocol, on the thread of the chosen id.

    `{run}` and `{task}` are the gateway's ids.
    """

    begin: Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]
    """Request that starts a run and is answered when the run stops."""
    cancel: str
    look: str
    prepare: Callable[[httpx.AsyncClient, Scripted], Awaitable[object]] | None = None
    answer: Callable[[httpx.AsyncClient, Activation, str], Awaitable[httpx.Response]] | None = None
    pushes: bool = False
    derived: bool = False
    """True if the id of the run is derived from the thread's."""


async def _post(client: httpx.AsyncClient, path: str, body: JsonObject | None = None) -> httpx.Response:
    return await client.post(path, json=body, headers=V1)


def _graph(prefix: str, named: str) -> Protocol:
    runs = f"{prefix}/threads/{THREAD}/runs"
    more = {} if prefix else {"if_not_exists": "create"}

    async def prepare(client: httpx.AsyncClient, agent: Scripted) -> None:
        if prefix:
            assert (await _post(client, "/threads", {"thread_id": THREAD})).status_code == 200

    async def begin(client: httpx.AsyncClient, hook: str) -> httpx.Response:
        body = {named: "a", "input": "hi", "stream_mode": ["messages", "values"], "webhook": hook, **more}
        return await _post(client, f"{runs}/stream", body)

    async def answer(client: httpx.AsyncClient, activation: Activation, words: str) -> httpx.Response:
        return await _post(client, f"{runs}/stream", {named: "a", "command": {"resume": words}})

    cancel, look = f"{runs}/{{run}}/cancel", f"{prefix}/threads/{THREAD}/state"
    return Protocol(begin, cancel, look, prepare=prepare, answer=answer, pushes=True)


def _acp() -> Protocol:
    async def begin(client: httpx.AsyncClient, hook: str) -> httpx.Response:
        messages = [{"role": "user", "parts": [{"content": "hi"}]}]
        return await _post(
            client, "/acp/runs", {"agent_name": "a", "input": messages, "session_id": THREAD, "mode": "stream"}
        )

    async def answer(client: httpx.AsyncClient, activation: Activation, words: str) -> httpx.Response:
        resume = {"message": {"role": "user", "parts": [{"content": words}]}}
        body = {"run_id": activation.call.task_id, "await_resume": resume, "mode": "stream"}
        return await _post(client, f"/acp/runs/{activation.call.task_id}", body)

    return Protocol(begin, "/acp/runs/{task}/cancel", "/acp/runs/{task}", answer=answer)


def _a2a() -> Protocol:
    def message(words: str, **more: Any) -> JsonObject:
        return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": words}], "contextId": THREAD, **more}

    async def begin(client: httpx.AsyncClient, hook: str) -> httpx.Response:
        push = {"taskPushNotificationConfig": {"id": "w", "url": hook}}
        return await _post(client, "/a2a/a/message:stream", {"message": message("hi"), "configuration": push})

    async def answer(client: httpx.AsyncClient, activation: Activation, words: str) -> httpx.Response:
        return await _post(client, "/a2a/a/message:stream", {"message": message(words, taskId=activation.call.task_id)})

    return Protocol(begin, "/a2a/a/tasks/{task}:cancel", "/a2a/a/tasks/{task}", answer=answer, pushes=True)


def _aief() -> Protocol:
    async def prepare(client: httpx.AsyncClient, agent: Scripted) -> None:
        """Create a task on the chosen thread whose first step is still to come."""
        body = {"assistant_id": "a", "if_not_exists": "create"}
        waiting = asyncio.ensure_future(_post(client, f"/threads/{THREAD}/runs/wait", body))
        activation = await agent.called()
        activation.end()
        await within(waiting)
        assert (await client.delete(f"/threads/{THREAD}/runs/{activation.call.run_id}")).is_success

    async def begin(client: httpx.AsyncClient, hook: str) -> httpx.Response:
        return await _post(client, f"{STEPS}/{THREAD}/steps", {"input": "hi"})

    async def answer(client: httpx.AsyncClient, activation: Activation, words: str) -> httpx.Response:
        return await _post(client, f"{STEPS}/{THREAD}/steps", {"input": words})

    look = f"{STEPS}/{THREAD}/steps"
    return Protocol(begin, f"/threads/{THREAD}/runs/{{run}}/cancel", look, prepare, answer, derived=True)


PROTOCOLS: Final = {
    "langgraph": _graph("", "assistant_id"),
    "agent-protocol": _graph("/agent-protocol", "agent_id"),
    "acp": _acp(),
    "a2a": _a2a(),
    "aief": _aief(),
}


@dataclass
class Begun:
    """Running request and agent call of each owner."""

    activations: dict[str, Activation] = field(default_factory=dict[str, Activation])
    answers: "dict[str, asyncio.Future[httpx.Response]]" = field(
        default_factory=dict[str, "asyncio.Future[httpx.Response]"]
    )


async def begin_both(site: Site, protocol: Protocol) -> Begun:
    begun = Begun()
    for owner, client in site.clients.items():
        if protocol.prepare is not None:
            await protocol.prepare(client, site.agent)
        begun.answers[owner] = asyncio.ensure_future(protocol.begin(client, site.hooks[owner].url))
        begun.activations[owner] = activation = await site.agent.called()
        assert (activation.call.owner, activation.call.thread_id) == (owner, THREAD)
    ids = {activation.call.run_id for activation in begun.activations.values()}
    assert len(ids) == (1 if protocol.derived else 2)
    return begun


def path(text: str, activation: Activation) -> str:
    return text.format(run=activation.call.run_id, task=activation.call.task_id)


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_a_cancel_or_delete_does_not_affect_the_other_owner(tmp_path: Path, name: str) -> None:
    protocol = PROTOCOLS[name]
    async with two_owners(tmp_path) as site:
        begun = await begin_both(site, protocol)
        hers, his = begun.activations["alice"], begun.activations["bob"]
        alice, bob = site.clients["alice"], site.clients["bob"]
        his.say("Bob's words")
        hers.say("Alice's words")
        assert (await _post(bob, path(protocol.cancel, his))).is_success
        text = (await within(begun.answers["bob"])).text
        assert "Alice" not in text
        await within(his.closed.wait())
        assert not hers.cancelled.is_set() and not begun.answers["alice"].done()
        assert (await bob.get(path(protocol.look, his), headers=V1)).status_code == 200
        if not protocol.derived:  # then the path is the same
            assert (await bob.get(path(protocol.look, hers), headers=V1)).text.count("Alice") == 0
        assert (await bob.delete(f"/threads/{THREAD}")).status_code == 204
        assert (await bob.get(path(protocol.look, his), headers=V1)).status_code == 404
        assert not hers.cancelled.is_set() and not begun.answers["alice"].done()
        hers.say("and more").end()
        text = (await within(begun.answers["alice"])).text
        assert "Alice's words" in text and "and more" in text and "Bob" not in text
        view = await alice.get(path(protocol.look, hers), headers=V1)
        assert "Alice's words" in view.text and "Bob" not in view.text
        if protocol.pushes:
            pushes: list[Received] = await site.hooks["alice"].until("and more")
            assert not any("Bob" in str(each.body) for each in pushes)


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_each_owner_answers_a_separate_question(tmp_path: Path, name: str) -> None:
    protocol = PROTOCOLS[name]
    assert protocol.answer is not None
    async with two_owners(tmp_path) as site:
        begun = await begin_both(site, protocol)
        for activation in begun.activations.values():
            activation.ask("q").end()
        for answered in begun.answers.values():
            assert (await within(answered)).status_code == 200
        answers: dict[str, asyncio.Future[httpx.Response]] = {}
        again: dict[str, Activation] = {}
        for owner in ("bob", "alice"):
            replying = protocol.answer(site.clients[owner], begun.activations[owner], f"of {owner}")
            answers[owner] = asyncio.ensure_future(replying)
            again[owner] = await site.agent.called()
            assert (again[owner].call.owner, again[owner].call.task_id) == (
                owner,
                begun.activations[owner].call.task_id,
            )
            assert f"of {owner}" in str(again[owner].call.answers[0].value)
        again["bob"].say("Hello, Bob").end()
        assert "Hello, Bob" in (await within(answers["bob"])).text
        assert not answers["alice"].done()
        again["alice"].say("Hello, Alice").end()
        text = (await within(answers["alice"])).text
        assert "Hello, Alice" in text and "Bob" not in text

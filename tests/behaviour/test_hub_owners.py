"""What one owner made does not exist for another, one floor below the routes: an adapter that forgot to ask whose a
task is would still be told of none."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import pytest

from babelgate.canonical import (
    Answers,
    AssistantChange,
    AssistantQuery,
    CronQuery,
    FaultError,
    FilePart,
    ItemQuery,
    Listed,
    Message,
    NamespaceQuery,
    Run,
    RunFilter,
    RunStatus,
    Scope,
    StateHistory,
    Submission,
    TaskFilter,
    ThreadChange,
    ThreadFilter,
    Webhook,
)
from babelgate.canonical import hub as contract
from babelgate.canonical.assistant import Assistants
from babelgate.canonical.cron import Crons
from babelgate.canonical.hub import StateUpdate, Turn
from babelgate.canonical.store import Store
from babelgate.gateway.hub import Hub
from tests.gateway.owning import Made, Place, look, unknown
from tests.given import make

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _first(hub: Hub, owner: str, scope: Scope) -> object:
    async with aclosing(hub.reads.follow(owner, scope)) as reading:
        return await anext(reading)


async def _turn_log(hub: Hub, owner: str, made: Made) -> object:
    turns = await hub.reads.turns("alice", made.thread_id, limit=1)
    return await anext(hub.reads.turn_log(owner, made.thread_id, turns or [Turn(seq=1, until=1)]))


def _hook(made: Made) -> Webhook:
    return Webhook(webhook_id="p2", task_id=made.task_id, dialect="a2a-1.0", url="http://127.0.0.1:9/")


def _input(**fields: Any) -> Submission:
    return make(Submission, agent="echo", messages=(Message.of("Bob"),), **fields)


def _run(made: Made) -> Run:
    return Run(
        run_id=made.asked,
        task_id=made.task_id,
        thread_id=made.thread_id,
        status=RunStatus.PAUSED,
        cause="input",
        created_at=0,
        first_seq=0,
        last_seq=0,
    )


async def _history(hub: Hub, owner: str, thread_id: str) -> object:
    history = await hub.reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id))
    return history.fold.tasks


async def _all(found: Awaitable[Listed[Any]]) -> object:
    return await (await found).all()


async def _threads(hub: Hub, owner: str, thread_id: str) -> object:
    where = ThreadFilter(ids=(thread_id,))
    found = await hub.reads.threads(owner, where, limit=10)
    return await hub.reads.count_threads(owner, where), await found.all()


async def _assistants(hub: Hub, owner: str, assistant_id: str) -> object:
    """What the owner has beside what is asked for is of other tests."""
    found = await hub.assistants.search(owner, AssistantQuery(limit=1000))
    ids = [each.assistant_id for each in await found.all()]
    assert len(ids) == await hub.assistants.count(owner, AssistantQuery())
    return assistant_id in ids


async def _crons(hub: Hub, owner: str, cron_id: str) -> object:
    """What the owner has beside what is asked for is of other tests."""
    ids = [each.cron_id for each in await (await hub.crons.search(owner, CronQuery(limit=1000))).all()]
    assert len(ids) == await hub.crons.count(owner, CronQuery())
    return cron_id in ids


async def _tasks(hub: Hub, owner: str, thread_id: str) -> object:
    page = await hub.reads.tasks(owner, TaskFilter(thread_id=thread_id), limit=10)
    return page.total, page.next_cursor, await page.tasks.all()


async def _active(hub: Hub, owner: str, task_id: str) -> object:
    """Return whether the task is among the owner's, which other tests have added to."""
    found = await hub.reads.tasks_active_at(owner, 0, slack=2**62, limit=1000)
    return task_id in {task.task_id for task in found}


def _file() -> FilePart:
    return FilePart(name="a.txt", media_type="text/plain", inline=b"Bob", size=3)


CALLS: Final[Mapping[str, Callable[[Hub, str, Made], Awaitable[object]]]] = {
    "submit, following up": lambda hub, owner, made: hub.submit(owner, _input(follow_up=made.task_id)),
    "submit, continuing": lambda hub, owner, made: hub.submit(owner, _input(continues=made.ended)),
    "submit, to a thread": lambda hub, owner, made: hub.submit(
        owner, _input(thread_id=made.session_id, if_missing="reject")
    ),
    "answer": lambda hub, owner, made: hub.answer(owner, Answers(task_id=made.task_id, bare="Bob")),
    "cancel": lambda hub, owner, made: hub.cancel(owner, made.task_id),
    "submit, from a checkpoint": lambda hub, owner, made: hub.submit(
        owner, _input(thread_id=made.thread_id, if_missing="reject", checkpoint=made.checkpoint_id)
    ),
    "answer, by question": lambda hub, owner, made: hub.answer(
        owner, Answers(task_id=made.task_id, values={made.question: "Bob"})
    ),
    "cancel_run": lambda hub, owner, made: hub.cancel_run(owner, made.later),
    "cancel_run, rolling back": lambda hub, owner, made: hub.cancel_run(owner, made.later, rollback=True),
    "change_thread": lambda hub, owner, made: hub.change_thread(
        owner, made.thread_id, ThreadChange(metadata={"of": "Bob"})
    ),
    "copy_thread": lambda hub, owner, made: hub.copy_thread(owner, made.thread_id),
    "update_state": lambda hub, owner, made: hub.update_state(
        owner, StateUpdate(thread_id=made.thread_id, values={"of": "Bob"})
    ),
    "upload": lambda hub, owner, made: hub.upload(owner, made.steps, _file()),
    "run_input": lambda hub, owner, made: hub.reads.run_input(owner, _run(made)),
    "run_page": lambda hub, owner, made: hub.reads.run_page(owner, made.thread_id, "echo", limit=10),
    "turns": lambda hub, owner, made: hub.reads.turns(owner, made.thread_id, limit=10),
    "turn_log": _turn_log,
    "removed_messages": lambda hub, owner, made: hub.reads.removed_messages(owner, made.thread_id),
    "runs": lambda hub, owner, made: _all(hub.reads.runs(owner, RunFilter(thread_id=made.thread_id), limit=10)),
    "thread_view": lambda hub, owner, made: hub.reads.thread_view(owner, made.thread_id),
    "threads": lambda hub, owner, made: _threads(hub, owner, made.thread_id),
    "count_threads": lambda hub, owner, made: hub.reads.count_threads(owner, ThreadFilter(ids=(made.thread_id,))),
    "store.get": lambda hub, owner, made: hub.store.get(owner, (made.label, "notes"), "k"),
    "store.delete": lambda hub, owner, made: hub.store.delete(owner, (made.label, "notes"), "k"),
    "store.search": lambda hub, owner, made: _all(hub.store.search(owner, ItemQuery(prefix=(made.label,)))),
    "store.namespaces": lambda hub, owner, made: hub.store.namespaces(owner, NamespaceQuery(prefix=(made.label,))),
    "assistants.get": lambda hub, owner, made: hub.assistants.get(owner, made.assistant_id),
    "assistants.change": lambda hub, owner, made: hub.assistants.change(
        owner, made.assistant_id, AssistantChange(name="Bob")
    ),
    "assistants.use_version": lambda hub, owner, made: hub.assistants.use_version(owner, made.assistant_id, 1),
    "assistants.delete": lambda hub, owner, made: hub.assistants.delete(owner, made.assistant_id),
    "assistants.search": lambda hub, owner, made: _assistants(hub, owner, made.assistant_id),
    "assistants.count": lambda hub, owner, made: _assistants(hub, owner, made.assistant_id),
    "assistants.versions": lambda hub, owner, made: hub.assistants.versions(owner, made.assistant_id),
    "assistants.version": lambda hub, owner, made: hub.assistants.version(owner, made.assistant_id, 1),
    "crons.get": lambda hub, owner, made: hub.crons.get(owner, made.cron_id),
    "crons.change": lambda hub, owner, made: hub.crons.change(owner, made.cron_id, {"enabled": False}),
    "crons.delete": lambda hub, owner, made: hub.crons.delete(owner, made.cron_id),
    "crons.search": lambda hub, owner, made: _crons(hub, owner, made.cron_id),
    "crons.count": lambda hub, owner, made: _crons(hub, owner, made.cron_id),
    "delete_thread": lambda hub, owner, made: hub.delete_thread(owner, made.session_id),
    "prune_thread": lambda hub, owner, made: hub.prune_thread(owner, made.session_id),
    "remove_run": lambda hub, owner, made: hub.remove_run(owner, made.run_id),
    "change_run": lambda hub, owner, made: hub.change_run(owner, made.run_id, {}),
    "task": lambda hub, owner, made: hub.reads.task(owner, made.task_id),
    "run": lambda hub, owner, made: hub.reads.run(owner, made.run_id),
    "last_begun": lambda hub, owner, made: hub.reads.last_begun(owner, made.session_id),
    "thread": lambda hub, owner, made: hub.reads.thread(owner, made.session_id),
    "thread_of": lambda hub, owner, made: hub.reads.thread_of(owner, "a2a", "files", made.context_id),
    "open_interrupts": lambda hub, owner, made: hub.reads.open_interrupts(owner, made.task_id),
    "known_interrupts": lambda hub, owner, made: hub.reads.known_interrupts(owner, made.thread_id, [made.question]),
    "tasks": lambda hub, owner, made: _tasks(hub, owner, made.session_id),
    "tasks_active_at": lambda hub, owner, made: _active(hub, owner, made.task_id),
    "chain": lambda hub, owner, made: hub.reads.chain(owner, made.task_id),
    "records": lambda hub, owner, made: hub.reads.records(owner, Scope(made.session_id)),
    "logs": lambda hub, owner, made: hub.reads.logs(owner, [made.ended]),
    "log": lambda hub, owner, made: anext(hub.reads.log(owner, Scope(made.session_id))),
    "records of a task": lambda hub, owner, made: hub.reads.records(
        owner, Scope(made.session_id, "task", made.task_id)
    ),
    "snapshot": lambda hub, owner, made: _history(hub, owner, made.session_id),
    "follow": lambda hub, owner, made: _first(hub, owner, Scope(made.session_id)),
    "file": lambda hub, owner, made: hub.reads.file(owner, made.blob),
    "file_pieces": lambda hub, owner, made: _read_pieces(hub, owner, made.blob),
    "set_webhook": lambda hub, owner, made: hub.set_webhook(owner, _hook(made)),
    "webhooks": lambda hub, owner, made: hub.reads.webhooks(owner, made.task_id),
    "delete_webhook": lambda hub, owner, made: hub.delete_webhook(owner, made.task_id, made.config_id),
}


READS: Final = (
    "task",
    "run",
    "thread",
    "open_",
    "chain",
    "record",
    "follow",
    "file",
    "webhooks",
    "store.get",
    "assistants.get",
    "crons.get",
)


async def _read_pieces(hub: Hub, owner: str, blob: str) -> bytes:
    _, pieces = await hub.reads.file_pieces(owner, blob)
    return b"".join([piece async for piece in pieces])


async def outcome(call: Callable[[Hub, str, Made], Awaitable[object]], hub: Hub, owner: str, made: Made) -> str:
    try:
        return made.hidden(f"gave {await call(hub, owner, made)!r}")
    except FaultError as error:
        return made.hidden(f"raised {error.fault!r}")


@pytest.mark.parametrize("name", list(CALLS))
async def test_the_hub_too_knows_nothing_of_another_owner_s_things(place: Place, name: str) -> None:
    hub, nothing = place.gateway.hub, unknown()
    made, before = await place.things()
    assert await outcome(CALLS[name], hub, "bob", made) == await outcome(CALLS[name], hub, "bob", nothing)
    assert await look(place.alice, made) == before
    its_own = made if name.startswith(READS) else await place.make()
    own = await outcome(CALLS[name], hub, "alice", its_own)
    assert own != await outcome(CALLS[name], hub, "alice", nothing)


MAKES: Final = {"create_thread", "store.put", "assistants.create", "crons.create"}
"""Calls that make something of the caller's own, whatever others have under that name. See `test_owners`."""

ELSEWHERE: Final = {"aliases", "await_thread"}
"""Calls with tests of their own: of `aliases` below, of `await_thread` in `test_same_ids`."""


async def test_every_call_of_the_hub_that_names_its_owner_is_compared() -> None:
    calls = {name for port in (contract.Hub, contract.Reads) for name in vars(port) if _takes_owner(port, name)}
    calls |= {f"store.{name}" for name in vars(Store) if _takes_owner(Store, name)}
    calls |= {f"assistants.{name}" for name in vars(Assistants) if _takes_owner(Assistants, name)}
    calls |= {f"crons.{name}" for name in vars(Crons) if _takes_owner(Crons, name)}
    assert calls - MAKES - ELSEWHERE == {name.partition(",")[0].partition(" ")[0] for name in CALLS}


def _takes_owner(port: type, name: str) -> bool:
    value = vars(port)[name]
    return inspect.isfunction(value) and "owner" in inspect.signature(value).parameters


async def test_an_alias_is_told_to_its_owner_only(place: Place) -> None:
    made = await place.make()
    hub = place.gateway.hub
    thread_id = await hub.reads.thread_of("alice", "a2a", "files", made.context_id)
    assert thread_id is not None
    assert await hub.reads.aliases("alice", "a2a", [thread_id]) == {thread_id: made.context_id}
    assert await hub.reads.aliases("bob", "a2a", [thread_id]) == {}

"""Isolation of owners in the hub, one level below the routes.

The things of one owner do not exist for another. An adapter that forgets to check the owner of a task still gets none.
"""

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
from babelgate.gateway.hub import GatewayHub
from tests.gateway.owning import OwnerIds, Place, look, unknown
from tests.submissions import make

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _first(hub: GatewayHub, owner: str, scope: Scope) -> object:
    async with aclosing(hub.reads.follow(owner, scope)) as reading:
        return await anext(reading)


async def _turn_log(hub: GatewayHub, owner: str, things: OwnerIds) -> object:
    turns = await hub.reads.turns("alice", things.thread_id, limit=1)
    return await anext(hub.reads.turn_log(owner, things.thread_id, turns or [Turn(seq=1, until=1)]))


def _hook(things: OwnerIds) -> Webhook:
    return Webhook(webhook_id="p2", task_id=things.task_id, dialect="a2a-1.0", url="http://127.0.0.1:9/")


def _input(**fields: Any) -> Submission:
    return make(Submission, agent="echo", messages=(Message.of("Bob"),), **fields)


def _run(things: OwnerIds) -> Run:
    return Run(
        run_id=things.asking_run,
        task_id=things.task_id,
        thread_id=things.thread_id,
        status=RunStatus.PAUSED,
        cause="input",
        created_at=0,
        first_seq=0,
        last_seq=0,
    )


async def _history(hub: GatewayHub, owner: str, thread_id: str) -> object:
    history = await hub.reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id))
    return history.fold.tasks


async def _all(found: Awaitable[Listed[Any]]) -> object:
    return await (await found).all()


async def _threads(hub: GatewayHub, owner: str, thread_id: str) -> object:
    where = ThreadFilter(ids=(thread_id,))
    found = await hub.reads.threads(owner, where, limit=10)
    return await hub.reads.count_threads(owner, where), await found.all()


async def _assistants(hub: GatewayHub, owner: str, assistant_id: str) -> object:
    """Return True if the owner has the assistant. The whole list is not compared, because other tests create
    assistants."""
    found = await hub.assistants.search(owner, AssistantQuery(limit=1000))
    ids = [each.assistant_id for each in await found.all()]
    assert len(ids) == await hub.assistants.count(owner, AssistantQuery())
    return assistant_id in ids


async def _crons(hub: GatewayHub, owner: str, cron_id: str) -> object:
    """Return True if the owner has the cron. The whole list is not compared, because other tests create crons."""
    ids = [each.cron_id for each in await (await hub.crons.search(owner, CronQuery(limit=1000))).all()]
    assert len(ids) == await hub.crons.count(owner, CronQuery())
    return cron_id in ids


async def _tasks(hub: GatewayHub, owner: str, thread_id: str) -> object:
    page = await hub.reads.tasks(owner, TaskFilter(thread_id=thread_id), limit=10)
    return page.total, page.next_cursor, await page.tasks.all()


async def _active(hub: GatewayHub, owner: str, task_id: str) -> object:
    """Return True if the owner has the task. The whole list is not compared, because other tests create tasks."""
    found = await hub.reads.tasks_active_at(owner, 0, slack=2**62, limit=1000)
    return task_id in {task.task_id for task in found}


def _file() -> FilePart:
    return FilePart(name="a.txt", media_type="text/plain", inline=b"Bob", size=3)


CALLS: Final[Mapping[str, Callable[[GatewayHub, str, OwnerIds], Awaitable[object]]]] = {
    "submit, following up": lambda hub, owner, things: hub.submit(owner, _input(follow_up=things.task_id)),
    "submit, continuing": lambda hub, owner, things: hub.submit(owner, _input(continues=things.ended)),
    "submit, to a thread": lambda hub, owner, things: hub.submit(
        owner, _input(thread_id=things.session_id, if_missing="reject")
    ),
    "answer": lambda hub, owner, things: hub.answer(owner, Answers(task_id=things.task_id, bare="Bob")),
    "check_answers": lambda hub, owner, things: hub.check_answers(owner, Answers(task_id=things.task_id, bare="Bob")),
    "cancel": lambda hub, owner, things: hub.cancel(owner, things.task_id),
    "submit, from a checkpoint": lambda hub, owner, things: hub.submit(
        owner, _input(thread_id=things.thread_id, if_missing="reject", checkpoint=things.checkpoint_id)
    ),
    "answer, by question": lambda hub, owner, things: hub.answer(
        owner, Answers(task_id=things.task_id, values={things.question: "Bob"})
    ),
    "cancel_run": lambda hub, owner, things: hub.cancel_run(owner, things.later),
    "cancel_run, rolling back": lambda hub, owner, things: hub.cancel_run(owner, things.later, rollback=True),
    "change_thread": lambda hub, owner, things: hub.change_thread(
        owner, things.thread_id, ThreadChange(metadata={"of": "Bob"})
    ),
    "copy_thread": lambda hub, owner, things: hub.copy_thread(owner, things.thread_id),
    "update_state": lambda hub, owner, things: hub.update_state(
        owner, StateUpdate(thread_id=things.thread_id, values={"of": "Bob"})
    ),
    "upload": lambda hub, owner, things: hub.upload(owner, things.steps, _file()),
    "run_input": lambda hub, owner, things: hub.reads.run_input(owner, _run(things)),
    "run_page": lambda hub, owner, things: hub.reads.run_page(owner, things.thread_id, "echo", limit=10),
    "turns": lambda hub, owner, things: hub.reads.turns(owner, things.thread_id, limit=10),
    "turn_log": _turn_log,
    "removed_messages": lambda hub, owner, things: hub.reads.removed_messages(owner, things.thread_id),
    "runs": lambda hub, owner, things: _all(hub.reads.runs(owner, RunFilter(thread_id=things.thread_id), limit=10)),
    "thread_view": lambda hub, owner, things: hub.reads.thread_view(owner, things.thread_id),
    "threads": lambda hub, owner, things: _threads(hub, owner, things.thread_id),
    "count_threads": lambda hub, owner, things: hub.reads.count_threads(owner, ThreadFilter(ids=(things.thread_id,))),
    "store.get": lambda hub, owner, things: hub.store.get(owner, (things.label, "notes"), "k"),
    "store.delete": lambda hub, owner, things: hub.store.delete(owner, (things.label, "notes"), "k"),
    "store.search": lambda hub, owner, things: _all(hub.store.search(owner, ItemQuery(prefix=(things.label,)))),
    "store.namespaces": lambda hub, owner, things: hub.store.namespaces(owner, NamespaceQuery(prefix=(things.label,))),
    "assistants.get": lambda hub, owner, things: hub.assistants.get(owner, things.assistant_id),
    "assistants.change": lambda hub, owner, things: hub.assistants.change(
        owner, things.assistant_id, AssistantChange(name="Bob")
    ),
    "assistants.use_version": lambda hub, owner, things: hub.assistants.use_version(owner, things.assistant_id, 1),
    "assistants.delete": lambda hub, owner, things: hub.assistants.delete(owner, things.assistant_id),
    "assistants.search": lambda hub, owner, things: _assistants(hub, owner, things.assistant_id),
    "assistants.count": lambda hub, owner, things: _assistants(hub, owner, things.assistant_id),
    "assistants.versions": lambda hub, owner, things: hub.assistants.versions(owner, things.assistant_id),
    "assistants.version": lambda hub, owner, things: hub.assistants.version(owner, things.assistant_id, 1),
    "crons.get": lambda hub, owner, things: hub.crons.get(owner, things.cron_id),
    "crons.change": lambda hub, owner, things: hub.crons.change(owner, things.cron_id, {"enabled": False}),
    "crons.delete": lambda hub, owner, things: hub.crons.delete(owner, things.cron_id),
    "crons.search": lambda hub, owner, things: _crons(hub, owner, things.cron_id),
    "crons.count": lambda hub, owner, things: _crons(hub, owner, things.cron_id),
    "delete_thread": lambda hub, owner, things: hub.delete_thread(owner, things.session_id),
    "prune_thread": lambda hub, owner, things: hub.prune_thread(owner, things.session_id),
    "remove_run": lambda hub, owner, things: hub.remove_run(owner, things.run_id),
    "change_run": lambda hub, owner, things: hub.change_run(owner, things.run_id, {}),
    "task": lambda hub, owner, things: hub.reads.task(owner, things.task_id),
    "run": lambda hub, owner, things: hub.reads.run(owner, things.run_id),
    "last_begun": lambda hub, owner, things: hub.reads.last_begun(owner, things.session_id),
    "thread": lambda hub, owner, things: hub.reads.thread(owner, things.session_id),
    "thread_of": lambda hub, owner, things: hub.reads.thread_of(owner, "a2a", "files", things.context_id),
    "open_interrupts": lambda hub, owner, things: hub.reads.open_interrupts(owner, things.task_id),
    "known_interrupts": lambda hub, owner, things: hub.reads.known_interrupts(
        owner, things.thread_id, [things.question]
    ),
    "tasks": lambda hub, owner, things: _tasks(hub, owner, things.session_id),
    "tasks_active_at": lambda hub, owner, things: _active(hub, owner, things.task_id),
    "chain": lambda hub, owner, things: hub.reads.chain(owner, things.task_id),
    "records": lambda hub, owner, things: hub.reads.records(owner, Scope(things.session_id)),
    "logs": lambda hub, owner, things: hub.reads.logs(owner, [things.ended]),
    "log": lambda hub, owner, things: anext(hub.reads.log(owner, Scope(things.session_id))),
    "records of a task": lambda hub, owner, things: hub.reads.records(
        owner, Scope(things.session_id, "task", things.task_id)
    ),
    "snapshot": lambda hub, owner, things: _history(hub, owner, things.session_id),
    "follow": lambda hub, owner, things: _first(hub, owner, Scope(things.session_id)),
    "file": lambda hub, owner, things: hub.reads.file(owner, things.blob),
    "file_pieces": lambda hub, owner, things: _read_pieces(hub, owner, things.blob),
    "set_webhook": lambda hub, owner, things: hub.set_webhook(owner, _hook(things)),
    "webhooks": lambda hub, owner, things: hub.reads.webhooks(owner, things.task_id),
    "delete_webhook": lambda hub, owner, things: hub.delete_webhook(owner, things.task_id, things.config_id),
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


async def _read_pieces(hub: GatewayHub, owner: str, blob: str) -> bytes:
    _, pieces = await hub.reads.file_pieces(owner, blob)
    return b"".join([piece async for piece in pieces])


async def outcome(
    call: Callable[[GatewayHub, str, OwnerIds], Awaitable[object]], hub: GatewayHub, owner: str, things: OwnerIds
) -> str:
    try:
        return things.hidden(f"gave {await call(hub, owner, things)!r}")
    except FaultError as error:
        return things.hidden(f"raised {error.fault!r}")


@pytest.mark.parametrize("name", list(CALLS))
async def test_the_hub_treats_another_owners_things_as_missing(place: Place, name: str) -> None:
    hub, nothing = place.gateway.hub, unknown()
    things, before = await place.shared_ids()
    assert await outcome(CALLS[name], hub, "bob", things) == await outcome(CALLS[name], hub, "bob", nothing)
    assert await look(place.alice, things) == before
    its_own = things if name.startswith(READS) else await place.make()
    result = await outcome(CALLS[name], hub, "alice", its_own)
    assert result != await outcome(CALLS[name], hub, "alice", nothing)


CREATING_CALLS: Final = {"create_thread", "store.put", "assistants.create", "crons.create"}
"""Calls that create something for the caller, even if another owner has used the same name. See `test_owners`."""

ELSEWHERE: Final = {"aliases", "await_thread"}
"""Calls tested elsewhere: `aliases` below, `await_thread` in `test_same_ids`."""

WITHOUT_OWNER: Final = {"agents", "agent", "introspectable_agent", "find_schema_error", "fetch", "check_submit"}
"""Calls that concern the data of no owner."""


async def test_every_hub_call_with_a_principal_is_compared() -> None:
    calls = {name for port in (contract.Hub, contract.Reads) for name in vars(port) if _takes_principal(port, name)}
    calls |= {f"store.{name}" for name in vars(Store) if _takes_principal(Store, name)}
    calls |= {f"assistants.{name}" for name in vars(Assistants) if _takes_principal(Assistants, name)}
    calls |= {f"crons.{name}" for name in vars(Crons) if _takes_principal(Crons, name)}
    assert calls - CREATING_CALLS - ELSEWHERE - WITHOUT_OWNER == {
        name.partition(",")[0].partition(" ")[0] for name in CALLS
    }


def _takes_principal(port: type, name: str) -> bool:
    value = vars(port)[name]
    return inspect.isfunction(value) and "principal" in inspect.signature(value).parameters


async def test_an_alias_is_visible_to_its_owner_only(place: Place) -> None:
    things = await place.make()
    hub = place.gateway.hub
    thread_id = await hub.reads.thread_of("alice", "a2a", "files", things.context_id)
    assert thread_id is not None
    assert await hub.reads.aliases("alice", "a2a", [thread_id]) == {thread_id: things.context_id}
    assert await hub.reads.aliases("bob", "a2a", [thread_id]) == {}

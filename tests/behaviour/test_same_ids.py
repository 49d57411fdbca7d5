"""Ids chosen by callers: two owners may use the same ids, and the ids of an erased thread may be used again."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from babelgate.canonical import Ask, FaultError, Receipt, Scope, TaskState, ThreadChange, Webhook
from babelgate.canonical.fold import Fold
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.deletion import erase_unchanged
from babelgate.gateway.storage.queries import thread_key
from babelgate.gateway.storage.transaction import Erased
from tests.gateway.hubs import (
    OWNER,
    Activation,
    Echo,
    HubFactory,
    PausedWriter,
    Scripted,
    answer,
    batches,
    ends,
    erased,
    eventually,
    follow,
    open_questions,
    reaches,
    registered,
    submit,
    submit_and_ask,
    within,
)
from tests.gateway.log_capture import capture_log
from tests.running import running

ALICE, BOB = "alice", "bob"
THREAD, TASK, RUN = str(uuid4()), str(uuid4()), str(uuid4())
SAME: Mapping[str, Any] = {"thread_id": THREAD, "task_id": TASK, "run_id": RUN}


async def both(hub: GatewayHub, agent: Scripted, **fields: Any) -> dict[str, tuple[Receipt, Activation]]:
    """Start a run of each owner under the same ids. Return the receipt and the call of the agent, by owner."""
    begun: dict[str, tuple[Receipt, Activation]] = {}
    for owner in (ALICE, BOB):
        receipt = await submit(hub, "a", f"of {owner}", owner=owner, **SAME, **fields)
        begun[owner] = receipt, await agent.called()
        assert begun[owner][1].call.owner == owner
    return begun


async def text_of(hub: GatewayHub, owner: str) -> str:
    """Return the text of all messages that the owner sees on the thread."""
    return " ".join(
        message.text for message in Fold(THREAD, owner, await hub.reads.records(owner, Scope(THREAD))).messages()
    )


# Two owners


async def test_a_cancel_stops_the_run_of_its_owner_alone(hubs: HubFactory) -> None:
    agent = Scripted()
    with capture_log() as log:
        hub = await hubs.start(registered("a", agent))
        begun = await both(hub, agent)
        (alices, her), (bobs, his) = begun[ALICE], begun[BOB]
        await within(hub.cancel(BOB, TASK))
        assert (await ends(hub, bobs, owner=BOB)).state is TaskState.CANCELLED
        await within(his.closed.wait())
        assert not her.cancelled.is_set() and not her.closed.is_set()
        her.say("to the end").end()
        assert (await ends(hub, alices, owner=ALICE)).state is TaskState.COMPLETED
        assert await text_of(hub, ALICE) == "of alice to the end"
        assert await text_of(hub, BOB) == "of bob"
        await hubs.stop(hub)
    assert log.errors == []


async def test_an_interrupting_input_affects_only_its_owners_thread(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    begun = await both(hub, agent)
    (alices, her), (_, his) = begun[ALICE], begun[BOB]
    later = await submit(hub, "a", "later", owner=BOB, thread_id=THREAD, strategy="interrupt")
    await within(his.closed.wait())
    (await agent.called()).end()
    await ends(hub, later, owner=BOB)
    assert not her.cancelled.is_set()
    her.end()
    assert (await ends(hub, alices, owner=ALICE)).state is TaskState.COMPLETED


async def test_each_owner_answers_a_question_of_the_same_id(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    begun = await both(hub, agent)
    for receipt, activation in begun.values():
        activation.ask("q").end()
        await reaches(hub, receipt, TaskState.INPUT_REQUIRED, owner=activation.call.owner)
    bobs = await answer(hub, TASK, "Bob", owner=BOB)
    his = await agent.called()
    assert (his.call.owner, his.call.answers[0].value) == (BOB, "Bob")
    assert len(await open_questions(hub, begun[ALICE][0], owner=ALICE)) == 1
    alices = await answer(hub, TASK, "Alice", owner=ALICE)
    assert alices.run_id == bobs.run_id  # derived from the run that asked
    hers = await agent.called()
    assert (hers.call.owner, hers.call.answers[0].value) == (ALICE, "Alice")
    await hub.cancel_run(ALICE, alices.run_id)
    await ends(hub, alices, owner=ALICE)
    assert not his.cancelled.is_set()
    his.say("Hello, Bob").end()
    assert (await ends(hub, bobs, owner=BOB)).state is TaskState.COMPLETED


async def test_a_paused_generator_gets_the_answer_of_its_caller(hubs: HubFactory) -> None:
    async def greet(text: str) -> AsyncGenerator[Ask | str, Any]:
        name = yield Ask("Name?")
        yield f"{text}: {name}"

    info, agent = wrap(greet, "a")
    hub = await hubs.start(RegisteredAgent(info=info, agent=agent))
    receipts = {owner: await submit(hub, "a", f"of {owner}", owner=owner, **SAME) for owner in (ALICE, BOB)}
    for owner, receipt in receipts.items():
        await reaches(hub, receipt, TaskState.INPUT_REQUIRED, owner=owner)
    for owner in (BOB, ALICE):
        await ends(hub, await answer(hub, TASK, owner.title(), owner=owner), owner=owner)
        assert (await text_of(hub, owner)).endswith(f"of {owner}: {owner.title()}")


async def test_readers_see_only_their_owners_records(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    begun = await both(hub, agent)
    scopes = (Scope(THREAD, "run", RUN), Scope(THREAD, "task", TASK))
    reading = {
        (owner, scope.kind): asyncio.ensure_future(follow(hub, scope, owner=owner))
        for owner in begun
        for scope in scopes
    }
    begun[BOB][1].say("Bob's").end()
    for scope in scopes:
        assert "Bob's" in str(await within(reading[BOB, scope.kind]))
    assert not reading[ALICE, "run"].done() and not reading[ALICE, "task"].done()
    begun[ALICE][1].say("Alice's").end()
    for scope in scopes:
        records = str(await within(reading[ALICE, scope.kind]))
        assert "Alice's" in records and "Bob" not in records


async def test_a_task_and_a_run_may_share_an_id(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    await submit_and_ask(hub, agent, "q", thread_id=THREAD, task_id=TASK, run_id=TASK)
    reading = asyncio.ensure_future(follow(hub, Scope(THREAD, "task", TASK)))
    resumed = await answer(hub, TASK, "yes")
    (await agent.called()).say("after the answer").end()
    await ends(hub, resumed)
    assert "after the answer" in str(await within(reading))


async def test_waiting_for_a_thread_ignores_another_owners(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    waiting = asyncio.ensure_future(hub.reads.await_thread(ALICE, THREAD))
    await ends(hub, await submit(hub, "echo", owner=BOB, **SAME), owner=BOB)
    assert not waiting.done()
    await submit(hub, "echo", owner=ALICE, **SAME)
    assert await within(waiting)


async def test_a_deletion_leaves_another_owners_run_and_readers_alone(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    begun = await both(hub, agent)
    reading = asyncio.ensure_future(follow(hub, Scope(THREAD, "run", RUN), owner=ALICE))
    await within(hub.delete_thread(BOB, THREAD))
    await within(begun[BOB][1].closed.wait())
    her = begun[ALICE][1]
    assert not her.cancelled.is_set() and not reading.done()
    her.say("still here").end()
    assert "still here" in str(await within(reading))
    assert (await ends(hub, begun[ALICE][0], owner=ALICE)).state is TaskState.COMPLETED


async def test_removing_a_run_keeps_another_owners(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    for owner in (ALICE, BOB):
        await ends(hub, await submit(hub, "echo", f"of {owner}", owner=owner, **SAME), owner=owner)
    await hub.remove_run(BOB, RUN)
    assert (await hub.reads.run(BOB, RUN)).removed
    assert not (await hub.reads.run(ALICE, RUN)).removed
    assert await text_of(hub, ALICE) == "of alice of alice"


async def test_an_expired_thread_leaves_another_owners_alone(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), limits=Limits(ephemeral_ttl=0.05))
    for owner in (ALICE, BOB):
        await ends(hub, await submit(hub, "echo", owner=owner, ephemeral=owner == BOB, **SAME), owner=owner)

    await erased(hub, THREAD, BOB)
    assert await _exists(hub, ALICE)


async def _exists(hub: GatewayHub, owner: str) -> bool:
    try:
        await hub.reads.thread(owner, THREAD)
    except FaultError:
        return False
    return True


async def test_webhooks_of_the_same_id_report_their_owners_task(hubs: HubFactory) -> None:
    kinds: dict[str, list[str]] = {ALICE: [], BOB: []}

    class Writer:
        scope = "task"

        def __init__(self, webhook: Webhook, *_: object) -> None:
            self._kinds = kinds[webhook.config["owner"]]

        def headers(self) -> Mapping[str, str]:
            return {}

        def write(self, record: Any) -> list[bytes]:
            self._kinds.append(record.event.kind)
            return []

    hub, agent = await hubs.scripted(writers={"own": Writer})
    begun = await both(hub, agent)
    for owner in (ALICE, BOB):
        hook = Webhook(webhook_id="w", task_id=TASK, dialect="own", url="http://127.0.0.1:9/", config={"owner": owner})
        await hub.set_webhook(owner, hook)
    assert await hub.delete_webhook(BOB, TASK, "w")
    begun[BOB][1].end()
    await ends(hub, begun[BOB][0], owner=BOB)
    assert [hook.config for hook in await hub.reads.webhooks(ALICE, TASK)] == [{"owner": ALICE}]
    begun[ALICE][1].end()
    await ends(hub, begun[ALICE][0], owner=ALICE)
    await within(eventually(lambda: "run_ended" in kinds[ALICE]), "the delivery")
    assert "run_ended" not in kinds[BOB]


# The ids of a thread that was erased


async def test_an_agent_of_an_erased_thread_cannot_append(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True)
    await submit(hub, "a", **SAME, owner=ALICE)
    old = await agent.called()
    await within(hub.delete_thread(ALICE, THREAD))
    await within(old.cancelled.wait())
    receipt = await submit(hub, "a", "anew", **SAME, owner=ALICE, if_missing="recreate")
    new = await agent.called()
    old.say("from the past").end()
    await within(old.closed.wait())
    await within(hub.engine.idle())
    new.say("from now").end()
    assert (await ends(hub, receipt, owner=ALICE)).state is TaskState.COMPLETED
    assert await text_of(hub, ALICE) == "anew from now"


async def recreate(hub: GatewayHub, held: PausedWriter) -> "asyncio.Future[tuple[Any, Receipt]]":
    """Queue the erasure of the thread, and then a run that takes the same ids. Return the future of both results."""
    deleting = asyncio.ensure_future(hub.delete_thread(ALICE, THREAD))
    await held.queued(deleting)
    again = asyncio.ensure_future(submit(hub, "a", "anew", **SAME, owner=ALICE, if_missing="recreate"))
    await held.queued(again)
    return asyncio.gather(deleting, again)


async def test_queued_events_of_an_erased_run_are_dropped(hubs: HubFactory) -> None:
    """Queue the old run's append behind the erasure and behind the run that now has its ids."""
    hub, agent = await hubs.scripted()
    await submit(hub, "a", **SAME, owner=ALICE)
    old = await agent.called()
    async with PausedWriter(hub) as held:
        again = await recreate(hub, held)
        old.say("from the past")
        await held.queued(asyncio.ensure_future(asyncio.Event().wait()))
    _, receipt = await within(again)
    (await agent.called()).end()
    assert (await ends(hub, receipt, owner=ALICE)).state is TaskState.COMPLETED
    assert await text_of(hub, ALICE) == "anew"


async def test_a_run_recreated_in_one_commit_has_readers(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    await submit(hub, "a", **SAME, owner=ALICE)
    await agent.called()
    async with PausedWriter(hub) as held:
        again = await recreate(hub, held)
    _, receipt = await within(again)
    new = await agent.called()
    reading = batches(hub, Scope(THREAD, "run", RUN), owner=ALICE)
    await anext(reading)
    new.say("from now").end()
    rest = [record async for batch in reading for record in batch]
    assert rest[-1].event.kind == "run_ended"
    await ends(hub, receipt, owner=ALICE)


async def test_a_recreated_thread_does_not_inherit_the_time_to_live(hubs: HubFactory) -> None:
    agent = Echo()
    hub = await hubs.start(registered("echo", agent), limits=Limits(ephemeral_ttl=0.01))
    await hub.create_thread(ALICE, ThreadChange(ttl=1), thread_id=THREAD)
    await hub.delete_thread(ALICE, THREAD)
    await hub.create_thread(ALICE, ThreadChange(), thread_id=THREAD)
    marker = await hub.create_thread(ALICE, ThreadChange(ttl=1))  # expires after the first one would

    await erased(hub, marker.thread_id, ALICE)
    assert await _exists(hub, ALICE)


async def test_new_records_prevent_the_erasure_of_an_expired_thread(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    await hub.create_thread(ALICE, ThreadChange(ttl=100), thread_id=THREAD)
    pk = await hub.journal.query(thread_key, owner=ALICE, thread_id=THREAD)
    assert pk is not None

    def erasing(seq: int, pk: int = pk) -> "asyncio.Future[Erased | None]":
        return hub.journal.write(erase_unchanged, pk=pk, owner=ALICE, thread_id=THREAD, seq=seq)

    async def newest() -> int:
        return (await hub.reads.records(ALICE, Scope(THREAD)))[-1].seq

    idle = await newest()
    receipt = await submit(hub, "a", owner=ALICE, thread_id=THREAD)
    assert await erasing(idle) is None
    assert await erasing(await newest()) is None, "an agent is at work"
    (await agent.called()).end()
    await ends(hub, receipt, owner=ALICE)
    over = await newest()
    assert await erasing(over, pk + 1) is None
    assert await erasing(over) is not None
    assert not await _exists(hub, ALICE)


async def test_the_end_of_a_paused_task_closes_its_generator(hubs: HubFactory) -> None:
    closed: list[str] = []

    async def waits(text: str) -> AsyncGenerator[Ask, Any]:
        try:
            yield Ask("Name?")
        finally:
            closed.append(text)

    info, agent = wrap(waits, "a")
    hub = await hubs.start(RegisteredAgent(info=info, agent=agent))
    for words in ("cancelled", "erased"):
        receipt = await submit(hub, "a", words)
        await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
        assert words not in closed
        await (
            hub.cancel(OWNER, receipt.task_id) if words == "cancelled" else hub.delete_thread(OWNER, receipt.thread_id)
        )
        await within(eventually(lambda words=words: words in closed))


async def test_readers_of_a_recreated_thread_get_no_old_frames(
    tmp_path: Path,
) -> None:
    """Keep a reader in the middle of the old stream, where it shares encoded frames with other readers."""
    sizes = iter((10_000, 1))

    async def talk(text: str) -> AsyncGenerator[str]:
        size = next(sizes)
        for _ in range(1200):  # more than a reader takes from the log at once
            yield text * size

    async with running(tmp_path, {"talk": talk}) as gateway:
        thread = f"/threads/{THREAD}"
        run = {"assistant_id": "talk", "if_not_exists": "create", "stream_mode": ["messages-tuple"]}
        await gateway.http.post(f"{thread}/runs/wait", json={**run, "input": "old "})
        address = urlsplit(gateway.url)
        idle = socket.socket()
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect((address.hostname, address.port))
        reader, writer = await asyncio.open_connection(sock=idle)
        writer.write(f"GET {thread}/stream HTTP/1.1\r\nHost: {address.netloc}\r\nLast-Event-ID: -1\r\n\r\n".encode())
        await within(reader.readuntil(b"old "))
        assert (await gateway.http.delete(thread)).status_code == 204
        await gateway.http.post(f"{thread}/runs/wait", json={**run, "input": "new "})
        received = ""
        async with gateway.http.stream("GET", f"{thread}/stream", headers={"Last-Event-ID": "-1"}) as response:
            async for piece in response.aiter_text():
                received += piece
                if "run_done" in received:
                    break
        assert "new" in received and "old" not in received
        writer.close()

"""Tests of webhook delivery to real receivers on loopback: at least once, in order, with stored retry times."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from babelgate.canonical import FaultCode, FaultError, Record, Scope, Task, TaskState, Webhook
from babelgate.canonical.event import Custom, TaskChanged
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub, Parts
from babelgate.gateway.runs.retry_schedule import RetrySchedule
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.runs.webhooks import DeliveryRules
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import WebhookRow
from babelgate.gateway.storage.webhook_rows import retry_webhooks
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    PausedWriter,
    Scripted,
    answer,
    begin,
    ends,
    erased,
    eventually,
    finish,
    follow,
    reaches,
    refused,
    registered,
    submit,
    submit_and_ask,
    submit_to_end,
    within,
)
from tests.gateway.test_clock import HOUR, Wall


class Receiver:
    """HTTP server that stores the requests, and answers with the statuses that the test sets."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.headers: list[bytes] = []
        self.statuses: list[int] = []
        """Statuses of the next responses; afterwards 200."""
        self.retry_after: str | None = None
        """`Retry-After` header of the responses."""
        self.hold: asyncio.Event | None = None
        self._more = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}/hook"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        body = await reader.readexactly(length)
        status = self.statuses.pop(0) if self.statuses else 200
        async with self._more:
            self.got.append(body.decode())
            self.headers.append(head)
            self._more.notify_all()
        if self.hold is not None:
            await self.hold.wait()
        header = "" if self.retry_after is None else f"retry-after: {self.retry_after}\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{header}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def receives(self, count: int) -> list[str]:
        async with self._more:
            await within(self._more.wait_for(lambda: len(self.got) >= count), f"{count} deliveries; got {self.got}")
        return self.got


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    server = Receiver()
    await server.start()
    yield server
    await server.stop()


class Saying:
    """Dialect for tests: writes the names of custom events, and the states of the task."""

    def __init__(self, webhook: Webhook, task: Task, name: str) -> None:
        self.webhook = webhook
        self.name = name
        self.count = 0

    scope: Literal["task", "thread"] = "task"
    once = False

    def headers(self) -> Mapping[str, str]:
        return {"x-thread": self.name, "x-token": str(self.webhook.config.get("token", ""))}

    def write(self, record: Record) -> Iterator[bytes]:
        match record.event:
            case Custom(name=name):
                self.count += 1
                yield f"{self.count} {name}".encode()
            case TaskChanged(state=state):
                yield str(state).encode()
            case _:
                pass


def hook(receiver: Receiver, **fields: Any) -> Webhook:
    return Webhook(webhook_id=fields.pop("webhook_id", "w"), dialect="test-1", url=receiver.url, **fields)


def deliverer(hub: GatewayHub) -> dict[str, Any]:
    parts: Parts = vars(hub)["_parts"]
    return vars(parts.deliverer)


def quick(hub: GatewayHub, *pauses: float) -> None:
    """Set a retry schedule without jitter, and no pause after unforeseen errors."""
    rules = deliverer(hub)["_rules"]()
    quick_rules = DeliveryRules(rules.fetcher, RetrySchedule(pauses, lambda: 0), rules.signer)
    deliverer(hub)["_rules"] = lambda: quick_rules
    deliverer(hub)["_error_delays"] = (0.0, 0.0)


async def house(
    hubs: HubFactory, agent: Any, *, writer: Any = Saying, pauses: Sequence[float] = (0, 0, 0), **settings: Any
) -> GatewayHub:
    protocols = {"test-1": "test"}
    agents = registered("a", agent, idempotent=True)
    hub = hubs.make(agents, writers={"test-1": writer}, webhook_protocols=protocols, **settings)
    quick(hub, *pauses)
    await hub.start()
    return hub


async def scripted(hubs: HubFactory, **settings: Any) -> tuple[GatewayHub, Scripted]:
    agent = Scripted()
    return await house(hubs, agent, **settings), agent


async def settled(hub: GatewayHub) -> None:
    """Wait until every delivery has ended, or waits for a retry in the distant future."""
    deliveries = deliverer(hub)["_deliveries"]
    now = asyncio.get_running_loop().time
    await within(
        eventually(lambda: all(not each.working and each.until > now() + 1 for each in deliveries.values())),
        "the end of all deliveries",
    )


async def delivered(hub: GatewayHub, task_id: str) -> list[tuple[int, bool]]:
    """Return the cursor of each webhook of a task, and True if it is done, after all deliveries have settled."""
    await settled(hub)
    read = "SELECT delivered_seq, done FROM webhook WHERE task_id = ? ORDER BY webhook_id"
    rows = await hub.journal.query(lambda connection: connection.exec_driver_sql(read, (task_id,)).all())
    return [(seq, bool(done)) for seq, done in rows]


async def row(hub: GatewayHub) -> Any:
    """Return the row of the only webhook."""
    table = table_of(WebhookRow)
    return await hub.journal.query(lambda connection: connection.execute(select(table)).one())


async def test_a_webhook_receives_all_events_in_order(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receipt, activation = await begin(
        hub, agent, webhook=hook(receiver, config={"token": "s"}), alias="my thread", protocol="test"
    )
    activation.say(*(Custom(name=name) for name in "abc"))
    assert await receiver.receives(4) == ["working", "1 a", "2 b", "3 c"]
    activation.end()
    assert await receiver.receives(5) == ["working", "1 a", "2 b", "3 c", "completed"]
    assert b"x-token: s" in receiver.headers[0].lower()
    assert b"x-thread: my thread" in receiver.headers[0].lower()
    task = await ends(hub, receipt)
    assert await delivered(hub, receipt.task_id) == [(task.last_seq, True)]


async def test_a_later_webhook_receives_only_later_events(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receipt, activation = await begin(hub, agent)
    activation.say(Custom(name="before"))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "custom")
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id))
    activation.say(Custom(name="after")).end()
    assert await receiver.receives(2) == ["2 after", "completed"]  # the writer has seen the first one
    assert await delivered(hub, receipt.task_id) == [((await ends(hub, receipt)).last_seq, True)]


async def test_an_answer_may_set_a_webhook(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receipt = await submit_and_ask(hub, agent, "name")
    await answer(hub, receipt.task_id, "Bob", webhook=hook(receiver))
    (await agent.called()).end()
    assert await receiver.receives(2) == ["working", "completed"]


async def test_a_delivery_is_retried_until_it_is_accepted(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receiver.statuses = [500, 302, 404]
    receipt = await submit(hub, "a", webhook=hook(receiver))
    (await agent.called()).end()
    assert await receiver.receives(5) == ["working"] * 4 + ["completed"]
    assert await delivered(hub, receipt.task_id) == [((await ends(hub, receipt)).last_seq, True)]


async def test_deliveries_are_signed_and_retries_keep_the_id(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs, webhook_secret="secret")
    receiver.statuses = [500]
    await submit(hub, "a", webhook=hook(receiver))
    (await agent.called()).end()
    bodies = await receiver.receives(3)
    requests: list[dict[str, str]] = []
    for head, body in zip(receiver.headers, bodies, strict=True):
        pairs = (line.split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
        sent = {name.decode().lower(): value.decode() for name, value in pairs}
        at = int(sent["webhook-timestamp"])
        signed = Signer("secret").headers(sent["webhook-id"], body.encode(), at)
        assert signed.items() <= sent.items()
        requests.append(sent)
    first, again, other = (sent["webhook-id"] for sent in requests)
    assert first == again != other


async def test_a_failing_webhook_stays_failed_after_a_restart(
    hubs: HubFactory, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    hub, agent = await scripted(hubs)
    receiver.statuses = [500] * 100
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    assert await receiver.receives(4) == ["working"] * 4
    await settled(hub)
    given_up = await row(hub)
    assert (given_up.done, given_up.failures, given_up.next_try, given_up.reason) == (True, 4, None, "status 500")
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(word in warning for word in (receipt.task_id, "webhook=w", "status 500", "webhooks --retry w"))
    await finish(hub, activation, receipt)
    await hubs.stop(hub)
    hub = await house(hubs, agent)
    await settled(hub)
    assert await row(hub) == given_up
    assert [each.url for each in await hub.reads.webhooks(OWNER, receipt.task_id)] == [receiver.url]
    assert len(receiver.got) == 4


@pytest.mark.parametrize("again", ["the same webhook", "other credentials", "another URL", "the command"])
async def test_a_retried_webhook_continues_at_its_cursor(hubs: HubFactory, receiver: Receiver, again: str) -> None:
    hub, agent = await scripted(hubs)
    receiver.statuses = [500] * 4
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    await receiver.receives(4)
    await settled(hub)
    activation.say(Custom(name="missed"))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "custom")
    before = hook(receiver, task_id=receipt.task_id)
    if again == "the command":
        await finish(hub, activation, receipt)
        assert await hub.journal.write(retry_webhooks, "w") == [(receipt.task_id, "w")]
        await hubs.stop(hub)
        hub = await house(hubs, agent)
    else:
        fields = {"other credentials": {"config": {"token": "t"}}, "another URL": {"url": f"{receiver.url}/other"}}
        await hub.set_webhook(OWNER, replace(before, **fields.get(again, {})))
        await finish(hub, activation, receipt)
    await settled(hub)
    bodies = ["completed"] if again == "another URL" else ["working", "1 missed", "completed"]
    assert receiver.got[4:] == bodies
    assert (b"x-token: t" in receiver.headers[-1].lower()) == (again == "other credentials")
    ended = await row(hub)
    assert (ended.done, ended.failures, ended.reason, ended.given_up_at) == (True, 0, None, None)


HOURS: Final = (HOUR / 1e6, 2 * HOUR / 1e6, 3 * HOUR / 1e6)


@pytest.mark.parametrize(
    ("status", "retry_after", "pause"),
    [
        (500, None, HOUR),
        (302, None, HOUR),
        (404, None, HOUR),
        (429, "60", HOUR),  # the receiver cannot advance the next try
        (503, "7200", 2 * HOUR),
        (503, "in a while", HOUR),
        (503, "99999999999", 24 * HOUR),
        (410, None, None),
    ],
)
async def test_the_next_attempt_is_stored_and_follows_the_schedule(
    hubs: HubFactory,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    status: int,
    retry_after: str | None,
    pause: int | None,
) -> None:
    wall = Wall()
    hub, agent = await scripted(hubs, clock=Clock(wall))
    quick(hub, *HOURS)
    receiver.statuses, receiver.retry_after = [status], retry_after
    before = wall()
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    await receiver.receives(1)
    await settled(hub)
    failed = await row(hub)
    assert (failed.failures, failed.reason, failed.given_up_at) == (1, f"status {status}", None)
    assert failed.done == (pause is None)
    if pause is None:
        assert failed.next_try is None
    else:
        assert before + pause <= failed.next_try <= wall() + pause
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert hub.journal.channels.get(1).readers == 0  # the delivery holds only a timer
    await finish(hub, activation, receipt)
    assert receiver.got == ["working"]


async def test_a_restart_keeps_the_time_of_the_next_attempt(hubs: HubFactory, receiver: Receiver) -> None:
    wall, agent = Wall(), Scripted()
    receiver.statuses = [500] * 3

    async def opened() -> GatewayHub:
        hub = await house(hubs, agent, clock=Clock(wall), pauses=HOURS)
        await settled(hub)
        return hub

    hub = await opened()
    receipt = await submit_and_ask(hub, agent, "name", webhook=hook(receiver))
    await settled(hub)
    for tries in (1, 2):
        assert len(receiver.got) == tries
        before = await row(hub)
        assert before.failures == tries
        await hubs.stop(hub)
        hub = await opened()
        assert (await row(hub), len(receiver.got)) == (before, tries)  # no try is early
        [delivery] = deliverer(hub)["_deliveries"].values()
        left = delivery.until - asyncio.get_running_loop().time()
        assert 0 < left <= HOURS[tries - 1]
        await hubs.stop(hub)
        wall.moved += tries * HOUR
        hub = await opened()
        await receiver.receives(tries + 1)
        await settled(hub)
    await hubs.stop(hub)
    wall.moved += 3 * HOUR
    hub = await house(hubs, agent, clock=Clock(wall), pauses=HOURS)
    assert await receiver.receives(5) == ["working"] * 4 + ["input_required"]
    await answer(hub, receipt.task_id, "Bob")
    (await agent.called()).end()
    await settled(hub)
    assert receiver.got[5:] == ["working", "completed"]
    ended = await row(hub)
    assert (ended.done, ended.failures, ended.next_try, ended.reason) == (True, 0, None, None)


async def test_a_clock_change_delays_an_attempt_at_most_one_pause(hubs: HubFactory, receiver: Receiver) -> None:
    wall = Wall()
    hub, agent = await scripted(hubs, clock=Clock(wall), pauses=HOURS)
    receiver.statuses = [500]
    receipt = await submit_and_ask(hub, agent, "name", webhook=hook(receiver))
    await receiver.receives(1)
    await settled(hub)
    await hubs.stop(hub)
    wall.moved -= 1000 * HOUR
    hub = await house(hubs, agent, clock=Clock(wall), pauses=HOURS)
    [delivery] = deliverer(hub)["_deliveries"].values()
    assert delivery.until - asyncio.get_running_loop().time() <= 24 * HOUR / 1e6
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id))  # restarts the schedule
    assert await receiver.receives(3) == ["working", "working", "input_required"]


async def test_each_body_has_a_separate_schedule_and_is_accepted_once(hubs: HubFactory, receiver: Receiver) -> None:
    class Twice(Saying):
        def write(self, record: Record) -> Iterator[bytes]:
            for body in super().write(record):
                yield body
                yield body + b" again"

    hub, agent = await scripted(hubs, writer=Twice, pauses=(0, HOURS[0]))
    receiver.statuses = [500, 200, 500, 200, 500, 200, 500, 200]
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    await finish(hub, activation, receipt)
    await settled(hub)
    each = ["working", "working again", "completed", "completed again"]
    assert receiver.got == [body for body in each for _ in range(2)]


async def test_a_refused_cursor_update_is_retried(
    hubs: HubFactory, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse the write, as with a full disk: the body is not posted again meanwhile, and the webhook does not end."""
    hub, agent = await scripted(hubs)
    receiver.hold = asyncio.Event()
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    await receiver.receives(1)
    disk: Any = await hub.journal.write(lambda tx: tx.connection.connection.dbapi_connection)
    disk.execute("PRAGMA query_only=ON")
    receiver.hold.set()
    await within(eventually(lambda: "store its cursor" in caplog.text), "the refusal")
    assert receiver.got == ["working"]
    disk.execute("PRAGMA query_only=OFF")
    await finish(hub, activation, receipt)
    assert await receiver.receives(2) == ["working", "completed"]
    assert [done for _, done in await delivered(hub, receipt.task_id)] == [True]
    assert caplog.text.count("store its cursor") == 1


async def test_an_unexpected_error_is_logged_once_and_delivery_continues(
    hubs: HubFactory, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    left = iter(range(3))

    class Failing(Saying):
        def write(self, record: Record) -> Iterator[bytes]:
            if isinstance(record.event, Custom) and next(left, None) is not None:
                raise RuntimeError("nobody foresaw this")
            return super().write(record)

    hub, agent = await scripted(hubs, writer=Failing)
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    activation.say(Custom(name="a"))
    await finish(hub, activation, receipt)
    assert await receiver.receives(3) == ["working", "1 a", "completed"]
    [error] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.exc_info is not None and receipt.task_id in error.getMessage()
    assert [done for _, done in await delivered(hub, receipt.task_id)] == [True]


async def test_a_stateless_run_stays_while_its_webhook_waits(hubs: HubFactory, receiver: Receiver) -> None:
    steady = Wall()
    hub = await house(hubs, Echo(), clock=Clock(Wall(), steady), limits=Limits(ephemeral_ttl=0.001), pauses=HOURS)
    receiver.statuses = [500]
    receipt = await submit_to_end(hub, "a", webhook=hook(receiver), ephemeral=True)
    await receiver.receives(1)
    await settled(hub)
    look = vars(hub)["_parts"].expiry._end_all
    pk = await hub.journal.query(lambda connection: connection.exec_driver_sql("SELECT pk FROM thread").scalar_one())
    steady.moved += HOUR
    await look([pk])
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id))
    assert await receiver.receives(3) == ["working", "working", "completed"]
    await settled(hub)
    steady.moved += HOUR
    await look([pk])
    await erased(hub, receipt.thread_id)


async def test_an_unreachable_receiver_delays_no_other(hubs: HubFactory) -> None:
    stopped = Receiver()
    await stopped.start()
    await stopped.stop()
    hub = await house(hubs, Echo())
    receipt = await submit_to_end(hub, "a", webhook=hook(stopped))
    assert [done for _, done in await delivered(hub, receipt.task_id)] == [True]


async def test_a_restart_continues_after_the_last_accepted_delivery(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    activation.say(Custom(name="a"))
    await receiver.receives(2)
    receiver.hold = asyncio.Event()
    activation.say(Custom(name="b"))
    await receiver.receives(3)
    await hubs.stop(hub)  # before the receiver accepts the body
    receiver.hold.set()
    receiver.hold = None
    hub = await house(hubs, agent)
    (await agent.called()).end()
    assert await receiver.receives(5) == ["working", "1 a", "2 b", "2 b", "completed"]
    assert [done for _, done in await delivered(hub, receipt.task_id)] == [True]


async def test_events_of_a_recovery_are_delivered_at_the_start(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await hubs.scripted(writers={"test-1": Saying})
    receipt = await submit(hub, "a", webhook=hook(receiver))
    await agent.called()
    await receiver.receives(1)
    await hubs.stop(hub)
    await hubs.start(registered("a", agent), writers={"test-1": Saying})
    assert await receiver.receives(2) == ["working", "failed"]
    assert receipt.task_id


async def test_a_deleted_webhook_receives_nothing_more(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receipt = await submit(hub, "a", webhook=hook(receiver))
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id, webhook_id="x"))
    activation = await agent.called()
    await receiver.receives(1)
    assert [found.webhook_id for found in await hub.reads.webhooks(OWNER, receipt.task_id)] == ["w", "x"]
    assert await hub.delete_webhook(OWNER, receipt.task_id, "w") is True
    assert await hub.delete_webhook(OWNER, receipt.task_id, "w") is False
    await finish(hub, activation, receipt)
    await delivered(hub, receipt.task_id)
    assert receiver.got.count("completed") == 1


async def test_a_webhook_with_the_same_id_replaces_the_earlier_one(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    other = Receiver()
    await other.start()
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    await receiver.receives(1)
    await hub.set_webhook(OWNER, hook(other, task_id=receipt.task_id))
    (found,) = await hub.reads.webhooks(OWNER, receipt.task_id)
    assert found.url == other.url
    activation.end()
    assert await other.receives(1) == ["completed"]
    assert receiver.got == ["working"]
    await delivered(hub, receipt.task_id)
    await other.stop()


async def test_setting_the_same_webhook_again_keeps_its_cursor(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    receiver.hold = asyncio.Event()
    receiver.statuses = [500]
    receipt = await submit(hub, "a", webhook=hook(receiver))
    (await agent.called()).ask("name").end()
    await receiver.receives(1)
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    await answer(hub, receipt.task_id, "Bob", webhook=hook(receiver))
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id))
    receiver.hold.set()
    (await agent.called()).end()
    bodies = ["working", "working", "input_required", "working", "completed"]
    assert await receiver.receives(5) == bodies
    task = await ends(hub, receipt)
    assert await delivered(hub, receipt.task_id) == [(task.last_seq, True)]
    assert receiver.got == bodies


async def test_a_webhook_for_one_body_is_deleted_afterwards(hubs: HubFactory, receiver: Receiver) -> None:
    class Once(Saying):
        once = True

    hub, agent = await hubs.scripted(writers={"test-1": Once}, limits=Limits(webhooks=1))
    receipt = await submit(hub, "a", webhook=hook(receiver))
    for number in range(3):
        (await agent.called()).ask(f"name {number}").end()
        await receiver.receives(number + 1)
        await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
        assert await delivered(hub, receipt.task_id) == []
        await answer(hub, receipt.task_id, "Bob", webhook=hook(receiver, webhook_id=f"w{number}"))
    assert receiver.got == ["working"] * 3


async def test_the_number_of_webhooks_of_a_task_is_limited(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs, limits=Limits(webhooks=2))
    receipt, activation = await begin(hub, agent, webhook=hook(receiver))
    second = hook(receiver, task_id=receipt.task_id, webhook_id="second")
    third = hook(receiver, task_id=receipt.task_id, webhook_id="third")
    await hub.set_webhook(OWNER, second)
    with refused(FaultCode.INVALID, match="already has 2 webhooks"):
        await hub.set_webhook(OWNER, third)
    activation.ask("name").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    with pytest.raises(FaultError, match="already has 2 webhooks"):
        await answer(hub, receipt.task_id, "Bob", webhook=third)
    await hub.set_webhook(OWNER, replace(second, config={"token": "t"}))  # replaces the earlier one
    await hub.delete_webhook(OWNER, receipt.task_id, "second")
    await answer(hub, receipt.task_id, "Bob", webhook=third)
    await finish(hub, await agent.called(), receipt)


async def test_a_webhook_of_an_ended_task_is_finished_at_once(hubs: HubFactory, receiver: Receiver) -> None:
    hub = await house(hubs, Echo())
    receipt = await submit(hub, "a")
    task = await ends(hub, receipt)
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id))
    assert await delivered(hub, receipt.task_id) == [(task.last_seq, True)]
    assert receiver.got == []


async def test_webhooks_of_a_task_are_delivered_independently(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    slow = Receiver()
    await slow.start()
    slow.hold = asyncio.Event()
    receipt = await submit(hub, "a", webhook=hook(slow))
    await slow.receives(1)
    await hub.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id, webhook_id="x"))
    (await agent.called()).say(Custom(name="a")).end()
    await receiver.receives(2)
    assert slow.got == ["working"]
    slow.hold.set()
    assert await slow.receives(3) == ["working", "1 a", "completed"]
    await delivered(hub, receipt.task_id)
    await slow.stop()


async def test_the_webhook_of_a_deleted_thread_ends_quietly(
    hubs: HubFactory, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    hub, agent = await scripted(hubs)
    receipt = await submit(hub, "a", webhook=hook(receiver))
    await agent.called()
    await receiver.receives(1)
    await hub.delete_thread(OWNER, receipt.thread_id)
    assert await delivered(hub, receipt.task_id) == []
    assert receiver.got == ["working"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_delivery_in_an_unknown_dialect_fails(
    hubs: HubFactory, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit(hub, "a", webhook=hook(receiver))
    await ends(hub, receipt)
    await settled(hub)
    given_up = await row(hub)
    assert (given_up.done, given_up.reason) == (True, "no adapter has the dialect test-1")
    assert given_up.given_up_at is not None
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"webhook given up webhook=w task={receipt.task_id} dialect=test-1")
    assert receiver.got == []


async def test_a_forbidden_address_is_refused_without_changes(hubs: HubFactory) -> None:
    hub = await house(hubs, Echo())
    for url in ("http://10.0.0.1/", "file:///etc/passwd", "http://[::1]/", "nonsense"):
        with refused(FaultCode.INVALID):
            await submit(hub, "a", webhook=Webhook(webhook_id="w", dialect="test-1", url=url))
    receipt = await submit(hub, "a")
    with refused(FaultCode.INVALID):
        await hub.set_webhook(
            OWNER, Webhook(webhook_id="w", task_id=receipt.task_id, dialect="test-1", url="http://10.0.0.1/")
        )
    assert await hub.reads.webhooks(OWNER, receipt.task_id) == []


async def test_a_webhook_is_set_even_if_its_caller_disconnects(hubs: HubFactory, receiver: Receiver) -> None:
    hub, agent = await scripted(hubs)
    async with PausedWriter(hub) as writer:
        caller = asyncio.ensure_future(submit(hub, "a", webhook=hook(receiver)))
        await writer.queued(caller)
        caller.cancel()
        await asyncio.wait([caller])
    (await agent.called()).end()
    assert await receiver.receives(2) == ["working", "completed"]

"""Pages of a conversation's items, compared with slices of the whole conversation."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

import pytest

from babelgate.adapters.openai.server.item_pages import ItemPages
from babelgate.adapters.openai.server.page import page_of
from babelgate.adapters.openai.write.conversation import ConversationWriter
from babelgate.canonical import (
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Principal,
    Receipt,
    RunStatus,
    Scope,
    TaskState,
    TextPart,
)
from babelgate.canonical.event import (
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunEnded,
    StateSaved,
    ToolEnded,
    ToolStarted,
    encode_event,
)
from babelgate.canonical.hub import StateUpdate, ThreadChange
from babelgate.canonical.message import ReasoningPart, ToolCallPart, ToolResultPart
from babelgate.canonical.value import JsonObject
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage import turns
from tests.gateway.hubs import (
    OWNER,
    PRINCIPAL,
    Echo,
    HubFactory,
    Scripted,
    answer,
    batches,
    ends,
    guarded,
    reaches,
    registered,
    run_is,
    submit,
)

EACH_DATABASE: Final = True
ORDERS: Final = ("asc", "desc")


async def whole(hub: GatewayHub, thread_id: str) -> list[JsonObject]:
    writer = ConversationWriter(thread_id, OWNER)
    for record in await hub.reads.records(OWNER, Scope(thread_id), inline=True):
        writer.write(record)
    return [each.item for each in writer.items()]


def queries(items: Sequence[JsonObject], *limits: int) -> list[dict[str, str]]:
    """Return the queries for pages after each item, and without a cursor, in both orders."""
    cursors: tuple[dict[str, str], ...] = ({}, *({"after": str(item["id"])} for item in items))
    return [{**at, "order": order, "limit": str(limit)} for at in cursors for order in ORDERS for limit in limits]


async def check(hub: GatewayHub, thread_id: str, *limits: int) -> list[JsonObject]:
    """Compare all pages of these sizes with slices of the whole conversation. Then read the pages one after the other.
    Return all items of the conversation."""
    items = await whole(hub, thread_id)
    for query in queries(items, *limits):
        page = await ItemPages(guarded(hub)).read(PRINCIPAL, thread_id, query)
        assert json.dumps(page) == json.dumps(page_of(items, query)), query
    await check_walk(hub, thread_id, items)
    return items


async def check_walk(hub: GatewayHub, thread_id: str, items: Sequence[JsonObject]) -> None:
    for order in ORDERS:
        pages, read_items, after = ItemPages(guarded(hub)), list[JsonObject](), dict[str, str]()
        while len(read_items) <= len(items):
            page: Any = await pages.read(PRINCIPAL, thread_id, {**after, "order": order, "limit": "3"})
            read_items += page["data"]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert json.dumps(read_items) == json.dumps(items[::-1] if order == "desc" else items)


async def update(hub: GatewayHub, thread_id: str, *messages: Message, forget: Sequence[str] = ()) -> None:
    await hub.update_state(OWNER, StateUpdate(thread_id=thread_id, messages=messages, removed_ids=tuple(forget)))


def message(text: str, message_id: str, role: Any = "user") -> Message:
    return Message.of(text, role).replace(message_id=message_id)


async def run(hub: GatewayHub, agent: Scripted, thread_id: str, *output: Any, ended: RunEnded | None = None) -> Receipt:
    receipt = await submit(hub, "a", thread_id=thread_id)
    (await agent.called()).say(*output).end(ended)
    await ends(hub, receipt)
    return receipt


async def says(hub: GatewayHub, thread_id: str, text: str) -> None:
    """Wait until the log has this text."""
    async with aclosing(batches(hub, Scope(thread_id))) as reading:
        async for records in reading:
            if any(text.encode() in encode_event(record.event) for record in records):
                return


def called(call_id: str, side: Any = "agent") -> list[Any]:
    part = ToolCallPart(call_id=call_id, name="look", arguments='{"at": 1}', side=side)
    return [MessageStarted(), PartAdded(part=part), MessageEnded()]


def result(call_id: str, output: str) -> list[Any]:
    part = ToolResultPart(call_id=call_id, output=output)
    return [MessageStarted(role="tool"), PartAdded(part=part), MessageEnded()]


async def start(hubs: HubFactory) -> tuple[GatewayHub, Scripted, str]:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("echo", Echo()))
    thread = await hub.create_thread(OWNER, ThreadChange())
    return hub, agent, thread.thread_id


@pytest.mark.slow
async def test_pages_of_all_kinds_of_items_match_the_whole(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, agent, thread_id = await start(hubs)
    assert await check(hub, thread_id) == []

    await update(hub, thread_id, message("given", "m1"), message("given, too", "m2", "agent"))
    for words in ("one", "two", "three"):
        await ends(hub, await submit(hub, "echo", words, thread_id=thread_id))
    picture = FilePart(name="a.png", media_type="image/png", inline=b"\x89PNG" * 20)
    with_picture = Message(role="user", parts=(TextPart(text="look"), picture), message_id="m3")
    await update(hub, thread_id, with_picture, message("said anew", "m1"))
    thought = [MessageStarted(), PartAdded(part=ReasoningPart(text="hm")), MessageEnded()]
    tool = [ToolStarted(call_id="t1", name="add", input={"a": 1}), ToolEnded(call_id="t1", name="add", output="2")]
    await run(hub, agent, thread_id, *thought, *called("c1"), *result("c1", "found"), *tool, "done")
    failed = await run(hub, agent, thread_id, "as far as", ended=RunEnded(status=RunStatus.ERROR))
    assert (await hub.reads.run(OWNER, failed.run_id)).status is RunStatus.ERROR
    await check(hub, thread_id)

    # A task of several runs. Its questions are answered one by one, and a result comes in a later run.
    asking = await submit(hub, "a", thread_id=thread_id)
    (await agent.called()).say(*called("c2"), *called("c3", "caller"), "wait").ask("q1", "q2").end()
    await reaches(hub, asking, TaskState.INPUT_REQUIRED)
    await check(hub, thread_id)
    await answer(hub, asking.task_id, values={"q1": "yes"})
    await check(hub, thread_id)
    await answer(hub, asking.task_id, values={"q2": "no"})
    (await agent.called()).say(*result("c2", "late"), *result("c3", "the caller's")).ask("q3").end()
    await reaches(hub, asking, TaskState.INPUT_REQUIRED)
    await answer(hub, asking.task_id, bare="go on")
    (await agent.called()).say("at last").end(RunEnded(output={"a": 1}))
    await ends(hub, asking)

    # Removed messages: by callers, by the agent, before they are sent again, and of a whole run.
    removed = await run(hub, agent, thread_id, "nobody sees this")
    await hub.remove_run(OWNER, removed.run_id)
    await run(hub, agent, thread_id, MessageStarted(message_id="x1"), PartAdded(part=TextPart(text="x")))
    await run(hub, agent, thread_id, StateSaved(values={}, removed_ids=("x1", "x2")), "without x")
    await run(hub, agent, thread_id, MessageStarted(message_id="x2"), PartAdded(part=TextPart(text="y")))
    await update(hub, thread_id, forget=("m2",))
    await update(hub, thread_id, message("at the end", "m9"))
    cancelled = await submit(hub, "a", thread_id=thread_id)
    running = await agent.called()
    running.open("so far")
    await run_is(hub, cancelled.run_id, thread_id, RunStatus.RUNNING)
    await hub.cancel(OWNER, cancelled.task_id)
    await ends(hub, cancelled)

    # A queued run, and an active one.
    first = await submit(hub, "a", thread_id=thread_id)
    active = (await agent.called()).open("still")
    await says(hub, thread_id, "still")  # nothing may be added while the pages are read one after the other
    second = await submit(hub, "echo", "queued", thread_id=thread_id, strategy="enqueue")
    items = await check(hub, thread_id)
    assert len(items) > 30
    active.end()
    await ends(hub, first)
    await ends(hub, second)
    items = await check(hub, thread_id, 1, 20)

    # Any number of turns and records read at once.
    for name, value in (("_ROOM", 300), ("_MOST_RECORDS", 2), ("_SPAN", 5)):
        monkeypatch.setattr(turns, name, value)
    await check_walk(hub, thread_id, items)
    with pytest.raises(FaultError) as caught:
        await ItemPages(guarded(hub)).read(PRINCIPAL, thread_id, {"after": "msg_unknown"})
    assert caught.value.fault.code is FaultCode.INVALID
    with pytest.raises(FaultError) as caught:
        await ItemPages(guarded(hub)).read(Principal.of_owner("somebody else"), thread_id, {})
    assert caught.value.fault.code is FaultCode.NOT_FOUND


async def test_pages_of_caller_messages_match_the_whole(hubs: HubFactory) -> None:
    hub, _, thread_id = await start(hubs)
    for number in range(30):
        await update(hub, thread_id, message(f"{number}", f"m{number}"), message("again", f"m{number // 3}"))
    items = await whole(hub, thread_id)
    assert len(items) == 60
    for query in queries(items[:9], 2):
        assert await ItemPages(guarded(hub)).read(PRINCIPAL, thread_id, query) == page_of(items, query)


async def test_pages_of_messages_sent_again_match_the_whole(hubs: HubFactory) -> None:
    """Check callers that send the whole conversation with each request."""
    hub, agent, thread_id = await start(hubs)
    for number in range(5):
        messages = tuple(message(f"{each}", f"m{each}") for each in range(number + 1))
        receipt = await submit(hub, "a", thread_id=thread_id)
        assert receipt.thread_id == thread_id
        (await agent.called()).say(f"{number}").end()
        await ends(hub, receipt)
        await update(hub, thread_id, *messages)
    items = await whole(hub, thread_id)
    for query in queries(items[::2], 4):
        assert await ItemPages(guarded(hub)).read(PRINCIPAL, thread_id, query) == page_of(items, query)


async def test_cursor_of_a_removed_item_is_rejected(hubs: HubFactory) -> None:
    hub, _, thread_id = await start(hubs)
    await update(hub, thread_id, message("one", "m1"), message("two", "m2"))
    pages = ItemPages(guarded(hub))
    page: Any = await pages.read(PRINCIPAL, thread_id, {"limit": "1"})
    after = {"after": page["last_id"]}
    assert (await pages.read(PRINCIPAL, thread_id, after))["last_id"] == "msg_m1"
    await update(hub, thread_id, forget=("m2",))
    with pytest.raises(FaultError) as caught:
        await pages.read(PRINCIPAL, thread_id, after)
    assert caught.value.fault.code is FaultCode.INVALID

"""Tests of the reads across threads: lists of runs and threads, and the folded records of a run."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import pytest

from babelgate.canonical import FaultCode, RunStatus, Scope, TaskState, ThreadChange
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded, Record
from babelgate.canonical.message import TextPart
from babelgate.canonical.stored import encode_snapshot
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage import folded_log, run_summaries, thread_summaries
from babelgate.gateway.storage.folded_log import FoldedRecord, RecordFolder
from babelgate.gateway.storage.page_cursor import encode_cursor
from babelgate.gateway.storage.run_summaries import RunCount, RunQuery, RunSummary
from babelgate.gateway.storage.short_form import shorten
from babelgate.gateway.storage.thread_summaries import ThreadQuery, ThreadSummary
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    begin,
    converse,
    ends,
    finish,
    reaches,
    refused,
    registered,
    submit,
    submit_and_ask,
    submit_to_end,
)

EACH_DATABASE: Final = True
T = TypeVar("T")
FAILED: Final = frozenset({RunStatus.ERROR, RunStatus.TIMEOUT})
LIVE: Final = frozenset({RunStatus.PENDING, RunStatus.RUNNING})
NAMES: Final = ("01a22700-0000-7000-8000-000000000000", '"text":"')
"""Ids of messages. The log stores the first one in a short form, and the second one has the syntax of its record."""


async def all_runs(hub: GatewayHub, owner: str | None, query: RunQuery) -> tuple[list[RunSummary], int]:
    """Return the runs of all pages, and the number of pages."""
    found: list[RunSummary] = []
    for pages in range(1, 100):
        page = await hub.overview.runs(owner, query)
        assert len(page.runs) <= query.limit
        found += page.runs
        if page.next_cursor is None:
            return found, pages
        query = replace(query, after=page.next_cursor)
    raise AssertionError("the pages do not end")


async def all_threads(hub: GatewayHub, query: ThreadQuery) -> list[ThreadSummary]:
    found: list[ThreadSummary] = []
    for _ in range(100):
        page = await hub.overview.threads(OWNER, query)
        found += page.threads
        if page.next_cursor is None:
            return found
        query = replace(query, after=page.next_cursor)
    raise AssertionError("the pages do not end")


async def test_runs_are_listed_by_page_and_filter(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("b", Echo()))
    echoed = [await submit_to_end(hub, "b", f"Number  {number}\nof five") for number in range(5)]
    failed, activation = await begin(hub, agent, "Fail", protocol="acp", version="0.2.0")
    activation.fail(ValueError("no"))
    await ends(hub, failed)
    paused = await submit_and_ask(hub, agent, "q")
    running, activation = await begin(hub, agent, "Run")
    others = await submit(hub, "b", "Number 9", owner="bob")
    await ends(hub, others, owner="bob")
    stateless = await submit(hub, "b", "Stateless", ephemeral=True)
    removed = await submit_to_end(hub, "b", "Removed")
    await hub.remove_run(OWNER, removed.run_id)

    mine = [running, paused, failed, *reversed(echoed)]
    table: dict[str, tuple[str | None, RunQuery, list[Any]]] = {
        "all of the owner": (OWNER, RunQuery(), mine),
        "all owners": (None, RunQuery(), [others, *mine]),
        "agent": (OWNER, RunQuery(agent="a"), [running, paused, failed]),
        "agents": (OWNER, RunQuery(agents=frozenset({"b"})), mine[3:]),
        "live": (OWNER, RunQuery(status=LIVE), [running]),
        "failed": (OWNER, RunQuery(status=FAILED), [failed]),
        "failed of all": (None, RunQuery(status=FAILED), [failed]),
        "paused": (OWNER, RunQuery(status=frozenset({RunStatus.PAUSED})), [paused]),
        "since": (OWNER, RunQuery(since=failed.created_at), mine[:3]),
        "words": (OWNER, RunQuery(words="NUMBER 3 of"), [echoed[3]]),
        "nobody": ("eve", RunQuery(), []),
    }
    for scanned in (5000, 2):
        monkeypatch.setattr(run_summaries, "SCANNED", scanned)
        monkeypatch.setattr(run_summaries, "_TEXTS_SCANNED", scanned)
        for name, (owner, query, expected) in table.items():
            for limit in (50, 3, 1):
                found, pages = await all_runs(hub, owner, replace(query, limit=limit))
                assert [each.run.run_id for each in found] == [each.run_id for each in expected], (name, limit)
                if scanned == 5000 and expected:
                    assert pages == -(-len(expected) // limit), (name, limit)
    assert stateless.run_id not in {each.run.run_id for each in (await all_runs(hub, None, RunQuery()))[0]}
    activation.end()
    await ends(hub, running)

    counts, is_partial = await hub.overview.count_runs(OWNER, since=0)
    assert (counts["a"], is_partial) == (RunCount(3, 1), False)
    assert await hub.overview.count_runs(OWNER, since=paused.created_at) == (
        {"a": RunCount(2)},  # neither the stateless run nor the removed one
        False,
    )
    monkeypatch.setattr(run_summaries, "COUNTED", 3)
    assert await hub.overview.count_runs(OWNER, since=0) == ({"a": RunCount(1)}, True)
    for cursor in ("x", "", encode_cursor((1,)), encode_cursor(("1", "r")), encode_cursor((2**70, "r"))):
        with refused(FaultCode.INVALID, "after: expected"):
            await hub.overview.runs(OWNER, RunQuery(after=cursor))


async def test_a_run_is_summarized_with_its_questions_and_first_output(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent, "x" * 500, protocol="acp", version="0.2.0")
    before = await hub.overview.run(OWNER, receipt.run_id)
    assert (before.protocol, before.version, before.first_output_at, before.node) == ("acp", "0.2.0", None, None)
    assert (before.run.status, before.run.first_words) == (RunStatus.RUNNING, "x" * 119 + "…")
    activation.say("Well").ask("one", "two").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    summary = await hub.overview.run(OWNER, receipt.run_id)
    assert [each.interrupt_id for each in summary.questions] == ["one", "two"]
    started_at, output_at, ended_at = summary.run.started_at, summary.first_output_at, summary.run.ended_at
    assert started_at and output_at and ended_at and started_at <= output_at <= ended_at
    await hub.cancel(OWNER, receipt.task_id)
    assert not (await hub.overview.run(OWNER, receipt.run_id)).questions, "nobody can answer a cancelled task"
    for owner, run_id in (("bob", receipt.run_id), (OWNER, receipt.task_id)):
        with refused(FaultCode.NOT_FOUND):
            await hub.overview.run(owner, run_id)
        with refused(FaultCode.NOT_FOUND):
            await hub.overview.records(owner, run_id, 0, limit=1, folds=True)


async def test_threads_are_listed_by_page_and_filter(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("b", Echo()))
    titled = await hub.create_thread(OWNER, ThreadChange(metadata={"title": "Weather", "user": 7, "tag": "x"}))
    rain = await submit_to_end(hub, "b", "Rain tomorrow?")
    await submit_to_end(hub, "b", "And then?", thread_id=rain.thread_id)
    both = await submit_to_end(hub, "b", "Snow?")
    await converse(hub, agent, "Or hail?", thread_id=both.thread_id)
    asks = await submit_and_ask(hub, agent, "q")
    await submit(hub, "b", "Stateless", ephemeral=True)
    await ends(hub, await submit(hub, "b", "Rain", owner="bob"), owner="bob")

    names = {
        titled.thread_id: "titled",
        rain.thread_id: "rain",
        both.thread_id: "both",
        asks.thread_id: "asks",
    }
    table: dict[str, tuple[ThreadQuery, list[str]]] = {
        "all": (ThreadQuery(), ["asks", "both", "rain", "titled"]),
        "status": (ThreadQuery(status="interrupted"), ["asks"]),
        "agent": (ThreadQuery(agent="b"), ["both", "rain"]),
        "agents": (ThreadQuery(agents=frozenset({"b"})), ["rain", "titled"]),
        "number": (ThreadQuery(metadata={"user": "7"}), ["titled"]),
        "members": (ThreadQuery(metadata={"user": "7", "tag": "y"}), []),
        "title": (ThreadQuery(words="weath"), ["titled"]),
        "first words": (ThreadQuery(words="rain"), ["rain"]),
        "later words": (ThreadQuery(words="hail"), []),
    }
    for scanned in (1000, 2):
        monkeypatch.setattr(thread_summaries, "_SCANNED", scanned)
        for name, (query, expected) in table.items():
            for limit in (50, 1):
                found = await all_threads(hub, replace(query, limit=limit))
                assert [names[each.thread.thread_id] for each in found] == expected, (name, limit)

    found = {names[each.thread.thread_id]: each for each in await all_threads(hub, ThreadQuery())}
    assert [(each.title, each.runs, [*each.agents]) for each in found.values()] == [
        ("hi", 1, ["a"]),
        ("Snow?", 2, ["a", "b"]),
        ("Rain tomorrow?", 2, ["b"]),
        ("Weather", 0, []),
    ]
    monkeypatch.setattr(thread_summaries, "MAX_RUNS", 1)
    assert [(each.runs, [*each.agents]) for each in await all_threads(hub, ThreadQuery())] == [
        (1, ["a"]),
        (1, ["a"]),
        (1, ["b"]),
        (0, []),
    ]
    monkeypatch.undo()
    assert [each.interrupt_id for each in found["asks"].questions] == ["q"]
    assert await hub.overview.thread(OWNER, rain.thread_id) == found["rain"]
    content = await hub.overview.thread_content(OWNER, rain.thread_id)
    assert len(content.run_ids) == 2 and content.run_ids[0] == rain.run_id
    reads: list[Callable[[str, str], Awaitable[object]]] = [hub.overview.thread, hub.overview.thread_content]
    for read in reads:
        with refused(FaultCode.NOT_FOUND):
            await read("bob", rain.thread_id)


@pytest.mark.parametrize("message_id", NAMES)
@pytest.mark.parametrize(
    ("other", "text", "extends"),
    [
        ({}, " é", True),
        ({}, "", True),
        ({}, 'a "word"', False),
        ({}, "a\nline", False),
        ({"index": 1}, "x", False),
        ({"message_id": "x"}, "x", False),
    ],
)
async def test_stored_delta_extends_the_delta_before(
    message_id: str, other: dict[str, Any], text: str, extends: bool
) -> None:
    first = PartDelta(message_id=message_id, index=0, text="first")
    folder = RecordFolder(folds=True)
    folder.add(FoldedRecord.of(Record(7, 1, "task", "run", 1, first)))
    folder.remember(first, shorten(encode_snapshot(first)))
    body = shorten(encode_snapshot(first.replace(**other, text=text)))
    assert folder.has_extended(8, 1, body) == extends
    assert folder.records[0].texts == (["first", text] if extends else ["first"])


@pytest.mark.parametrize("piece", [8192, 20])
async def test_folded_records_have_the_text_of_all_deltas(
    hubs: HubFactory, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(folded_log, "PIECE", piece)
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent)
    waiting = await submit(hub, "a", "Later", thread_id=receipt.thread_id)  # among the records, and of another run
    one, two = NAMES
    for message_id in NAMES:
        activation.say(
            MessageStarted(message_id=message_id), PartAdded(message_id=message_id, part=TextPart(text="0"), open=True)
        )
    texts = {one: "", two: ""}
    for number in range(90):
        name = two if number % 3 else one
        text = f" {number}é" + ('"', "\\", "\n", "")[number % 4]
        texts[name] += text
        activation.say(PartDelta(message_id=name, text=text))
    for message_id in NAMES:
        activation.say(PartEnded(message_id=message_id), MessageEnded(message_id=message_id))
    await finish(hub, activation, receipt)

    plain = [
        each async for some in hub.reads.log(OWNER, Scope(receipt.thread_id, "run", receipt.run_id)) for each in some
    ]
    for folds in (False, True):
        for limit in (1000, 7, 1):
            after, numbers, joined, pages = 0, list[int](), {one: "", two: ""}, 0
            listed = list[tuple[int, int, str]]()
            while True:
                page = await hub.overview.records(OWNER, receipt.run_id, after, limit=limit, folds=folds)
                assert len(page.records) <= limit and page.has_ended and page.last_seq == plain[-1].seq
                pages += 1
                for each in page.records:
                    record = each.join()
                    listed += [
                        (seq + index, at, text) for seq, at, some in each.groups() for index, text in enumerate(some)
                    ]
                    numbers += [record.seq] if each.count == 1 else []
                    assert (each.count == 1) == (each.last_seq == record.seq)
                    if isinstance(record.event, PartDelta):
                        joined[record.event.message_id or ""] += record.event.text
                if page.next_seq is None:
                    break
                assert page.next_seq > after
                after = page.next_seq
            assert joined == texts, (folds, limit)
            assert sorted(listed) == [
                (each.seq, each.at, each.event.text) for each in plain if isinstance(each.event, PartDelta)
            ]
            if folds and limit == 1000:
                assert pages == 1 and len(page.records) == len(plain) - 88
                assert [each.count for each in page.records if each.count > 1] == [30, 60]
            elif not folds:
                assert numbers == [record.seq for record in plain], limit
    activation = await agent.called()
    running = await hub.overview.records(OWNER, waiting.run_id, 0, limit=100, folds=True)
    assert (running.has_ended, running.next_seq) == (False, None)
    assert [each.record.event.kind for each in running.records] == ["run_created", "run_started"]
    await finish(hub, activation, waiting)

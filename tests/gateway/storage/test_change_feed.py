"""Tests of hints about changes: none is lost. If the feed does not know what has changed, or if too much has, a hint
says that several things have."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.change_feed import (
    MAX_REMOTE,
    PAUSE,
    RUNS_OF_THREAD,
    ChangeFeed,
    HintStream,
    RemoteRun,
    RemoteThread,
)
from babelgate.gateway.storage.notices import ADMINISTRATION, GRANTS, Remote
from tests.gateway.hubs import within

NONE: list[RemoteThread] = []
SEVERAL = {("run", None, None), ("thread", None, None)}
ENDED = {("run", "r1", "success"), ("thread", "t", "idle")}


class Rows:
    """Answers to the reads of a feed: the threads that exist, or an error. The last answer is repeated."""

    def __init__(self, *answers: list[RemoteThread] | Exception) -> None:
        self._answers = list(answers)
        self.keys: list[int] = []

    async def read(self, keys: Sequence[int]) -> list[RemoteThread]:
        self.keys += keys
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def thread(*statuses: str, status: str = "idle", owner: str = "o", thread_id: str = "t") -> RemoteThread:
    """Return a thread with runs of these statuses, the newest of which is the first."""
    runs = [RemoteRun(f"r{len(statuses) - index}", each, "a") for index, each in enumerate(statuses)]
    return RemoteThread(1, owner, thread_id, status, runs)


async def read(stream: HintStream, count: int) -> set[tuple[str, str | None, str | None]]:
    """Return hints of a stream."""
    hints = stream.read()
    return {(hint.kind, hint.id, hint.status) for hint in [await within(anext(hints), "a hint") for _ in range(count)]}


async def test_many_changes_become_one_hint() -> None:
    feed, loop = ChangeFeed(Rows(NONE).read, Clock()), asyncio.get_running_loop()
    with feed.open("o", is_operator=True) as stream:
        for number in range(16):
            feed.note_job(f"job {number}", "running")
        feed.note_erased("o", "t")
        feed.note_job("job 16", "running")
        began = loop.time()
        assert await read(stream, 2) == {("thread", None, None), ("job", None, None)}
        assert loop.time() - began >= PAUSE - time.get_clock_info("monotonic").resolution
    feed.close()


AWAY = FaultError(FaultCode.UNAVAILABLE, "away")


@pytest.mark.parametrize(
    ("answers", "remotes", "expected"),
    [
        pytest.param([[thread("success")]], [Remote(1, 9)], ENDED, id="read"),
        pytest.param([AWAY, AWAY, [thread("success")]], [Remote(1, 9)], ENDED, id="database is away"),
        pytest.param([ValueError("x")], [Remote(1, 9)], SEVERAL, id="read fails"),
        pytest.param([NONE], [Remote(key, 9) for key in range(1, MAX_REMOTE + 2)], SEVERAL, id="overflow"),
        pytest.param([NONE], [Remote(1, 9)], SEVERAL, id="erased before the read"),
        pytest.param([NONE], [Remote(1, 9, erased=True)], SEVERAL, id="erased"),
        pytest.param(
            [[thread(*["success"] * RUNS_OF_THREAD)]],
            [Remote(1, 9)],
            {("run", None, None), ("thread", "t", "idle")},
            id="more runs than were read",
        ),
        pytest.param(
            [[thread("success")]],
            [Remote(1, 9, rewritten=True), Remote(1, 10)],
            {("run", None, None), ("thread", "t", "idle")},
            id="any run removed",
        ),
    ],
)
async def test_a_change_of_another_node_is_never_lost(
    answers: list[list[RemoteThread] | Exception], remotes: list[Remote], expected: set[tuple[str, str | None, str]]
) -> None:
    feed = ChangeFeed(Rows(*answers).read, Clock())
    with feed.open("o") as stream, feed.open("p") as other:
        feed.note_remotes(remotes)
        assert await read(stream, 2) == expected
        if expected == SEVERAL:  # the owner is not known
            assert await read(other, 2) == SEVERAL
    feed.close()


async def test_later_runs_of_a_thread_have_separate_hints() -> None:
    rows = Rows([thread("running", status="busy")], [thread("running", "error", "success", status="busy")])
    feed = ChangeFeed(rows.read, Clock())
    with feed.open("o") as stream:
        feed.note_remotes([Remote(1, 9)])
        assert await read(stream, 2) == {("run", "r1", "running"), ("thread", "t", "busy")}
        feed.note_remotes([Remote(1, 12)])
        assert await read(stream, 4) == {
            ("run", "r1", "success"),
            ("run", "r2", "error"),
            ("run", "r3", "running"),
            ("thread", "t", "busy"),
        }
    feed.close()


async def test_ids_of_several_kinds_and_owners_are_distinct() -> None:
    same = [
        RemoteThread(pk, owner, "x", "idle", [RemoteRun("x", "idle", "a")])  # the same id and the same status
        for pk, owner in ((1, "o"), (2, "p"))
    ]
    feed = ChangeFeed(Rows(same).read, Clock())
    with feed.open("o") as stream, feed.open("p") as other:
        feed.note_remotes([Remote(1, 9), Remote(2, 9)])
        for each in (stream, other):
            assert await read(each, 2) == {("run", "x", "idle"), ("thread", "x", "idle")}
    feed.close()


async def test_a_later_stream_gets_an_unchanged_status() -> None:
    rows = Rows([thread("success")])
    feed = ChangeFeed(rows.read, Clock())
    for _ in range(2):
        with feed.open("o") as stream:
            feed.note_remotes([Remote(1, 9)])
            assert await read(stream, 2) == ENDED
    feed.close()


async def test_keys_that_no_thread_has_are_not_read() -> None:
    rows = Rows([thread("success")])
    feed = ChangeFeed(rows.read, Clock())
    with feed.open("o") as stream:
        feed.note_remotes([Remote(ADMINISTRATION, 0), Remote(GRANTS, 0), Remote(1, 9)])
        assert await read(stream, 2) == ENDED
    assert rows.keys == [1]
    feed.close()


async def test_lost_notices_become_hints_without_an_id() -> None:
    feed = ChangeFeed(Rows(NONE).read, Clock())
    feed.note_missed()
    with feed.open("o") as stream:
        feed.note_missed()
        assert await read(stream, 2) == SEVERAL
    feed.close()

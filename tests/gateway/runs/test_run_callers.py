"""Tokens of callers in memory: each is kept while its run lasts and while it is valid, and their number is limited."""

from typing import Any, Final

import jwt

from babelgate.canonical import Principal
from babelgate.canonical.state import RunStatus, TaskState
from babelgate.canonical.thread import Run, Task
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.runs.run_callers import RunCallers

TIMES: Final[dict[str, Any]] = {"created_at": 1, "first_seq": 1, "last_seq": 1}


def caller(expires: int | None) -> Principal:
    claims = {} if expires is None else {"exp": expires}
    token = jwt.encode(claims, "a key for tests, which is long enough", "HS256")
    return Principal(subject="user:corp:alice", owner="alice", issuer="corp").with_token(token)


def start(run_id: str) -> StartedRun:
    task = Task(
        task_id="t",
        thread_id="x",
        agent="a",
        state=TaskState.WORKING,
        created_at=1,
        changed_at=1,
        first_seq=1,
        last_seq=1,
    )
    run = Run(
        run_id=run_id,
        task_id="t",
        status=RunStatus.RUNNING,
        cause="input",
        **TIMES,
        subject="user:corp:alice",
    )
    return StartedRun("alice", "x", task, run, 7)


def test_a_token_is_forgotten_with_its_run() -> None:
    callers, alice = RunCallers(lambda: 100), caller(200)
    callers.keep(7, "r", alice)
    assert callers.find(start("r")).token == alice.token
    assert alice.token is not None and alice.token not in repr(callers.find(start("r")))
    callers.forget(7, "r")
    assert (callers.find(start("r")).token, callers.find(start("r")).subject) == (None, "user:corp:alice")


def test_an_expired_token_is_not_used() -> None:
    now = 100.0
    callers = RunCallers(lambda: now)
    for number in range(3):
        callers.keep(7, f"r{number}", caller(200))
    now = 200
    assert callers.find(start("r0")).token is None
    callers.keep(7, "late", caller(300))
    assert len(callers) == 1


def test_the_oldest_tokens_make_room_for_new_ones() -> None:
    callers = RunCallers(lambda: 100, limit=2)
    for number in range(3):
        callers.keep(7, f"r{number}", caller(None))
    callers.keep(7, "key", Principal(subject="key:ci", owner="ci"))
    assert [callers.find(start(f"r{number}")).token is None for number in range(3)] == [True, False, False]

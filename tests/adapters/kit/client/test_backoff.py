"""Backoff of repeated calls: the waiting times, and when a server counts as gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from babelgate.adapters.kit.client.backoff import MAX_FAILURES, Backoff, time_limit
from babelgate.canonical import FaultCode, FaultError

Ask = Callable[[], Awaitable[str]]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Durations of all waits in seconds; the waits themselves take no time."""
    durations: list[float] = []

    async def sleep(seconds: float) -> None:
        durations.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return durations


def answer_with(*answers: str | FaultCode, status: int | None = None) -> Ask:
    remaining = list(answers)

    async def ask() -> str:
        answer = remaining.pop(0)
        if isinstance(answer, FaultCode):
            raise FaultError(answer, "no", **({} if status is None else {"status": status}))
        return answer

    return ask


async def test_waits_double_up_to_the_limit_and_reset_restarts(waits: list[float]) -> None:
    backoff = Backoff(0.1, 0.5)
    for _ in range(5):
        await backoff.wait()
    backoff.reset()
    await backoff.wait()
    assert waits == [0.1, 0.2, 0.4, 0.5, 0.5, 0.1]


async def test_polling_raises_after_too_many_failures_in_a_row() -> None:
    backoff = Backoff(0.1, 0.5)
    failures = [FaultCode.AGENT_UNREACHABLE] * (MAX_FAILURES - 1)
    ask = answer_with(*failures, "here", *failures, FaultCode.AGENT_TIMEOUT)
    answers = [await backoff.poll(ask) for _ in range(2 * MAX_FAILURES - 1)]
    assert answers == [None] * (MAX_FAILURES - 1) + ["here"] + [None] * (MAX_FAILURES - 1)
    with pytest.raises(FaultError):
        await backoff.poll(ask)


@pytest.mark.parametrize("code", [FaultCode.AGENT_FAILED, FaultCode.AGENT_INVALID])
async def test_an_error_of_the_agent_is_not_retried(code: FaultCode) -> None:
    backoff = Backoff(0.1, 0.5)
    for each in (backoff.poll, backoff.retry):
        with pytest.raises(FaultError):
            await each(answer_with(code, "later"))


async def test_a_retry_waits_between_attempts_and_has_a_limit(waits: list[float]) -> None:
    failures = [FaultCode.AGENT_UNREACHABLE] * 2
    assert await Backoff(1, 4, most=3).retry(answer_with(*failures, "here")) == "here"
    assert waits == [1, 2]
    with pytest.raises(FaultError):
        await Backoff(1, 4, most=3).retry(answer_with(*failures, FaultCode.AGENT_UNREACHABLE, "too late"))
    assert waits == [1, 2, 1, 2]


async def test_a_timeout_is_not_retried_unless_its_status_is_504() -> None:
    with pytest.raises(FaultError):
        await Backoff(0, 0).retry(answer_with(FaultCode.AGENT_TIMEOUT, "later"))
    assert await Backoff(0, 0).retry(answer_with(FaultCode.AGENT_TIMEOUT, "later", status=504)) == "later"


async def test_a_late_answer_is_a_timeout_of_the_agent() -> None:
    with pytest.raises(FaultError) as error:
        async with time_limit(0):
            await asyncio.Event().wait()
    assert error.value.fault.code is FaultCode.AGENT_TIMEOUT

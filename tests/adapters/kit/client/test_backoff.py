"""Looking again: how long is waited, and what counts as gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from babelgate.adapters.kit.client.backoff import MAX_FAILURES, Backoff, time_limit
from babelgate.canonical import FaultCode, FaultError

Ask = Callable[[], Awaitable[str]]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited, in no time."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


def answering(*answers: str | FaultCode, status: int | None = None) -> Ask:
    left = list(answers)

    async def ask() -> str:
        answer = left.pop(0)
        if isinstance(answer, FaultCode):
            raise FaultError(answer, "no", **({} if status is None else {"status": status}))
        return answer

    return ask


async def test_waits_double_up_to_the_last_and_begin_again_with_something_new(waits: list[float]) -> None:
    backoff = Backoff(0.1, 0.5)
    for _ in range(5):
        await backoff.wait()
    backoff.reset()
    await backoff.wait()
    assert waits == [0.1, 0.2, 0.4, 0.5, 0.5, 0.1]


async def test_looks_that_fail_are_counted_in_a_row() -> None:
    backoff = Backoff(0.1, 0.5)
    gone = [FaultCode.AGENT_UNREACHABLE] * (MAX_FAILURES - 1)
    ask = answering(*gone, "here", *gone, FaultCode.AGENT_TIMEOUT)
    looks = [await backoff.poll(ask) for _ in range(2 * MAX_FAILURES - 1)]
    assert looks == [None] * (MAX_FAILURES - 1) + ["here"] + [None] * (MAX_FAILURES - 1)
    with pytest.raises(FaultError):
        await backoff.poll(ask)


@pytest.mark.parametrize("code", [FaultCode.AGENT_FAILED, FaultCode.AGENT_INVALID])
async def test_a_refusal_is_no_reason_to_look_again(code: FaultCode) -> None:
    backoff = Backoff(0.1, 0.5)
    for each in (backoff.poll, backoff.retry):
        with pytest.raises(FaultError):
            await each(answering(code, "later"))


async def test_who_insists_waits_between_tries_and_not_for_ever(waits: list[float]) -> None:
    gone = [FaultCode.AGENT_UNREACHABLE] * 2
    assert await Backoff(1, 4, most=3).retry(answering(*gone, "here")) == "here"
    assert waits == [1, 2]
    with pytest.raises(FaultError):
        await Backoff(1, 4, most=3).retry(answering(*gone, FaultCode.AGENT_UNREACHABLE, "too late"))
    assert waits == [1, 2, 1, 2]


async def test_who_insists_does_not_ask_again_what_took_too_long_but_for_a_gateways_timeout() -> None:
    with pytest.raises(FaultError):
        await Backoff(0, 0).retry(answering(FaultCode.AGENT_TIMEOUT, "later"))
    assert await Backoff(0, 0).retry(answering(FaultCode.AGENT_TIMEOUT, "later", status=504)) == "later"


async def test_an_answer_that_does_not_come_in_time_is_a_timeout_of_the_agent() -> None:
    with pytest.raises(FaultError) as error:
        async with time_limit(0):
            await asyncio.Event().wait()
    assert error.value.fault.code is FaultCode.AGENT_TIMEOUT

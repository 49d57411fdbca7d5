import pytest

from babelgate.canonical.fault import FaultError
from babelgate.gateway.storage.unavailable import Unreachable, Unstored, keep_trying


class Database:
    """Database that fails `times` times, and then returns the number of calls."""

    def __init__(self, times: int, error: FaultError) -> None:
        self.calls, self._times, self._error = 0, times, error

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self.calls


async def test_a_call_is_retried_until_it_succeeds() -> None:
    noted: list[tuple[FaultError, float]] = []
    error = Unstored()
    done = await keep_trying(
        Database(4, error), Unstored, Unreachable, longest=0.1, note=lambda error, pause: noted.append((error, pause))
    )
    assert done == 5
    assert noted == [(error, pause) for pause in (0.05, 0.1, 0.1, 0.1)]


async def test_the_error_is_raised_after_the_timeout() -> None:
    database = Database(1000, Unreachable())
    with pytest.raises(Unreachable):
        await keep_trying(database, Unreachable, seconds=0.01)
    assert database.calls == 2


async def test_another_error_is_raised_at_once() -> None:
    database = Database(1, Unstored())
    with pytest.raises(Unstored):
        await keep_trying(database, Unreachable)
    assert database.calls == 1

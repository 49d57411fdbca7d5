"""A stream that broke is resumed: what counts as a failure, and when the server counts as gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import pytest

from babelgate.adapters.kit.client import catch_up as module
from babelgate.adapters.kit.client.backoff import MAX_FAILURES
from babelgate.adapters.kit.client.catch_up import catch_up
from babelgate.adapters.kit.extension import RecordReader
from babelgate.canonical import Event, FaultCode, FaultError
from babelgate.canonical.event import Custom

Connection = Callable[[RecordReader], Sequence[Event] | FaultError]
"""What one connection brings: events, or the fault in which it ends."""


@pytest.fixture(autouse=True)
def waits_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)


class Server:
    """Its last connection is repeated for ever."""

    def __init__(self, *connections: Connection) -> None:
        self.records = RecordReader()
        self.starts: list[int] = []
        self._connections = list(connections)

    async def open(self, start: int) -> AsyncGenerator[Sequence[Event]]:
        self.starts.append(start)
        brought = (self._connections.pop(0) if len(self._connections) > 1 else self._connections[0])(self.records)
        if isinstance(brought, FaultError):
            raise brought
        if brought:
            yield brought

    async def read(self) -> list[Event]:
        told = catch_up(self.records, self.open, lambda: self.records.stopped)
        return [event async for events in told for event in events]


def tells(seq: int, *, stopped: bool = False) -> Connection:
    def connect(records: RecordReader) -> Sequence[Event]:
        records.seq, records.stopped = seq, stopped
        return [Custom(name=str(seq))]

    return connect


def fails(code: FaultCode, **details: int) -> Connection:
    return lambda _: FaultError(code, "no", **details)


def says_nothing(_: RecordReader) -> Sequence[Event]:
    return ()


def leaves_out(records: RecordReader) -> Sequence[Event]:
    records.behind = True
    return ()


async def test_it_goes_on_from_the_last_record_until_the_run_has_stopped() -> None:
    server = Server(tells(3), says_nothing, tells(5), tells(7, stopped=True))
    assert [event.name for event in await server.read() if isinstance(event, Custom)] == ["3", "5", "7"]
    assert server.starts == [0, 3, 3, 5]


@pytest.mark.parametrize(
    "connection",
    [
        says_nothing,
        fails(FaultCode.AGENT_UNREACHABLE),
        fails(FaultCode.AGENT_TIMEOUT),
        fails(FaultCode.AGENT_FAILED, status=504),
    ],
)
async def test_a_server_that_tells_nothing_new_several_times_in_a_row_is_gone(connection: Connection) -> None:
    server = Server(tells(1), connection)
    with pytest.raises(FaultError):
        await server.read()
    assert len(server.starts) == 1 + MAX_FAILURES


async def test_something_new_begins_the_count_again() -> None:
    away = [fails(FaultCode.AGENT_UNREACHABLE)] * (MAX_FAILURES - 1)
    server = Server(*away, tells(1), *away, tells(2, stopped=True))
    assert len(await server.read()) == 2
    assert len(server.starts) == 2 * MAX_FAILURES


async def test_a_connection_that_lives_for_long_without_a_word_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 0.0)
    server = Server(*[says_nothing] * (3 * MAX_FAILURES), tells(1, stopped=True))
    assert len(await server.read()) == 1


async def test_a_server_that_leaves_records_out_has_broken_its_word() -> None:
    server = Server(tells(1), leaves_out)
    with pytest.raises(FaultError) as raised:
        await server.read()
    assert raised.value.fault.code is FaultCode.AGENT_INVALID
    assert len(server.starts) == 2


async def test_what_the_server_answers_instead_ends_it_at_once() -> None:
    server = Server(tells(1), fails(FaultCode.NOT_FOUND))
    with pytest.raises(FaultError) as raised:
        await server.read()
    assert raised.value.fault.code is FaultCode.NOT_FOUND
    assert len(server.starts) == 2

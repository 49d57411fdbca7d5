"""Resumption of a broken stream: what counts as a failure, and when the server counts as gone."""

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
"""Result of one connection: events, or the fault that ends it."""


@pytest.fixture(autouse=True)
def waits_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)


class Server:
    """Server whose connections have scripted results; the last one repeats."""

    def __init__(self, *connections: Connection) -> None:
        self.records = RecordReader()
        self.starts: list[int] = []
        self._connections = list(connections)

    async def open(self, start: int) -> AsyncGenerator[Sequence[Event]]:
        self.starts.append(start)
        result = (self._connections.pop(0) if len(self._connections) > 1 else self._connections[0])(self.records)
        if isinstance(result, FaultError):
            raise result
        if result:
            yield result

    async def read(self) -> list[Event]:
        batches = catch_up(self.records, self.open, lambda: self.records.stopped)
        return [event async for events in batches for event in events]


def sends(seq: int, *, stopped: bool = False) -> Connection:
    def connect(records: RecordReader) -> Sequence[Event]:
        records.seq, records.stopped = seq, stopped
        return [Custom(name=str(seq))]

    return connect


def fails(code: FaultCode, **details: int) -> Connection:
    return lambda _: FaultError(code, "no", **details)


def sends_nothing(_: RecordReader) -> Sequence[Event]:
    return ()


def skips_records(records: RecordReader) -> Sequence[Event]:
    records.behind = True
    return ()


async def test_it_resumes_after_the_last_record_until_the_run_stops() -> None:
    server = Server(sends(3), sends_nothing, sends(5), sends(7, stopped=True))
    assert [event.name for event in await server.read() if isinstance(event, Custom)] == ["3", "5", "7"]
    assert server.starts == [0, 3, 3, 5]


@pytest.mark.parametrize(
    "connection",
    [
        sends_nothing,
        fails(FaultCode.AGENT_UNREACHABLE),
        fails(FaultCode.AGENT_TIMEOUT),
        fails(FaultCode.AGENT_FAILED, status=504),
    ],
)
async def test_repeated_connections_without_new_records_end_in_a_fault(connection: Connection) -> None:
    server = Server(sends(1), connection)
    with pytest.raises(FaultError):
        await server.read()
    assert len(server.starts) == 1 + MAX_FAILURES


async def test_a_new_record_resets_the_count_of_failures() -> None:
    failures = [fails(FaultCode.AGENT_UNREACHABLE)] * (MAX_FAILURES - 1)
    server = Server(*failures, sends(1), *failures, sends(2, stopped=True))
    assert len(await server.read()) == 2
    assert len(server.starts) == 2 * MAX_FAILURES


async def test_a_long_silent_connection_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 0.0)
    server = Server(*[sends_nothing] * (3 * MAX_FAILURES), sends(1, stopped=True))
    assert len(await server.read()) == 1


async def test_a_server_that_skips_records_is_invalid() -> None:
    server = Server(sends(1), skips_records)
    with pytest.raises(FaultError) as raised:
        await server.read()
    assert raised.value.fault.code is FaultCode.AGENT_INVALID
    assert len(server.starts) == 2


async def test_an_error_that_is_not_retryable_is_raised_immediately() -> None:
    server = Server(sends(1), fails(FaultCode.NOT_FOUND))
    with pytest.raises(FaultError) as raised:
        await server.read()
    assert raised.value.fault.code is FaultCode.NOT_FOUND
    assert len(server.starts) == 2

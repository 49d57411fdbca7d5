"""Memory of recorded exchanges: it stays below the limit, also while streams hold exchanges that were dropped."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from babelgate.adapters.kit.client.exchanges import RecordedExchange
from babelgate.gateway.runs.run_exchanges import RunExchanges

LIMIT = 2**20
RUNS = 16


def call(exchange: RecordedExchange, number: int, *, header: int = 0, piece: int = 0, pieces: int = 0) -> None:
    """Record a response with a header of `header` digits, and with `pieces` pieces of the body, each of `piece`
    digits."""
    exchange.note_head(200, [(b"X-Number", b"%d" % number), (b"Link", b"%d" % number * header)])
    for _ in range(pieces):
        exchange.note_piece(b"%d" % number * piece)


SHAPES: dict[str, tuple[int, int, Callable[[RecordedExchange, int], None]]] = {
    "small exchanges": (1, 40, lambda exchange, number: call(exchange, number)),
    "long URLs": (100_000, 2, lambda exchange, number: call(exchange, number)),
    "long headers": (1, 3, lambda exchange, number: call(exchange, number, header=50_000)),
    "large bodies": (1, 1, lambda exchange, number: call(exchange, number, piece=100_000, pieces=3)),
    "small pieces": (1, 1, lambda exchange, number: call(exchange, number, piece=1, pieces=1000)),
    "long errors": (1, 3, lambda exchange, number: exchange.note_end(ValueError(str(number) * 50_000))),
}
"""Length of the URL in characters, number of exchanges of each run, and the function that records one of them, by
name."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_ended", [True, False])
def test_memory_of_all_exchanges_is_bounded(shape: str, *, has_ended: bool) -> None:
    length, count, record = SHAPES[shape]
    open_exchanges: list[RecordedExchange] = []  # as the streams of their responses hold them
    exchanges = RunExchanges(max_size=LIMIT)
    tracemalloc.start()
    try:
        for number in range(RUNS):
            start: Any = Started(number)
            recorder = exchanges.open(start, "all")
            assert recorder is not None
            for _ in range(count):
                headers = [(b"Content-Type", b"application/json"), (b"X-Key", b"secret of %d" % number)]
                exchange = recorder.begin("POST", f"http://h/{number}/{'x' * length}", headers)
                if exchange is not None:
                    record(exchange, number)
                    if has_ended:
                        exchange.note_end()
                    else:
                        open_exchanges.append(exchange)
            if has_ended:
                exchanges.close(start, "all", has_failed=False)
        for number in range(200):  # they replace the long URLs in the cache of the standard library
            urlsplit(f"http://h/{number}")
        held = 1500 * len(open_exchanges)  # the objects themselves, which their streams hold
        used = tracemalloc.get_traced_memory()[0] - held
        if used > LIMIT + 2**16:
            gc.collect()  # only then, because it visits all objects of the process
            used = tracemalloc.get_traced_memory()[0] - held
    finally:
        tracemalloc.stop()
    assert exchanges.size <= LIMIT
    assert used <= LIMIT + 2**16, "the limit, and the cache of the standard library"
    assert exchanges.size > LIMIT // 4, "the limit is used"


class Started:
    """Minimal run, with the members that the memory of exchanges reads."""

    def __init__(self, number: int) -> None:
        self.pk = number
        self.run = self
        self.run_id = str(number)

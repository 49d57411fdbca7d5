"""A campaign: mutated requests to a gateway in a separate process, which must answer each of them."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.gateway.hostile import LIMIT
from tests.gateway.route import protocol_of
from tests.gateway.siege import create_targets
from tests.limits.strain import MB, Strained, strained
from tests.mutate.request import Mutated, Slots, make

PATIENCE: Final = 20.0
"""Time within which each request must be answered or its connection closed, in seconds."""
_AT_ONCE: Final = 4
_BATCH: Final = 200
"""Number of requests after which the ids in them are renewed, because some requests delete their objects."""
_REFUSED: Final = frozenset({501, 503})
"""Statuses from 500 that are allowed, because they name something that is not available."""
_LEAKS: Final = re.compile(rb'Traceback \(most|File "/|site-packages')
_PATHS: Final = (
    "/acp/runs",
    "/console",
    "/a2a/echo",
    "/ap/v1/agent",
    "/threads",
    "/v1/models",
    "/v1/messages",
    "/ag-ui",
    "/vercel-ui/echo",
    "/agent-client/echo",
)


class Campaign:
    def __init__(self, gateway: Strained, seed: int) -> None:
        self.gateway = gateway
        self.faults: list[str] = []
        self.answers: Counter[int] = Counter()
        """Number of answers by status; 0 for closed connections."""
        self.slowest = (0.0, "")
        """Time of the slowest answer in seconds, and its request."""
        self.wait = 0.0
        """Maximum delay of other callers, in seconds."""
        self.busy = 0.0
        """Part of that time in which the gateway computed, in seconds."""
        self.memory = 0
        """Maximum growth of the memory during a batch, in bytes."""
        self._seed = seed
        self._slots: dict[str, Slots] = {}

    async def send(self, first: int, count: int) -> None:
        """Send the requests with these numbers, and measure their effect on others."""
        for start in range(first, first + count, _BATCH):
            self._slots = {protocol_of(path): await create_targets(self.gateway, path) for path in _PATHS}
            numbers = iter(range(start, min(start + _BATCH, first + count)))
            async with self.gateway.watched() as strain:
                await asyncio.gather(*(self._worker(numbers) for _ in range(_AT_ONCE)))
            self.wait, self.busy = max(self.wait, strain.wait), max(self.busy, strain.busy)
            self.memory = max(self.memory, strain.memory)

    async def _worker(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._one(make(self._seed, number, self._slots_of))

    def _slots_of(self, path: str) -> Slots:
        everything: dict[str, str] = {}
        for slots in self._slots.values():
            everything |= slots
        return {**everything, **self._slots.get(protocol_of(path), {})}

    async def _one(self, request: Mutated) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._exchange(request)
        except TimeoutError:
            self.faults.append(f"{request.name}: no answer in {PATIENCE:g} s")
            return
        self.slowest = max(self.slowest, (time.perf_counter() - began, request.name))
        self.faults += [f"{request.name}: {each}" for each in self._judge(request, answer)]

    async def _exchange(self, request: Mutated) -> bytes:
        """Return the whole response, or the beginning of a stream."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        answer = b""
        try:
            try:
                writer.write(request.raw)
                await writer.drain()
                if not request.is_whole:
                    writer.write_eof()
            except OSError:
                pass  # a response to the part sent so far may still arrive
            while chunk := await reader.read(MB):
                answer += chunk
                if b"text/event-stream" in answer.partition(b"\r\n\r\n")[0].lower() and b"\n\n" in answer:
                    break
        except OSError:
            pass
        finally:
            writer.close()
        return answer

    def _judge(self, request: Mutated, answer: bytes) -> list[str]:
        if not answer:
            self.answers[0] += 1
            return ["hung up on"] if request.is_whole else []
        head, _, body = answer.partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1\.[01] ([1-5]\d\d) ", head)
        if found is None:
            return [f"no HTTP: {answer[:80]!r}"]
        status = int(found[1])
        self.answers[status] += 1
        faults: list[str] = []
        if status >= 500 and status not in _REFUSED:
            faults.append(f"{status}: {body[:300]!r}")
        if leak := _LEAKS.search(answer):
            faults.append(f"{status} tells of {leak[0]!r}")
        if request.is_whole and re.search(rb"(?i)\r\ncontent-type: application/json\r\n", head + b"\r\n"):
            faults += _judge_json(head, body)
        return faults

    def summary(self) -> str:
        counts = ", ".join(f"{count} x {status or 'hung up'}" for status, count in sorted(self.answers.items()))
        return (
            f"{sum(self.answers.values())} requests of seed {self._seed}: {counts}\n"
            f"the slowest answer took {self.slowest[0]:.2f} s ({self.slowest[1]}); others waited {self.wait:.2f} s at "
            f"the most, {self.busy:.2f} s of it for computing; {self.memory / MB:.0f} MB more in a batch\n"
            f"{len(self.faults)} faults" + "".join(f"\n  {each}" for each in self.faults)
        )


def _judge_json(head: bytes, body: bytes) -> list[str]:
    if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
        body = _joined(body)
    if not body.strip():
        return []
    try:
        json.loads(body, parse_constant=_refuse)
    except ValueError as error:
        return [f"no JSON ({error}): {body[:200]!r}"]
    return []


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _joined(body: bytes) -> bytes:
    """Return the joined chunks of a body."""
    found: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        found.append(rest[:length])
        body = rest[length + 2 :] if length else b""
    return b"".join(found)


@asynccontextmanager
async def campaign(folder: Path, seed: int) -> AsyncGenerator[Campaign]:
    """Run a campaign. At its end, check the log and the exit code of the gateway."""
    limits: Mapping[str, object] = {"body": LIMIT}
    async with strained(folder, limits=limits, log_level="error") as gateway:
        tally = Campaign(gateway, seed)
        yield tally
        log = await asyncio.to_thread(gateway.process.stop)
        if gateway.process.process.returncode != 0:
            tally.faults.append(f"the gateway ended with {gateway.process.process.returncode}")
        if log.strip():
            tally.faults.append(f"the log says: {log[:3000]}")

"""What the client of a protocol can do, as scenarios want it done, and what all drivers need for it."""

import asyncio
import re
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from babelgate.conformance.across.model import File, Handle, Input, Meaning
from babelgate.conformance.wire.exchange import Exchange, Frame, NotJson, as_list, as_object, dig, parse_json
from babelgate.conformance.wire.http import Stream, Wire

_DECLINED: Final = (405, 415, 501)
"""Statuses of what a server does not do at all: an operation, a media type."""
_AT_REST: Final = frozenset({"asks", "completed", "failed", "cancelled"})
_MOST_QUESTIONS: Final = 10
"""That are answered one after the other."""
LOOK_EVERY: Final = 0.05
"""Seconds: not every protocol has something to wait on."""
_LOSS: Final = re.compile(r'([A-Za-z0-9_.*-]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
"""A member of an RFC 8941 dictionary whose values are strings."""


class Broken(Exception):
    """The protocol did not do what a scenario needs. `is_declined`: the server said in the protocol's own words that it
    does not do such a thing."""

    def __init__(self, why: str, exchange: Exchange | None = None, *, is_declined: bool = False) -> None:
        super().__init__(why if exchange is None else f"{why}: {exchange}")
        self.is_declined = is_declined


@dataclass(frozen=True, slots=True)
class Observation:
    meaning: Meaning
    handle: Handle
    exchange: Exchange | None = None
    """That told it, where there were others for it, too."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a protocol is served. A URL with `{agent}` in it has an address for each agent."""

    url: str
    agent: str = ""
    """That is meant where no trigger names another."""

    @property
    def own_url(self) -> str:
        """The URL with the name of the default agent in it."""
        return self.of("")

    def of(self, agent: str) -> str:
        return self.url.replace("{agent}", agent or self.agent)


class Live(ABC):
    """A stream while it is read."""

    def __init__(self, stream: Stream, agent: str) -> None:
        self.stream = stream
        self.agent = agent
        self.states: list[str] = []

    @abstractmethod
    def read(self, frame: Frame) -> None: ...

    @abstractmethod
    def read_so_far(self) -> Observation: ...

    async def next(self) -> bool:
        """Read one event; False at the end. Raises Broken."""
        frame = await self.stream.next()
        if frame is None:
            return False
        try:
            self.read(frame)
        except NotJson as error:
            raise Broken(f"an event is no JSON ({error})", self.stream.exchange) from None
        return True

    async def rest(self) -> Observation:
        while await self.next():
            pass
        return self.now()

    def now(self) -> Observation:
        """What it has told so far, with the states in their order."""
        told = self.read_so_far()
        return Observation(replace(told.meaning, states=tuple(self.states)), told.handle, self.stream.exchange)

    def at(self, state: str) -> None:
        """A state was told. That nothing is done yet is no news: not every protocol says so."""
        if state != "submitted" and (not self.states or self.states[-1] != state):
            self.states.append(state)


class Driver(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    """What scenarios need and the protocol has no words for, and why. `look`: to look at a run again; `shared`: to look
    at one that another protocol made; `conversation`: to tell whether two turns are of one."""

    def __init__(self, wire: Wire, place: Place) -> None:
        self.wire = wire
        self.place = place

    @abstractmethod
    async def send(self, agent: str, said: Input, after: Handle | None = None) -> Observation:
        """A run that is waited for; `after`: of the same conversation. Raises Broken."""

    @abstractmethod
    async def look(self, handle: Handle) -> Observation:
        """The run as it is. Raises Broken."""

    @abstractmethod
    async def answer_once(self, asked: Observation, answer: Any) -> Observation:
        """To the questions that are open, or the first of them. Raises Broken."""

    async def answer(self, asked: Observation, answer: Any) -> Observation:
        """The same answer to each question that is open, or that follows from an answer."""
        told = asked
        for _ in range(_MOST_QUESTIONS):
            if not told.meaning.questions:
                break
            told = await self.answer_once(told, answer)
        return told

    async def fetch_files(self, told: Observation) -> Observation:
        """Those of the server's own, of which it has told the URLs alone; a URL of elsewhere is what such a file is.
        Raises Broken."""
        files = [await self._fetch(file) if file.url else file for file in told.meaning.files]
        return replace(told, meaning=replace(told.meaning, files=tuple(files)))

    async def _fetch(self, file: File) -> File:
        if urlsplit(file.url)[:2] != urlsplit(self.place.url)[:2]:
            return replace(file, content=file.url.encode())
        exchange = await self.wire.request("GET", file.url, sends=None, receives=None)
        if exchange.status != 200:
            raise Broken("a file that cannot be had", exchange)
        return replace(file, content=exchange.content, url="")

    def stream(self, agent: str, said: Input) -> AbstractAsyncContextManager[Live]:
        """A run that is followed. Raises Broken."""
        raise Broken(self.lacks["stream"])

    async def cancel(self, handle: Handle) -> None:
        """Raises Broken."""
        raise Broken(self.lacks["cancel"])

    async def tell(self, agent: str, said: Input) -> Observation:
        """All that is told of a run, by a stream where the protocol has streams."""
        if "stream" in self.lacks:
            return await self.send(agent, said)
        async with self.stream(agent, said) as live:
            return await live.rest()

    async def wait_for_end(self, handle: Handle) -> Observation:
        """The run once it has ended or asks. Raises Broken if it does not within the time that an answer may take."""
        deadline = time.monotonic() + self.wire.timeout
        while True:
            told = await self.look(handle)
            if told.meaning.state in _AT_REST:
                return told
            if time.monotonic() > deadline:
                raise Broken(f"the run is {told.meaning.state} after {self.wire.timeout:g} s")
            await asyncio.sleep(LOOK_EVERY)

    async def leave(self, agent: str, said: Input) -> Handle:
        """A run whose caller goes away. Raises Broken."""
        if "stream" in self.lacks:
            return (await self.send(agent, said)).handle
        async with self.stream(agent, said) as live:
            while not (live.read_so_far().handle.task or live.read_so_far().handle.run):
                if not await live.next():
                    raise Broken("a stream that does not say whose it is", live.stream.exchange)
            return live.read_so_far().handle


def read_success(exchange: Exchange) -> Any:
    """The JSON of an answer. Raises Broken."""
    if exchange.status is None or not 200 <= exchange.status < 300:
        raise Broken("a refusal", exchange, is_declined=exchange.status in _DECLINED)
    if exchange.content and not exchange.is_json:
        raise Broken("an answer that is no JSON", exchange)
    return exchange.json


def check_stream(exchange: Exchange) -> None:
    """Raises Broken."""
    if not exchange.is_stream:
        read_success(exchange)
        raise Broken("an answer that is no stream", exchange)


def decode_base64(content: Any, exchange: Exchange | None = None) -> bytes:
    """Of base64. Raises Broken."""
    try:
        return b64decode(str(content), validate=True)
    except (NotBase64, ValueError):
        raise Broken("a file that is no base64", exchange) from None


def find_shared_ids(agent: str, exchanges: Sequence[Exchange]) -> Handle | None:
    """By which ids the run is known in all protocols of the server, if it says so."""
    for exchange in reversed(exchanges):
        thread, task = exchange.header("Babelgate-Thread"), exchange.header("Babelgate-Task")
        if thread and task:
            return Handle(agent, thread, task)
    return None


def losses_of(exchanges: Sequence[Exchange]) -> dict[str, str]:
    """That the server declared in these exchanges: in the header Babelgate-Loss, and in the member `loss` of a member
    `babelgate`, wherever in a message the protocol has a place for it."""
    found: dict[str, str] = {}
    for exchange in exchanges:
        found |= {
            name: re.sub(r"\\(.)", r"\1", how) for name, how in _LOSS.findall(exchange.header("Babelgate-Loss") or "")
        }
        for value in _messages(exchange):
            for loss in _find_losses(value):
                found |= {str(name): str(how) for name, how in loss.items()}
    return found


def _messages(exchange: Exchange) -> Iterator[Any]:
    yield exchange.json
    for frame in exchange.frames:
        if "babelgate" in frame.data:
            try:
                yield parse_json(frame.data)
            except NotJson:
                continue


def _find_losses(value: Any) -> Iterator[dict[str, Any]]:
    members = as_object(value)
    if members is None:
        for item in as_list(value):
            yield from _find_losses(item)
        return
    loss = as_object(dig(members, "babelgate", "loss"))
    if loss is not None:
        yield loss
    for member in members.values():
        yield from _find_losses(member)

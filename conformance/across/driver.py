"""Base class of the protocol drivers, through which scenarios run an agent. Each driver reads what its protocol shows
of a run. Functions that all drivers need are here, too."""

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

from babelgate.conformance.across.model import CallerInput, File, Handle, Meaning
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame, as_list, as_object, dig, parse_json
from babelgate.conformance.wire.http import StreamExchange, Wire

_UNSUPPORTED: Final = (405, 415, 501)
"""HTTP statuses by which a server declares that it does not support an operation or media type."""
_IDLE_STATES: Final = frozenset({"asks", "completed", "failed", "cancelled"})
_MAX_QUESTIONS: Final = 10
"""Maximum number of rounds of questions in one run that `Driver.answer` answers. Chosen."""
POLL_INTERVAL: Final = 0.05
"""Seconds between two reads of a run while a driver waits for it. Not every protocol has a request that waits.
Chosen."""
_LOSS: Final = re.compile(r'([A-Za-z0-9_.*-]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
"""Pattern of one member of the header Babelgate-Loss, a dictionary of strings (RFC 8941): the feature, and how it was
lost."""


class ScenarioFailed(Exception):
    """Error if a server does not do what a scenario needs.

    `is_declined` is true if the server declares by a status or an error code of the protocol that it does not support
    the operation.
    """

    def __init__(self, why: str, exchange: Exchange | None = None, *, is_declined: bool = False) -> None:
        super().__init__(why if exchange is None else f"{why}: {exchange}")
        self.is_declined = is_declined


@dataclass(frozen=True, slots=True)
class Observation:
    meaning: Meaning
    handle: Handle
    exchange: Exchange | None = None
    """Exchange whose response carried most of the result; None means the last one."""


@dataclass(frozen=True, slots=True)
class ProtocolAddress:
    """Address at which a server speaks one protocol. If `url` contains `{agent}`, each agent has its own address."""

    url: str
    agent: str = ""
    """Name of the default agent, for triggers that name none."""

    @property
    def own_url(self) -> str:
        """URL with the name of the default agent."""
        return self.of("")

    def of(self, agent: str) -> str:
        return self.url.replace("{agent}", agent or self.agent)


class Live(ABC):
    """Stream of a running run, which a scenario reads event by event. A subclass collects what the events of its
    protocol show."""

    def __init__(self, stream: StreamExchange, agent: str) -> None:
        self.stream = stream
        self.agent = agent
        self.states: list[str] = []

    @abstractmethod
    def read(self, frame: SseFrame) -> None: ...

    @abstractmethod
    def read_so_far(self) -> Observation: ...

    async def next(self) -> bool:
        """Read one event. Return False if the stream has ended. Raises ScenarioFailed if the event is not JSON."""
        frame = await self.stream.next()
        if frame is None:
            return False
        try:
            self.read(frame)
        except InvalidJson as error:
            raise ScenarioFailed(f"an event is not JSON ({error})", self.stream.exchange) from None
        return True

    async def rest(self) -> Observation:
        while await self.next():
            pass
        return self.now()

    def now(self) -> Observation:
        """Return the result that the stream has shown so far, with the states of the run in order."""
        observation = self.read_so_far()
        return Observation(
            replace(observation.meaning, states=tuple(self.states)), observation.handle, self.stream.exchange
        )

    def at(self, state: str) -> None:
        """Record a state of the run that an event shows, unless it is the same as before. `submitted` is ignored,
        because not every protocol reports it."""
        if state != "submitted" and (not self.states or self.states[-1] != state):
            self.states.append(state)


class Driver(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    """Abilities that the protocol does not have, each with the reason. The keys are the values of `Scenario.needs`, and
    three more. `look`: read a run again. `shared`: read a run that another protocol created. `conversation`: report
    whether two turns belong to one conversation."""

    def __init__(self, wire: Wire, place: ProtocolAddress) -> None:
        self.wire = wire
        self.place = place

    @abstractmethod
    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        """Send an input and return the run after it has ended or asked. `after` is an earlier run of the conversation
        to continue; None starts a new one. Raises ScenarioFailed if the server refuses the request or does not
        respond."""

    @abstractmethod
    async def observe(self, handle: Handle) -> Observation:
        """Return the current state and output of a run. Raises ScenarioFailed if the server refuses the request or does
        not respond."""

    @abstractmethod
    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        """Answer all open questions, or the first one if the protocol takes one at a time. Return the run after it has
        ended or asked again. Raises ScenarioFailed if the server refuses the request or does not respond."""

    async def answer(self, paused: Observation, answer: Any) -> Observation:
        """Give the same answer to all open questions, and to further questions that the run asks then. Return the run
        after that."""
        observation = paused
        for _ in range(_MAX_QUESTIONS):
            if not observation.meaning.questions:
                break
            observation = await self.answer_once(observation, answer)
        return observation

    async def fetch_files(self, observation: Observation) -> Observation:
        """Return the observation with the bytes of its files.

        Files at URLs of the server are downloaded. For a file at another origin, its URL counts as its content. Raises
        ScenarioFailed if a download fails.
        """
        files = [await self._fetch(file) if file.url else file for file in observation.meaning.files]
        return replace(observation, meaning=replace(observation.meaning, files=tuple(files)))

    async def _fetch(self, file: File) -> File:
        if urlsplit(file.url)[:2] != urlsplit(self.place.url)[:2]:
            return replace(file, content=file.url.encode())
        exchange = await self.wire.request("GET", file.url, sends=None, receives=None)
        if exchange.status != 200:
            raise ScenarioFailed("a file that cannot be downloaded", exchange)
        return replace(file, content=exchange.content, url="")

    def stream(self, agent: str, caller_input: CallerInput) -> AbstractAsyncContextManager[Live]:
        """Start a run and return a context manager for its stream. Raises ScenarioFailed if the protocol has no
        streams, or the server refuses the request."""
        raise ScenarioFailed(self.lacks["stream"])

    async def cancel(self, handle: Handle) -> None:
        """Request the cancellation of a run. Raises ScenarioFailed if the protocol has no cancel, or the server refuses
        it."""
        raise ScenarioFailed(self.lacks["cancel"])

    async def send_and_record(self, agent: str, caller_input: CallerInput) -> Observation:
        """Run an input to its end, and return everything that the protocol shows of the run. Use a stream if the
        protocol has streams, and else `send`. Raises ScenarioFailed if the server refuses the request or its stream
        breaks."""
        if "stream" in self.lacks:
            return await self.send(agent, caller_input)
        async with self.stream(agent, caller_input) as live:
            return await live.rest()

    async def wait_for_end(self, handle: Handle) -> Observation:
        """Read a run until it has ended or asked a question, and return it. Raises ScenarioFailed if neither happens
        within the timeout of one answer."""
        deadline = time.monotonic() + self.wire.timeout
        while True:
            observation = await self.observe(handle)
            if observation.meaning.state in _IDLE_STATES:
                return observation
            if time.monotonic() > deadline:
                raise ScenarioFailed(f"the run is {observation.meaning.state} after {self.wire.timeout:g} s")
            await asyncio.sleep(POLL_INTERVAL)

    async def leave(self, agent: str, caller_input: CallerInput) -> Handle:
        """Start a run, disconnect as soon as the stream shows the run's id, and return its handle. A protocol without
        streams waits for the end instead. Raises ScenarioFailed if the stream ends without showing the id."""
        if "stream" in self.lacks:
            return (await self.send(agent, caller_input)).handle
        async with self.stream(agent, caller_input) as live:
            while not (live.read_so_far().handle.task or live.read_so_far().handle.run):
                if not await live.next():
                    raise ScenarioFailed("a stream without the id of its run", live.stream.exchange)
            return live.read_so_far().handle


def read_success(exchange: Exchange) -> Any:
    """Return the JSON of a response. Raises ScenarioFailed if the status is not 2xx, or if the body is not JSON."""
    if exchange.status is None or not 200 <= exchange.status < 300:
        raise ScenarioFailed("a refusal", exchange, is_declined=exchange.status in _UNSUPPORTED)
    if exchange.content and not exchange.is_json:
        raise ScenarioFailed("an answer that is not JSON", exchange)
    return exchange.json


def check_stream(exchange: Exchange) -> None:
    """Raise ScenarioFailed unless the response is an event stream."""
    if not exchange.is_stream:
        read_success(exchange)
        raise ScenarioFailed("an answer that is not a stream", exchange)


def decode_base64(content: Any, exchange: Exchange | None = None) -> bytes:
    """Return the bytes that a base64 text encodes. Raises ScenarioFailed if `content` is not base64; `exchange`, if
    there is one, becomes its evidence."""
    try:
        return b64decode(str(content), validate=True)
    except (NotBase64, ValueError):
        raise ScenarioFailed("a file that is not base64", exchange) from None


def find_shared_ids(agent: str, exchanges: Sequence[Exchange]) -> Handle | None:
    """Return the ids of a run that are valid in all protocols of the server, from the headers Babelgate-Thread and
    Babelgate-Task. Return None if no response has both."""
    for exchange in reversed(exchanges):
        thread, task = exchange.header("Babelgate-Thread"), exchange.header("Babelgate-Task")
        if thread and task:
            return Handle(agent, thread, task)
    return None


def losses_of(exchanges: Sequence[Exchange]) -> dict[str, str]:
    """Return the losses that the server declared in these exchanges, by feature.

    They are in the header Babelgate-Loss, and in the member `loss` of each `babelgate` member of a message.
    """
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
            except InvalidJson:
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

"""Client for an agent behind an AG-UI server: one POST is one run, and closing the connection is the only cancel."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, Unpack

import httpx

from babelgate.adapters.ag_ui.client.http import HttpClient
from babelgate.adapters.ag_ui.read.run_events import EventReader
from babelgate.adapters.ag_ui.request import encode_run
from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.blobs import NO_FILE
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import DrivenClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN, FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, FilePart, Invocation, Message
from babelgate.canonical.event import ArtifactAdded, PartAdded
from babelgate.canonical.value import JsonObject

__all__ = ("Client", "discover")

MAX_FILES: Final = 32 * 2**20
"""Maximum total size of earlier messages' files that are sent again, in bytes. The newest files take precedence."""


class Client(DrivenClient[HttpClient]):
    """Client for the agent at a URL. The name of the agent does not matter."""

    def __init__(self, url: str, agent: str | None = None, **connection: Unpack[Connection]) -> None:
        super().__init__(HttpClient(url, **connection))

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the run of this call."""
        return _Run(self._http, call)


class _Run(UpstreamRun):
    """One run. The server stops it when the connection is closed, so nothing needs to be cancelled."""

    def __init__(self, http: HttpClient, call: Invocation) -> None:
        self._http = http
        self._call = call

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the only stage of the run."""
        yield self._stream()

    async def _stream(self) -> Stage:
        """Send the request, and yield the events of its stream. Raises agent_invalid, and agent_unreachable if the
        stream ends before the run does."""
        await self._load_files()
        call = self._call
        past = () if call.cause in ("input", "cron") and call.attempt == 1 else await call.past()
        run = encode_run(call, past, await self._state())
        names = frozenset(tool.name for tool in call.tools)
        reader = EventReader(call.run_id, tools=names, known_ids=run.sent_ids, earlier=run.earlier)
        async with self._http.run(run.body) as response:
            if not is_stream(response):
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with an event stream")
            async with aclosing(FrameStream(response)) as frames:
                while batch := await frames.read():
                    events: list[Event] = []
                    for frame in batch:
                        value = await parse_answer(frame.data)
                        with blaming_the_agent():
                            try:
                                events += reader.read(value)
                            except FaultError:
                                yield await self._with_files(events)
                                raise
                    yield await self._with_files(events)
                    if reader.has_ended:
                        await frames.drain(DRAIN)
                        return
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its run did")

    async def _state(self) -> JsonObject:
        """Return the values of the thread, with those that callers have changed."""
        call = self._call
        states = await call.states()
        checkpoint = call.input.checkpoint
        revision = states.head if checkpoint is None or call.answers else states.get(checkpoint)
        values = {} if revision is None else revision.values
        return {**{name: value for name, value in values.items() if name != "messages"}, **call.state}

    async def _load_files(self) -> None:
        """Load the newest files of earlier messages, because the server receives the whole conversation."""
        remaining, history = MAX_FILES, list(self._call.history)
        for number in range(len(history) - 1, -1, -1):
            message = history[number]
            size = _stored_size(message)
            if 0 < size <= remaining and not message.has_bytes:
                remaining -= size
                history[number] = await self._call.with_files(message)
        self._call = replace(self._call, history=tuple(history))

    async def _with_files(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events with the bytes of files that are too large for an event. A `NO_FILE` loss precedes an event
        whose file is not available."""
        filled: list[Event] = []
        for event in events:
            part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
            if isinstance(part, FilePart) and part.url is not None and self._http.is_own_file(part.url):
                content = await self._fetch(part.url)
                if content is None:
                    filled.append(NO_FILE)
                else:
                    part = part.replace(url=None, inline=content, size=len(content))
                assert isinstance(event, PartAdded | ArtifactAdded)
                event = event.replace(part=part)
            filled.append(event)
        return filled

    async def _fetch(self, url: str) -> bytes | None:
        """Download a file. Return None if the server refuses or fails. Raises agent_unreachable, agent_timeout."""
        try:
            return await self._http.file(url)
        except FaultError as error:
            if is_retryable(error.fault):
                raise
            return None


def _stored_size(message: Message) -> int:
    return sum(part.size or 0 for part in message.parts if isinstance(part, FilePart) and part.blob is not None)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Refuse to detect the protocol: it has no request that reads, and a POST would start a run. Raises agent_invalid,
    so that the operator names the protocol."""
    raise FaultError(FaultCode.AGENT_INVALID, "AG-UI cannot be detected: name it with protocol: ag-ui")

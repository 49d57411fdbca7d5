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
    """Client for the agent at a URL. The URL identifies the agent, so the parameter `agent` is ignored."""

    def __init__(self, url: str, agent: str | None = None, **connection: Unpack[Connection]) -> None:
        super().__init__(HttpClient(url, **connection))

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the upstream run that executes the call. The request is sent when its stage is read."""
        return _Run(self._http, call)


class _Run(UpstreamRun):
    """One run on the agent's server. The server stops the run when the connection is closed, so a cancel needs no
    request."""

    def __init__(self, http: HttpClient, call: Invocation) -> None:
        self._http = http
        self._call = call

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the only stage of the run: the stream that answers its POST request."""
        yield self._stream()

    async def _stream(self) -> Stage:
        """Send the request, and yield the events of its stream. Raises agent_invalid if the response is not an event
        stream, agent_unreachable if the stream ends before the run does, and the fault of a failed run."""
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
        """Return the shared state to send. It holds the values of the thread's newest revision, or of the checkpoint
        that the run continues from, without `messages`. Values that the caller has changed replace the stored ones."""
        call = self._call
        states = await call.states()
        checkpoint = call.input.checkpoint
        revision = states.head if checkpoint is None or call.answers else states.get(checkpoint)
        values = {} if revision is None else revision.values
        return {**{name: value for name, value in values.items() if name != "messages"}, **call.state}

    async def _load_files(self) -> None:
        """Load the files of earlier messages into the call, newest first, up to `MAX_FILES` bytes in total. The server
        receives the whole conversation in each request."""
        remaining, history = MAX_FILES, list(self._call.history)
        for number in range(len(history) - 1, -1, -1):
            message = history[number]
            size = _stored_size(message)
            if 0 < size <= remaining and not message.has_bytes:
                remaining -= size
                history[number] = await self._call.with_files(message)
        self._call = replace(self._call, history=tuple(history))

    async def _with_files(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events with each file that another gateway serves at a URL replaced by its bytes. If such a file
        cannot be downloaded, the event keeps the URL, and a `NO_FILE` loss precedes it."""
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
        """Download a file from the agent's server. Return None after an error that a retry cannot resolve, such as
        status 404. Raises agent_unreachable, agent_timeout."""
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

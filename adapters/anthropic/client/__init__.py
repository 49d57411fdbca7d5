"""Client of models on a server of the Messages API. Each request contains the whole conversation, and closing the
connection is the only cancel."""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Unpack

import httpx

from babelgate.adapters.anthropic.agents import decode_models, upstream_name
from babelgate.adapters.anthropic.client.http import HttpClient
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.read import AnswerReader
from babelgate.adapters.anthropic.request import RequestEncoder, has_gateway_content, response_schema
from babelgate.adapters.kit.client.answers import LISTING_LIMIT, parse_answer
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import DrivenClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN, FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.client.transcript import results_of
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, FilePart, Invocation, Record
from babelgate.canonical.event import ArtifactAdded, LossNoted, PartAdded
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

MAX_FILES: Final = 32 * 2**20
"""Maximum total size of earlier messages' files that are sent again, in bytes. The newest files take precedence.
Chosen: the API refuses larger requests (docs/en/api/errors, request_too_large)."""
_MOST_TURNS: Final = 32
"""Maximum number of requests by which one run continues a turn that the server has paused. Chosen."""


class Client(DrivenClient[HttpClient]):
    """Client of one model.

    - `agent`: the server's name of the model. None: the first model that the server lists.
    - `schema`: JSON Schema that every answer must match.
    """

    def __init__(
        self, url: str, agent: str | None = None, *, schema: JsonObject | None = None, **connection: Unpack[Connection]
    ) -> None:
        super().__init__(HttpClient(url, **connection))
        self._server = _Server(self._http, agent, schema)

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the upstream run that executes the call. Its requests are sent when its stages are read."""
        return _Run(self._server, call)


@dataclass(slots=True)
class _Server:
    """Connection to a server, with what runs have detected: the model to request, and whether the server is another
    Babelgate. All runs of a client share it."""

    http: HttpClient
    model: str | None
    schema: JsonObject | None
    is_gateway: bool | None = None
    """True if the server is another Babelgate; None if that is not known yet."""

    async def find_model(self) -> str:
        """Return the configured model, or else the first in the server's list. Raises agent_unreachable if the list is
        empty, and the fault of a failed request."""
        if self.model is None:
            models = _models(await self.http.get("/models"))
            if not models:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's server has no models")
            self.model = upstream_name(models[0])
        return self.model

    async def is_babelgate(self, model: str) -> bool:
        """Return True if the server is another Babelgate, according to its description of `model`. The result is
        stored. If the request fails in a way that may pass, return False and store nothing."""
        if self.is_gateway is None:
            try:
                self.is_gateway = await self.http.is_gateway(model)
            except FaultError as error:
                if is_retryable(error.fault):  # the run itself will fail the same way
                    return False
                self.is_gateway = False
        return self.is_gateway


class _Run(UpstreamRun):
    """One run of a model: a request for a message, and a further request each time that the message ends with
    `pause_turn`. Such a message is sent back, so that the server continues it."""

    def __init__(self, server: _Server, call: Invocation) -> None:
        self._server = server
        self._call = call
        self._past: Sequence[Record] = ()

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the requests of the run, one after the other. Raises agent_invalid if the log does not show which call
        was answered, agent_failed if the server pauses its turn too often, and the fault of a failed request."""
        server, call = self._server, self._call
        # A task's first run has no earlier records. Others need them, because they may contain tool calls.
        self._past = () if call.cause in ("input", "cron") else await call.past()
        if call.answers and len(results_of(call, self._past, PROTOCOL)) < len(call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The log does not show which tool call was answered")
        model = await server.find_model()
        # The API has only messages, so other input becomes a part of one.
        self._call = replace(call, input=call.input.replace(messages=call.input_messages, data=None))
        await self._load_files()
        is_gateway = has_gateway_content(self._call) and await server.is_babelgate(model)
        encoder = RequestEncoder(is_gateway=is_gateway)
        body = encoder.body(model, self._call, self._past, server.schema)
        losses = [LossNoted(feature=loss.feature, how=loss.how) for loss in encoder.losses]
        is_structured = response_schema(self._call, server.schema) is not None
        for _ in range(_MOST_TURNS):
            reader = AnswerReader(structured=is_structured)
            yield self._read_message(body, reader, losses)
            if not reader.is_paused:
                return
            # The server continues its turn if it receives its message back (docs, Stop reasons).
            losses = []
            body = {**body, "messages": [*body["messages"], {"role": "assistant", "content": reader.content}]}
        raise FaultError(FaultCode.AGENT_FAILED, f"The agent's server has paused its turn {_MOST_TURNS} times")

    async def _load_files(self) -> None:
        """Load the files of earlier messages into the call, newest first, up to `MAX_FILES` bytes in total."""
        remaining, history = MAX_FILES, list(self._call.history)
        for number in range(len(history) - 1, -1, -1):
            message = history[number]
            size = sum(part.size or 0 for part in message.parts if isinstance(part, FilePart) and part.blob is not None)
            if 0 < size <= remaining and not message.has_bytes:
                remaining -= size
                history[number] = await self._call.with_files(message)
        self._call = replace(self._call, history=tuple(history))

    async def _read_message(self, body: JsonObject, reader: AnswerReader, losses: Sequence[Event]) -> Stage:
        """Request one message and yield its events. Raises agent_unreachable if the stream ends before the message
        does, and the fault of a failed run."""
        async with (
            self._server.http.create_message(body) as response,
            aclosing(FrameStream(response)) as frames,
        ):
            yield losses
            if not is_stream(response):
                with self._redacting(), blaming_the_agent():
                    yield await self._with_files(reader.whole(await self._server.http.json(response)))
                return
            while batch := await frames.read():
                events: list[Event] = []
                for frame in batch:
                    value = await parse_answer(frame.data)
                    try:
                        with self._redacting(), blaming_the_agent():
                            events += reader.read(value)
                    except FaultError:
                        yield await self._with_files(events)
                        raise
                yield await self._with_files(events)
                if reader.has_ended:
                    await frames.drain(DRAIN)
                    return
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its message did")

    async def _with_files(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events with the bytes of files that another Babelgate serves at a URL."""
        http = self._server.http
        named: list[Event] = []
        for event in events:
            part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
            blob = http.blob_of(part.url) if isinstance(part, FilePart) and part.url is not None else None
            if blob is not None and isinstance(event, PartAdded | ArtifactAdded) and part is not None:
                event = event.replace(part=part.replace(url=None, blob=blob))
            named.append(event)
        return await with_files(named, http.file)

    @contextmanager
    def _redacting(self) -> Generator[None]:
        """Remove the request's credentials from faults raised in the block, because the text of a server's error may
        quote them."""
        try:
            yield
        except FaultError as error:
            raise FaultError.of(self._server.http.redact_fault(error.fault)) from error


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Return the models of a server as agents, from `GET /v1/models`. Raises agent_invalid, also for a server whose
    list is that of OpenAI's API, and the fault of a failed request."""
    client = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    answer = await client.get("/models")
    if "object" in as_object(answer):
        raise FaultError(FaultCode.AGENT_INVALID, "The server lists models as OpenAI does")
    return _models(answer)


def _models(answer: Json) -> list[AgentInfo]:
    try:
        return decode_models(answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list models as Anthropic does") from error

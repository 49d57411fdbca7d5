"""Client of models on an OpenAI-compatible server.

It uses the Responses API if the server has it, because such a server stores conversations. Otherwise it uses chat
completions, and sends the whole conversation with each request.
"""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, Unpack
from urllib.parse import quote

import httpx

from babelgate.adapters.kit.client.answers import LISTING_LIMIT, parse_answer, read_bytes
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.catch_up import catch_up
from babelgate.adapters.kit.client.driver import DrivenClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN, FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.client.transcript import input_of, results_of, transcript
from babelgate.adapters.kit.extension import (
    HEADER,
    URI,
    encode_request,
    encode_start,
    encode_uploads,
    is_named,
    split_uploads,
)
from babelgate.adapters.openai.agents import decode_models, upstream_name
from babelgate.adapters.openai.carries import CARRIES, CHAT_VERSION, RESPONSES_VERSION
from babelgate.adapters.openai.client.http import HttpClient
from babelgate.adapters.openai.codec.model import Losses, format_of
from babelgate.adapters.openai.codec.names import EXTENSION, RECORDS, is_of_api
from babelgate.adapters.openai.codec.questions import CALLS, QUESTIONS_HEADER
from babelgate.adapters.openai.errors.decode import (
    has_no_such_api,
    is_field_refused,
    is_previous_lost,
    is_unexplained,
)
from babelgate.adapters.openai.read.chat import ChatReader
from babelgate.adapters.openai.read.records import RecordsReader
from babelgate.adapters.openai.read.responses import ResponseReader
from babelgate.adapters.openai.request.chat import encode_chat
from babelgate.adapters.openai.request.responses import encode_items, encode_response, encode_results
from babelgate.canonical import (
    AgentInfo,
    Event,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Invocation,
    Message,
    Record,
    TextPart,
)
from babelgate.canonical.event import LossNoted
from babelgate.canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

MOST_OF_FILES: Final = 32 * 2**20
"""Maximum total size of the files in earlier messages that a request repeats, in bytes. The newest files take
precedence. Chosen."""

_PROTOCOL: Final = "openai"
"""Key in `extra` under which `read` stores the ids of calls."""
_DONE: Final = b"[DONE]"
"""Data of the last event of a stream. openai-python accepts it in either API (`_streaming.py`)."""


class Client(DrivenClient[HttpClient]):
    """Client of one model on an OpenAI-compatible server.

    - `agent`: the server's name of the model. None: the first model that the server lists.
    - `api`: the API to use. None: responses if the server has them, else chat completions.
    - `schema`: JSON Schema that every answer must match.
    - `extension`: `on` activates the Babelgate extension on servers that have it.
    """

    def __init__(
        self,
        url: str,
        agent: str | None = None,
        *,
        api: Literal["chat", "responses"] | None = None,
        schema: JsonObject | None = None,
        extension: Literal["on", "off"] = "on",
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(HttpClient(url, **connection))
        self._server = _Server(self._http, agent, api, schema, extended=None if extension == "on" else False)

    def start(self, call: Invocation) -> UpstreamRun:
        return _Run(self._server, call)


@dataclass(slots=True)
class _Server:
    """Connection to a server, and the capabilities that runs have detected so far. All runs share it."""

    http: HttpClient
    model: str | None
    api: Literal["chat", "responses"] | None
    schema: JsonObject | None
    counts: bool = True
    """True unless the server has refused `stream_options`, which request token counts."""
    remembers: bool = True
    """True unless the server was found unable to continue its earlier responses."""
    extended: bool | None = None
    """True if the Babelgate extension is active on the server; None if that is not known yet."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {QUESTIONS_HEADER: CALLS, **({HEADER: URI} if self.extended else {})}

    async def look_for_extension(self) -> None:
        """Detect whether the server has the Babelgate extension, from a header of the response to `GET
        /models/<model>`."""
        if self.extended is not None:
            return
        path = f"/models/{quote(self.model or '', safe='')}"
        try:
            async with self.http.open_response("GET", path, headers={HEADER: URI}) as response:
                self.extended = is_named(response.headers.get(HEADER))
        except FaultError as error:  # the run itself will fail the same way
            if not is_retryable(error.fault):
                self.extended = False

    async def file(self, blob: str) -> bytes:
        """Return the bytes of a file from a server that is a Babelgate. `blob` is the hash of the file. Raises the
        fault of the server's error response."""
        path = f"/models/{quote(self.model or '', safe='')}/files/{quote(blob, safe='')}"
        async with self.http.open_response("GET", path) as response:
            return await read_bytes(response, self.http.answer_limit)

    async def find_model(self) -> str:
        """Return the configured model, or else the first in the server's list. Raises agent_unreachable if the list is
        empty, and the fault of a failed request."""
        if self.model is None:
            models = _models(await self.http.get("/models"))
            if not models:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's server has no models")
            self.model = upstream_name(models[0])
        return self.model


class _Run(UpstreamRun):
    """One run of a model: one or several requests until the answer is read.

    An ordinary server stops when the client disconnects, so it needs no cancel request. On a Babelgate, a response runs
    in the background and can be resumed, so it is cancelled.
    """

    def __init__(self, server: _Server, call: Invocation) -> None:
        self._server = server
        self._call = call
        self._uploads: Sequence[FilePart] = ()
        """Files that the Babelgate extension's part of the request carries; they were removed from the call's
        messages."""
        self._past: Sequence[Record] = ()
        self._model = ""
        self._records = RecordsReader(binds=False)
        """Reader of the records that a server sends if the Babelgate extension is active."""
        self._refused: Literal["previous", "responses", "counts"] | None = None
        """Part of the last request that the server refused before any event: `previous` (the response to continue),
        `responses` (the API) or `counts` (`stream_options`). None: nothing was refused."""
        self._is_answered = False
        """True if the JSON body of a response that is not a stream was read."""
        self._is_other = False
        """True if the server answered 2xx with something that is not a response, for example a web page or an error."""
        self._refusal: FaultError | None = None
        """Error of the Responses API that could mean either a missing API or an invalid request. It is raised if the
        server has no chat completions either."""

    @property
    def is_cancellable(self) -> bool:
        return self._records.response_id is not None and not self._records.has_stopped

    async def cancel(self) -> None:
        """Cancel the background response on another Babelgate."""
        path = f"/responses/{self._records.response_id}/cancel"
        async with self._server.http.open_response("POST", path, {}):
            pass

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the requests of the run one after the other, each as an asynchronous generator of events. Raises
        agent_invalid if the log does not show which call was answered, and the fault of a failed request."""
        server, call = self._server, self._call
        # A task's first run has no earlier records. Others need them, because they may contain tool calls.
        self._past = () if call.cause in ("input", "cron") else await call.past()
        if call.answers and len(results_of(call, self._past, _PROTOCOL)) < len(call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The log does not show which tool call was answered")
        self._model = server.model = await server.find_model()
        await server.look_for_extension()
        if server.extended:
            self._call, self._uploads = split_uploads(call)
        if server.api != "chat":
            name = "run" if call.answers else "context"
            previous = (call.upstream.get(name) or call.origin.get(name)) if server.remembers else None
            yield self._read_response(previous)
            if self._refused == "previous":
                yield self._read_response(None)
            if self._refused is None:
                server.api = "responses"
                if self._records.active and not self._records.has_stopped:
                    yield self._catch_up()
                return
        yield self._read_completion(counts=server.counts)
        if self._refused == "counts":
            server.counts = False
            yield self._read_completion(counts=False)
        server.api = "chat"

    async def _read_response(self, previous: str | None) -> Stage:
        """Request one response and yield its events. `previous` is the id of the response to continue; None sends the
        whole conversation. If the server refuses a part of the request, `_refused` names it and nothing is yielded."""
        self._refused, self._is_other, self._is_answered = None, False, False
        losses, has_events = Losses(), False
        if previous is None:
            await self._load_history()
        items = self._items(previous, losses)
        is_of_same_api = is_of_api(self._call.input.extra, RESPONSES_VERSION)
        body = encode_response(self._model, items, self._config, self._server.schema, previous, same=is_of_same_api)
        body |= self._extended_body()
        self._note_metadata(body, losses)
        if self._server.extended:  # a gateway can cancel only background responses
            body["background"] = True
        self._records = RecordsReader(binds=True)
        reader = ResponseReader(structured=self._is_structured)
        try:
            async with (
                self._server.http.open_response("POST", "/responses", body, self._server.headers) as response,
                aclosing(FrameStream(response)) as frames,
            ):
                streams = is_stream(response)
                while (
                    batch := await self._next_of_response(reader, response, frames if streams else None)
                ) is not None:
                    if previous is not None and reader.forgets:
                        self._server.remembers = False
                        if not has_events:
                            self._refused = "previous"
                            return
                    events = batch if has_events else (*_note_losses(losses), *batch)
                    has_events = has_events or bool(events)
                    yield events
                if streams:
                    await frames.drain(DRAIN)
                if self._records.active:
                    return
                with self._redacting(), blaming_the_agent():
                    reader.end()
        except FaultError as error:
            self._refused = self._find_refused_part(error, previous, has_events=has_events)
            if self._refused is None:
                raise

    def _find_refused_part(
        self, error: FaultError, previous: str | None, *, has_events: bool
    ) -> Literal["previous", "responses"] | None:
        """Return the part of the request that an error refuses: `previous` (the response to continue) or `responses`
        (the whole API). None means that the run fails with the error.

        `has_events` is True if the response had begun. An error that could also mean an invalid request is stored in
        `_refusal`.
        """
        if previous is not None and is_previous_lost(error.fault, previous):
            return "previous"
        if self._server.api == "responses" or has_events:
            return None
        if has_no_such_api(error.fault):
            return "responses"
        if self._server.api is None and (self._is_other or is_unexplained(error.fault)):
            self._refusal = error
            return "responses"
        return None

    async def _load_history(self) -> None:
        """Load the bytes of files in earlier messages, newest first up to `MOST_OF_FILES`. Needed if the request
        contains the whole conversation."""
        remaining, history = MOST_OF_FILES, list(self._call.history)
        for number in range(len(history) - 1, -1, -1):
            message = history[number]
            size = sum(part.size or 0 for part in message.parts if isinstance(part, FilePart) and part.blob is not None)
            if 0 < size <= remaining and not message.has_bytes:
                remaining -= size
                history[number] = await self._call.with_files(message)
        self._call = replace(self._call, history=tuple(history))

    async def _load_state(self) -> None:
        """Add the values of the checkpoint from which the run starts to the call's state. A server of chat completions
        stores no state itself."""
        checkpoint = self._call.input.checkpoint
        if self._server.extended and checkpoint is not None and not self._call.answers:
            revision = (await self._call.states()).get(checkpoint)
            saved = {} if revision is None else revision.values
            values = {name: value for name, value in saved.items() if name != "messages"}
            self._call = replace(self._call, state={**values, **self._call.state})

    def _items(self, previous: str | None, losses: Losses) -> list[JsonObject]:
        """Return the items of a request: the whole conversation or, to continue the response `previous`, only the new
        items."""
        if previous is None:
            return list(encode_items(transcript(self._call, self._past, _PROTOCOL), losses))
        if self._call.answers:
            return encode_results(results_of(self._call, self._past, _PROTOCOL))
        return list(encode_items(input_of(self._call), losses))

    async def _next_of_response(
        self, reader: ResponseReader, response: httpx.Response, frames: FrameStream | None
    ) -> Sequence[Event] | None:
        """Return the events of the next frame, or None at the end of the response. `frames` is None for a body that is
        not a stream; it is read as a whole."""
        if self._records.has_stopped or (reader.stopped and not self._records.active):
            return None
        with self._redacting(), blaming_the_agent():
            if frames is not None:
                frame = await anext(frames, None)
                if frame is None or frame.data.strip() == _DONE:
                    return None
                value = await parse_answer(frame.data)
                if frame.event == RECORDS:
                    return await self._read_records(value)
                return () if self._records.active and frame.event != "error" else reader.read(value)
            if self._is_answered:
                return None
            self._is_answered = True
            self._is_other = "json" not in response.headers.get("content-type", "json").lower()
            answer = await self._server.http.json(response)
            if not _is_response(answer):
                self._is_other = True
                return reader.read(answer)
            return reader.whole(answer)

    async def _read_records(self, value: Json) -> Sequence[Event]:
        envelope = value.get(URI) if isinstance(value, dict) else None
        return await with_files(self._records.read(envelope), self._server.file)

    def _catch_up(self) -> Stage:
        """Return the requests that read the rest of a background response after its stream broke off. Raises
        agent_unreachable if its id is not known."""
        records = self._records
        if records.response_id is None:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")
        return catch_up(records.reader, self._reread, lambda: records.has_stopped)

    async def _reread(self, start: int) -> Stage:
        """Request the stream of a background response again, from its start, and yield the events that were not read
        before."""
        records = self._records
        path = f"/responses/{records.response_id}?stream=true"
        async with (
            self._server.http.open_response("GET", path, headers=self._server.headers) as response,
            aclosing(FrameStream(response)) as frames,
        ):
            async for frame in frames:
                if frame.event == RECORDS:
                    yield await self._read_records(await parse_answer(frame.data))
                if records.has_stopped:
                    await frames.drain(DRAIN)
                    return

    @property
    def _config(self) -> JsonObject:
        """Configuration of the run as the caller sent it, for example `{"temperature": 0, "tools": […]}`, from which
        the request's members are encoded. If the Babelgate extension is active, `tools` and `configurable` are left
        out, because the request member `babelgate` carries them."""
        config = self._call.config
        if not self._server.extended:
            return config
        return {name: value for name, value in config.items() if name not in ("tools", "configurable")}

    def _extended_body(self) -> JsonObject:
        """Return the request member `babelgate` of the Babelgate extension, or {} if the extension is not active or has
        nothing to carry."""
        if not self._server.extended:
            return {}
        messages = self._call.input_messages
        is_lossy = not self._call.answers and not all(map(_is_plain, messages))
        members = encode_request(self._call, self._past, messages=messages if is_lossy else ())
        members |= {**encode_uploads(self._uploads), **({} if self._call.answers else encode_start(self._call))}
        return {EXTENSION: members} if members else {}

    def _note_metadata(self, body: JsonObject, losses: Losses) -> None:
        """Note the loss of the caller's metadata, unless the request's extension member carries them.

        The API's own member `metadata` is not used: responses accept only strings in it, and chat completions accept it
        only with `store`.
        """
        extension: JsonObject = body.get(EXTENSION) or {}
        if self._call.metadata and not self._call.answers and "metadata" not in extension:
            losses.note(Feature.METADATA, CARRIES[Feature.METADATA].how)

    async def _read_completion(self, *, counts: bool) -> Stage:
        """Request one chat completion and yield its events. `counts`: request the token counts, too."""
        self._refused = None
        await self._load_history()
        await self._load_state()
        call, losses, done = self._call, Losses(), False
        body = encode_chat(
            self._model,
            transcript(call, self._past, _PROTOCOL),
            self._config,
            self._server.schema,
            losses,
            same=is_of_api(call.input.extra, CHAT_VERSION),
        )
        body |= self._extended_body()
        self._note_metadata(body, losses)
        self._records = RecordsReader(binds=False)
        if not counts:
            body = {key: value for key, value in body.items() if key != "stream_options"}
        reader = ChatReader(call.run_id, structured=self._is_structured)
        try:
            async with (
                self._server.http.open_response("POST", "/chat/completions", body, self._server.headers) as response,
                aclosing(FrameStream(response)) as frames,
            ):
                yield _note_losses(losses)
                with self._redacting(), blaming_the_agent():
                    if not is_stream(response):
                        yield reader.read(await self._server.http.json(response))
                    else:
                        # Like openai-python 3.54.0, read up to the end marker or the end of the stream. Some servers
                        # send a `finish_reason` in every chunk, and the token counts come after the last choice.
                        async for frame in frames:
                            if frame.data.strip() == _DONE:
                                done = True
                                await frames.drain(DRAIN)
                                break
                            value = await parse_answer(frame.data)
                            if isinstance(value, dict) and URI in value:
                                yield await self._read_records(value)
                            elif not self._records.active or (isinstance(value, dict) and value.get("error")):
                                yield reader.read(value)
                            if self._records.has_stopped:
                                await frames.drain(DRAIN)
                                return
                    yield reader.end(done=done and not self._records.active)
        except FaultError as error:
            if counts and is_field_refused(error.fault, "stream_options"):
                self._refused = "counts"
            elif self._refusal is not None and has_no_such_api(error.fault):
                raise self._refusal from error
            else:
                raise

    @property
    def _is_structured(self) -> bool:
        form = format_of(self._call.config, self._server.schema)
        return form is not None and form.get("type") in ("json_schema", "json_object")

    @contextmanager
    def _redacting(self) -> Generator[None]:
        """Remove the request's credentials from faults raised in the block, because the text of a server's error may
        quote them."""
        try:
            yield
        except FaultError as error:
            raise FaultError.of(self._server.http.redact_fault(error.fault)) from error


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Return the models of a server as agents, from `GET /v1/models`. `agents.upstream_name` returns a model's name at
    the server. Raises agent_invalid, and the fault of a failed request."""
    return _models(await HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT).get("/models"))


def _models(answer: Json) -> list[AgentInfo]:
    try:
        return decode_models(answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list models as OpenAI does") from error


def _note_losses(losses: Losses) -> list[LossNoted]:
    return [LossNoted(feature=loss.feature, how=loss.how) for loss in losses]


def _is_plain(message: Message) -> bool:
    """Return True if the message consists of a user's text only, which the API carries without the Babelgate
    extension."""
    return message.role == "user" and not message.metadata and all(isinstance(p, TextPart) for p in message.parts)


def _is_response(answer: Json) -> bool:
    """Return True if a JSON body is a response of the Responses API. An error with status 200 and the answer of a proxy
    are not."""
    return isinstance(answer, dict) and not {"output", "status"}.isdisjoint(answer)

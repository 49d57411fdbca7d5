"""Drives a model on an OpenAI-compatible server: through the Responses API where the server has it, which remembers
what was said, else through chat completions, which are told everything each time."""

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
from babelgate.adapters.openai.request.transcript import input_of, results_of, transcript
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
"""Bytes of the files of earlier messages, all together, that a server is told again: those of the newest."""

_DONE: Final = b"[DONE]"
"""The end of a stream, of either API to openai-python (`_streaming.py`)."""


class Client(DrivenClient[HttpClient]):
    """A model on an OpenAI-compatible server. `agent` is the server's own name of it; None = the first that it lists.
    `api` = which API to use, None = responses where there are any. `schema` = what every answer is to fit;
    `extension` = whether the Babelgate extension is activated where the server has it."""

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
    """What is known of a server, and found out by the runs that it is asked for."""

    http: HttpClient
    model: str | None
    api: Literal["chat", "responses"] | None
    schema: JsonObject | None
    counts: bool = True
    """It takes `stream_options`."""
    remembers: bool = True
    """It goes on from responses that it gave before."""
    extended: bool | None = None
    """It has the Babelgate extension, and it is to be activated; None = not known yet."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {QUESTIONS_HEADER: CALLS, **({HEADER: URI} if self.extended else {})}

    async def look_for_extension(self) -> None:
        """A gateway says that it has it where it is asked for the model."""
        if self.extended is not None:
            return
        path = f"/models/{quote(self.model or '', safe='')}"
        try:
            async with self.http.open_response("GET", path, headers={HEADER: URI}) as response:
                self.extended = is_named(response.headers.get(HEADER))
        except FaultError as error:  # the run itself tells of it
            if not is_retryable(error.fault):
                self.extended = False

    async def file(self, blob: str) -> bytes:
        """Of a gateway, by its hash. Raises what the server answers instead."""
        path = f"/models/{quote(self.model or '', safe='')}/files/{quote(blob, safe='')}"
        async with self.http.open_response("GET", path) as response:
            return await read_bytes(response, self.http.answer_limit)

    async def find_model(self) -> str:
        """The model of the settings, or the first of the server. Raises agent_unreachable where it has none."""
        if self.model is None:
            models = _models(await self.http.get("/models"))
            if not models:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's server has no models")
            self.model = upstream_name(models[0])
        return self.model


class _Run(UpstreamRun):
    """One answer of a model. Nothing is to be cancelled: its server stops when nobody listens any more; but for a
    gateway's responses, which are come back to, and so go on."""

    def __init__(self, server: _Server, call: Invocation) -> None:
        self._server = server
        self._call = call
        self._uploads: Sequence[FilePart] = ()
        """What is sent by the extension, and no more in the call."""
        self._past: Sequence[Record] = ()
        self._model = ""
        self._records = RecordsReader(binds=False)
        """What is told by the extension."""
        self._refused: Literal["previous", "responses", "counts"] | None = None
        """What of the last request the server did not know, before it had said anything: the response to go on from,
        the API, or `stream_options`."""
        self._is_other = False
        """Whether the server answered 2xx with something else than a response, such as a web page or an error."""
        self._refusal: FaultError | None = None
        """Refusal of the Responses API that may have meant the request. Raised if chat completions do not exist."""

    @property
    def is_cancellable(self) -> bool:
        return self._records.response_id is not None and not self._records.has_stopped

    async def cancel(self) -> None:
        path = f"/responses/{self._records.response_id}/cancel"
        async with self._server.http.open_response("POST", path, {}):
            pass

    async def stages(self) -> AsyncGenerator[Stage]:
        """Raises agent_invalid."""
        server, call = self._server, self._call
        # Of a task's first run there is no past: its records are read only where there may be calls among them.
        self._past = () if call.cause in ("input", "cron") else await call.past()
        if call.answers and len(results_of(call, self._past)) < len(call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The log does not tell which call of a tool was answered")
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
        """The Responses API: one response, which goes on from `previous`."""
        self._refused, self._is_other = None, False
        losses, has_said = Losses(), False
        if previous is None:
            await self._load_history()
        items = self._items(previous, losses)
        same = is_of_api(self._call.input.extra, RESPONSES_VERSION)
        body = encode_response(self._model, items, self._config, self._server.schema, previous, same=same)
        body |= self._extended_body()
        self._note_metadata(body, losses)
        if self._server.extended:  # or nobody could cancel it
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
                        if not has_said:
                            self._refused = "previous"
                            return
                    events = batch if has_said else (*_note_losses(losses), *batch)
                    has_said = has_said or bool(events)
                    yield events
                if streams:
                    await frames.drain(DRAIN)
                if self._records.active:
                    return
                with self._redacting(), blaming_the_agent():
                    reader.end()
        except FaultError as error:
            if previous is not None and is_previous_lost(error.fault, previous):
                self._refused = "previous"
            elif self._server.api == "responses" or has_said:
                raise
            elif has_no_such_api(error.fault):
                self._refused = "responses"
            elif self._server.api is None and (self._is_other or is_unexplained(error.fault)):
                self._refused, self._refusal = "responses", error
            else:
                raise

    async def _load_history(self) -> None:
        """The files of what was said before: a model that remembers nothing is shown them each time."""
        left, history = MOST_OF_FILES, list(self._call.history)
        for number in range(len(history) - 1, -1, -1):
            message = history[number]
            size = sum(part.size or 0 for part in message.parts if isinstance(part, FilePart) and part.blob is not None)
            if 0 < size <= left and not message.has_bytes:
                left -= size
                history[number] = await self._call.with_files(message)
        self._call = replace(self._call, history=tuple(history))

    async def _load_state(self) -> None:
        """All of it, where a completion starts from an older one: each is told the conversation, and knows no other."""
        checkpoint = self._call.input.checkpoint
        if self._server.extended and checkpoint is not None and not self._call.answers:
            revision = (await self._call.states()).get(checkpoint)
            known = {} if revision is None else revision.values
            values = {name: value for name, value in known.items() if name != "messages"}
            self._call = replace(self._call, state={**values, **self._call.state})

    def _items(self, previous: str | None, losses: Losses) -> list[JsonObject]:
        if previous is None:
            return list(encode_items(transcript(self._call, self._past), losses))
        if self._call.answers:
            return encode_results(results_of(self._call, self._past))
        return list(encode_items(input_of(self._call), losses))

    async def _next_of_response(
        self, reader: ResponseReader, response: httpx.Response, frames: FrameStream | None
    ) -> Sequence[Event] | None:
        """None at the end. `frames` = None: the answer is no stream."""
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
            if response.is_stream_consumed:
                return None
            self._is_other = "json" not in response.headers.get("content-type", "json").lower()
            answer = await self._server.http.json(response)
            if not _is_response(answer):
                self._is_other = True
                return reader.read(answer)
            return reader.whole(answer)

    async def _read_records(self, value: Json) -> Sequence[Event]:
        told = value.get(URI) if isinstance(value, dict) else None
        return await with_files(self._records.read(told), self._server.file)

    def _catch_up(self) -> Stage:
        records = self._records
        if records.response_id is None:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")
        return catch_up(records.reader, self._tell_again, lambda: records.has_stopped)

    async def _tell_again(self, start: int) -> Stage:
        """A response is told again from its start, whatever was told of it: what is not new is left out."""
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
        """Without the tools that are told by the extension."""
        config = self._call.config
        if not self._server.extended:
            return config
        return {name: value for name, value in config.items() if name not in ("tools", "configurable")}

    def _extended_body(self) -> JsonObject:
        if not self._server.extended:
            return {}
        said = self._call.input_messages
        lossy = not self._call.answers and not all(map(_is_plain, said))
        told = encode_request(self._call, self._past, messages=said if lossy else ())
        told |= {**encode_uploads(self._uploads), **({} if self._call.answers else encode_start(self._call))}
        return {EXTENSION: told} if told else {}

    def _note_metadata(self, body: JsonObject, losses: Losses) -> None:
        """Note the loss of the caller's metadata, unless the extension carries it. It is not sent in the API's own
        member: responses take strings only, and chat completions refuse it unless they are stored."""
        told: JsonObject = body.get(EXTENSION) or {}
        if self._call.metadata and not self._call.answers and "metadata" not in told:
            losses.note(Feature.METADATA, CARRIES[Feature.METADATA].how)

    async def _read_completion(self, *, counts: bool) -> Stage:
        """Chat completions. `counts` = whether tokens are asked for."""
        self._refused = None
        await self._load_history()
        await self._load_state()
        call, losses, done = self._call, Losses(), False
        body = encode_chat(
            self._model,
            transcript(call, self._past),
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
                        # Until its mark or its end, as openai-python 3.54.0 reads it: some servers give a reason for
                        # the end in every chunk, and the count of tokens comes after the last choice.
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
        """What a server says of an error may repeat what was sent to it."""
        try:
            yield
        except FaultError as error:
            raise FaultError.of(self._server.http.redact_fault(error.fault)) from error


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """The models of a server, by `GET /v1/models`; `model.upstream_name` tells what it calls them itself."""
    return _models(await HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT).get("/models"))


def _models(answer: Json) -> list[AgentInfo]:
    try:
        return decode_models(answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list models as OpenAI does") from error


def _note_losses(losses: Losses) -> list[LossNoted]:
    return [LossNoted(feature=loss.feature, how=loss.how) for loss in losses]


def _is_plain(message: Message) -> bool:
    """Whether it is the same natively."""
    return message.role == "user" and not message.metadata and all(isinstance(p, TextPart) for p in message.parts)


def _is_response(answer: Json) -> bool:
    """And not an error that came as 200, or something of a proxy's."""
    return isinstance(answer, dict) and not {"output", "status"}.isdisjoint(answer)

"""Drives a model on an OpenAI-compatible server: through the Responses API where the server has it, which remembers
what was said, else through chat completions, which are told everything each time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, Literal

import httpx

from adapters._client.answers import LISTING_LIMIT, parse_answer
from adapters._sse import Frame, read_frames
from adapters.openai.agents import decode_models, upstream_name
from adapters.openai.client.http import HttpClient
from adapters.openai.codec import Losses, format_of
from adapters.openai.errors import forgot, has_no_such_api, refuses
from adapters.openai.read.chat import ChatReader
from adapters.openai.read.responses import ResponseReader
from adapters.openai.request.chat import encode_chat
from adapters.openai.request.responses import encode_items, encode_response, encode_results
from adapters.openai.request.transcript import input_of, results_of, transcript
from canonical import AgentInfo, Event, FaultCode, FaultError, Invocation, Record
from canonical.event import LossNoted
from canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

COUNT: Final = 2.0
"""Seconds that a server has to count its tokens after the model has stopped."""
DRAIN: Final = 0.2
"""Seconds that it has to end its stream."""

_DONE: Final = b"[DONE]"

Events = AsyncGenerator[Event, None]


class Client:
    """A model on an OpenAI-compatible server. `agent` is the server's own name of it; None = the first that it lists.
    `api` = which API to use, None = responses where there are any. `schema` = what every answer is to fit."""

    def __init__(
        self,
        url: str,
        agent: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
        api: Literal["chat", "responses"] | None = None,
        schema: JsonObject | None = None,
    ) -> None:
        self._model = agent
        self._upstream = HttpClient(url, headers=headers, timeout=timeout, http=http)
        self._api = api
        self._schema = schema
        self._counts = True
        """The server takes `stream_options`."""
        self._remembers = True
        """The server goes on from responses that it gave before."""

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        # Of a task's first run there is no past: its records are read only where there may be calls among them.
        """Raises agent_invalid."""
        past = () if call.cause in ("input", "cron") else await call.past()
        if call.answers and len(results_of(call, past)) < len(call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The log does not tell which call of a tool was answered")
        model = await self._find_model()
        if self._api != "chat":
            try:
                async with aclosing(self._responses(call, past, model)) as events:
                    async for event in events:
                        yield event
                return
            except _NoResponses:
                pass
        async with aclosing(self._chat(call, past, model)) as events:
            async for event in events:
                yield event
        self._api = "chat"

    async def _find_model(self) -> str:
        if self._model is None:
            models = _models(await self._upstream.get("/models"))
            if not models:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's server has no models")
            self._model = upstream_name(models[0])
        return self._model

    # Responses

    async def _responses(self, call: Invocation, past: Sequence[Record], model: str) -> Events:
        previous = call.upstream.get("run" if call.answers else "context") if self._remembers else None
        if previous is not None:
            try:
                async with aclosing(self._response(call, past, model, previous)) as events:
                    async for event in events:
                        yield event
                return
            except _Forgotten:
                pass
        async with aclosing(self._response(call, past, model, None)) as events:
            async for event in events:
                yield event

    async def _response(self, call: Invocation, past: Sequence[Record], model: str, previous: str | None) -> Events:
        """One response. Raises _Forgotten, before any event, if the server does not know the one that it goes on from,
        and _NoResponses if it knows no responses at all."""
        losses = Losses()
        if previous is None:
            items = list(encode_items(transcript(call, past), losses))
        elif call.answers:
            items = encode_results(results_of(call, past))
        else:
            items = list(encode_items(input_of(call), losses))
        body = encode_response(model, items, call.config, self._schema, previous)
        reader = ResponseReader(structured=self._is_structured(call))
        try:
            async with (
                self._upstream.open_response("POST", "/responses", body) as response,
                aclosing(self._read_response(reader, response)) as batches,
            ):
                told = False
                async for batch in batches:
                    if previous is not None and reader.forgets:
                        self._remembers = False
                        if not told:
                            raise _Forgotten
                    for event in batch if told else (*_note_losses(losses), *batch):
                        told = True
                        yield event
        except FaultError as error:
            if previous is not None and forgot(error.fault, previous):
                raise _Forgotten from error
            if self._api != "responses" and has_no_such_api(error.fault):
                raise _NoResponses from error
            raise
        self._api = "responses"

    async def _read_response(
        self, reader: ResponseReader, response: httpx.Response
    ) -> AsyncGenerator[Sequence[Event], None]:
        with self._blaming_the_agent():
            if not _streams(response):
                answer = await self._upstream.json(response)
                yield reader.whole(answer) if _is_response(answer) else reader.read(answer)
            else:
                async with aclosing(_frames(response)) as frames:
                    async for frame in frames:
                        if frame.data.strip() == _DONE:
                            break
                        yield reader.read(await parse_answer(frame.data))
                        if reader.stopped:
                            break
                    await _drain(frames)
            reader.end()

    # Chat completions

    async def _chat(self, call: Invocation, past: Sequence[Record], model: str) -> Events:
        losses = Losses()
        body = encode_chat(model, transcript(call, past), call.config, self._schema, losses)
        for loss in _note_losses(losses):
            yield loss
        if self._counts:
            try:
                async with aclosing(self._completion(call, body, counts=True)) as events:
                    async for event in events:
                        yield event
                return
            except _Uncounted:
                self._counts = False
        async with aclosing(self._completion(call, body, counts=False)) as events:
            async for event in events:
                yield event

    async def _completion(self, call: Invocation, body: JsonObject, *, counts: bool) -> Events:
        """Raises _Uncounted, before any event, if the server does not take `stream_options`."""
        if not counts:
            body = {key: value for key, value in body.items() if key != "stream_options"}
        reader = ChatReader(call.run_id, structured=self._is_structured(call))
        try:
            async with (
                self._upstream.open_response("POST", "/chat/completions", body) as response,
                aclosing(self._read_completion(reader, response)) as events,
            ):
                async for event in events:
                    yield event
        except FaultError as error:
            if counts and refuses(error.fault, "stream_options"):
                raise _Uncounted from error
            raise

    async def _read_completion(self, reader: ChatReader, response: httpx.Response) -> Events:
        done = False
        with self._blaming_the_agent():
            if not _streams(response):
                for event in reader.read(await self._upstream.json(response)):
                    yield event
            else:
                async with aclosing(_frames(response)) as frames:
                    until: float | None = None
                    while (frame := await _next(frames, until)) is not None:
                        if frame.data.strip() == _DONE:
                            done = True
                            break
                        for event in reader.read(await parse_answer(frame.data)):
                            yield event
                        if reader.finished and until is None:
                            # The count of tokens comes after the last choice, and not always
                            # (SPEC/chat/chat_completion_stream_options_param.py, include_usage).
                            until = asyncio.get_running_loop().time() + COUNT
                    if done:
                        await _drain(frames)
            for event in reader.end(done=done):
                yield event

    def _is_structured(self, call: Invocation) -> bool:
        form = format_of(call.config, self._schema)
        return form is not None and form.get("type") in ("json_schema", "json_object")

    @contextmanager
    def _blaming_the_agent(self) -> Generator[None]:
        """What breaks the protocol here is the agent's server, and not whoever called the gateway."""
        try:
            yield
        except FaultError as error:
            if error.fault.code is not FaultCode.INVALID:
                raise FaultError.of(self._upstream.redact_fault(error.fault)) from error
            raise FaultError(
                FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}"
            ) from error


class _NoResponses(Exception):
    """The server has no Responses API."""


class _Forgotten(Exception):
    """The server does not know the response to go on from."""


class _Uncounted(Exception):
    """The server takes no `stream_options`."""


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


def _streams(response: httpx.Response) -> bool:
    return "text/event-stream" in response.headers.get("content-type", "")


def _is_response(answer: Json) -> bool:
    """And not an error that came as 200, or something of a proxy's."""
    return isinstance(answer, dict) and not {"output", "status"}.isdisjoint(answer)


async def _frames(response: httpx.Response) -> AsyncGenerator[Frame, None]:
    """A connection that breaks is a stream that ends: whether too early, its reader knows."""
    try:
        async with aclosing(read_frames(response)) as frames:
            async for frame in frames:
                yield frame
    except httpx.TimeoutException:
        raise
    except httpx.TransportError:
        return


async def _next(frames: AsyncGenerator[Frame, None], until: float | None) -> Frame | None:
    """None at the end, or when the time has come."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(frames, None)
    except TimeoutError:
        return None


async def _drain(frames: AsyncGenerator[Frame, None]) -> None:
    """Read to its end, a connection can be used again."""
    until = asyncio.get_running_loop().time() + DRAIN
    while await _next(frames, until) is not None:
        pass

"""Conversation of `babelgate run` with one agent of a gateway, through the client of a protocol."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final
from uuid import uuid4

import httpx

from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.client.tls import CLIENT_FILES, explain_failure, has_dropped_client
from babelgate.canonical import (
    DataPart,
    Event,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    Record,
    RunInput,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    Native,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.message import text_of
from babelgate.canonical.state import ERRED, RunStatus
from babelgate.canonical.thread import next_run_id
from babelgate.canonical.value import Json
from babelgate.gateway.cli.conversation import (
    ConversationError,
    OpenQuestion,
    Output,
    ProgressNote,
    TextPiece,
    bearer,
)

_EXTENSION: Final = "extension"
"""Client option that turns the Babelgate extension on or off (`babelgate.adapters.kit.upstream.Upstream.options`)."""


class ClientConversation:
    """Conversation with one agent in one protocol, as any client of the protocol sees it. With `whole`, the Babelgate
    extension adds the events for which the protocol has no field."""

    def __init__(self, protocol: str, url: str, agent: str, key: str | None, *, whole: bool = False) -> None:
        """Create the client of an agent at a gateway with this URL. `key` is the API key, if the gateway needs one.
        `whole` uses the Babelgate extension, so that every event is received unchanged.

        Raises ConversationError if `whole` is set and the protocol has no extension.
        """
        upstream = next(each for each in UPSTREAMS if each.protocol == protocol)
        if whole and _EXTENSION not in upstream.options:
            named = ", ".join(each.protocol for each in UPSTREAMS if _EXTENSION in each.options)
            raise ConversationError(f"{upstream.title} does not have the Babelgate extension; use one of: {named}")
        options = {_EXTENSION: "on" if whole else "off"} if _EXTENSION in upstream.options else {}
        at = url + (upstream.own_path or "").format(agent=agent)
        self._client = upstream.client(at, agent, headers=bearer(key), **options)
        self._whole = whole
        self._url = url
        ids = [str(uuid4()) for _ in range(3)]
        self._call = Invocation(agent=agent, thread_id=ids[0], task_id=ids[1], run_id=ids[2], past=self._past)
        self._records: list[Record] = []
        """Records of the conversation so far, as the log of a gateway would have them: the protocol's client finds its
        questions there."""

    async def _past(self) -> Sequence[Record]:
        return tuple(self._records)

    async def aclose(self) -> None:
        await self._client.aclose()

    def send(self, content: str | Message) -> AsyncGenerator[Output]:
        """Send a message of the user, and yield the output of the agent until it ends or asks. Raises ConversationError
        if the agent fails."""
        message = Message.of(content, "user") if isinstance(content, str) else content
        return self._read_events(replace(self._call, input=RunInput(messages=(message,))))

    def answer(self, answers: Sequence[tuple[OpenQuestion, Json]]) -> AsyncGenerator[Output]:
        """Send the answers to all open questions, and yield the output of the agent until it ends or asks again. Raises
        ConversationError if the agent fails."""
        self._call = replace(self._call, run_id=next_run_id(self._call.run_id))
        interrupt_answers = tuple(
            InterruptAnswered(interrupt_id=question.id, value=value) for question, value in answers
        )
        return self._read_events(replace(self._call, cause="answer", answers=interrupt_answers))

    async def _read_events(self, call: Invocation) -> AsyncGenerator[Output]:
        for event in (RunCreated.of(call.input, run_id=call.run_id, cause=call.cause), *call.answers):
            self._record(event)
        try:
            async with aclosing(self._client.run(call)) as events:
                async for event in events:
                    if isinstance(event, UpstreamBound):
                        self._call = replace(self._call, upstream={**self._call.upstream, **event.ids})
                    if isinstance(event, InterruptRaised) and event.interrupt_id is None:  # as the hub does
                        event = event.replace(interrupt_id=str(uuid4()))
                    self._record(event)
                    output = _read_event(event) or (_note(event) if self._whole else None)
                    if output is not None:
                        yield output
        except FaultError as error:
            raise ConversationError(_words(error, self._url)) from error

    def _record(self, event: Event) -> None:
        call = self._call
        self._records.append(Record(len(self._records) + 1, 0, call.task_id, call.run_id, 1, event))


def _words(error: FaultError, url: str) -> str:
    """Return the text of a fault for the user of `babelgate run`. The agent's server that the fault is about is the
    gateway at `url`, so the text speaks of the gateway."""
    if (reason := explain_failure(error, url, remedy="give --ca", identify="give --client-cert")) is not None:
        return reason
    if url.startswith("https:") and CLIENT_FILES.get() is None and has_dropped_client(error):
        return f"tls: {url} ends each connection: it may need a client certificate: give --client-cert"
    if isinstance(error.__cause__, (httpx.ConnectError, httpx.InvalidURL)):
        return f"no gateway answers at {url}: start one with babelgate serve, or name another with --url"
    if "answered 401" in error.fault.message:
        return "the gateway requires an API key: pass --key, or set BABELGATE_KEY"
    return error.fault.message.replace("The agent's server answered", "The gateway answered", 1)


def _read_event(event: Event) -> Output | None:
    match event:
        case PartDelta():
            return TextPiece(event.text)
        case PartAdded():
            return _part(event.part)
        case ArtifactAdded():
            return ProgressNote(f"file {event.name or event.artifact_id or ''}")
        case ToolStarted():
            return ProgressNote(event.name)
        case InterruptRaised():
            return OpenQuestion(event.interrupt_id or "", text_of(event.message.parts), event.answer_schema)
        case RunEnded() if event.status is RunStatus.CANCELLED:
            raise ConversationError("the run was cancelled")
        case RunEnded() if event.status in ERRED:
            raise ConversationError(event.fault.message if event.fault is not None else "the agent failed")
        case _:
            return None


def _note(event: Event) -> Output | None:
    """Return a note with the JSON of an event that the terminal shows in no other form, such as a saved state. Return
    None for other events."""
    noted = isinstance(event, ToolEnded | StepStarted | StepEnded | StateSaved | Custom | Native | LossNoted)
    return ProgressNote(encode_event(event).decode()) if noted else None


def _part(part: Part) -> Output | None:
    match part:
        case TextPart():
            return TextPiece(part.text)
        case DataPart():
            return TextPiece(json.dumps(part.data, ensure_ascii=False))
        case ReasoningPart():
            return ProgressNote(part.text)
        case FilePart():
            return ProgressNote(f"file {part.name or ''}")
        case _:
            return None

"""`babelgate run --as acp`."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast
from uuid import uuid4

import httpx

from adapters.acp.client import Client
from canonical import DataPart, Event, FaultError, FilePart, Invocation, Message, Part, ReasoningPart, TextPart
from canonical.event import (
    ArtifactAdded,
    InterruptAnswered,
    InterruptRaised,
    PartAdded,
    PartDelta,
    RunEnded,
    ToolStarted,
    UpstreamBound,
)
from canonical.message import text_of
from canonical.state import RunStatus
from canonical.value import Json
from gateway.cli.speech import ABSENT, Asked, Failed, Heard, Noted, Said, bearer

__all__ = ("Line",)


class Line:
    def __init__(self, url: str, agent: str, key: str | None) -> None:
        self._client = Client(f"{url}/acp", agent, headers=bearer(key))
        ids = [str(uuid4()) for _ in range(3)]
        self._call = Invocation(agent=agent, thread_id=ids[0], task_id=ids[1], run_id=ids[2])

    async def aclose(self) -> None:
        await self._client.aclose()

    def send(self, text: str) -> AsyncGenerator[Heard]:
        return self._heard(replace(self._call, messages=(Message.of(text, "user"),)))

    def answer(self, answers: Sequence[tuple[Asked, Json]]) -> AsyncGenerator[Heard]:
        given = tuple(InterruptAnswered(interrupt_id=asked.id, value=value) for asked, value in answers)
        return self._heard(replace(self._call, cause="answer", answers=given))

    async def _heard(self, call: Invocation) -> AsyncGenerator[Heard]:
        try:
            async with aclosing(cast("AsyncGenerator[Event]", self._client.run(call))) as events:
                async for event in events:
                    if isinstance(event, UpstreamBound):
                        self._call = replace(self._call, upstream={**self._call.upstream, **event.ids})
                    heard = _heard(event)
                    if heard is not None:
                        yield heard
        except FaultError as error:
            absent = isinstance(error.__cause__, (httpx.ConnectError, httpx.InvalidURL))
            raise Failed(ABSENT if absent else error.fault.message) from error


def _heard(event: Event) -> Heard | None:
    match event:
        case PartDelta():
            return Said(event.text)
        case PartAdded():
            return _part(event.part)
        case ArtifactAdded():
            return Noted(f"file {event.name or event.artifact_id or ''}")
        case ToolStarted():
            return Noted(event.name)
        case InterruptRaised():
            return Asked(event.interrupt_id or "", text_of(event.message.parts), event.answer_schema)
        case RunEnded() if event.status is RunStatus.CANCELLED:
            raise Failed("the run was cancelled")
        case _:
            return None


def _part(part: Part) -> Heard | None:
    match part:
        case TextPart():
            return Said(part.text)
        case DataPart():
            return Said(json.dumps(part.data, ensure_ascii=False))
        case ReasoningPart():
            return Noted(part.text)
        case FilePart():
            return Noted(f"file {part.name or ''}")
        case _:
            return None

"""Output of an agent behind a URL: all of it or a part, or the fault with which it ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

import pytest

from babelgate.canonical import Event, Fault, FaultCode, FaultError, TextPart
from babelgate.canonical.event import PartAdded, PartDelta, UpstreamBound

BOUND: Final = 30.0

T = TypeVar("T")


async def all_of(items: AsyncIterator[T]) -> list[T]:
    async with asyncio.timeout(BOUND):
        return [item async for item in items]


async def raised_fault(events: AsyncIterator[Event]) -> Fault:
    with pytest.raises(FaultError) as caught:
        await all_of(events)
    return caught.value.fault


async def fault_of(events: AsyncIterator[Event]) -> tuple[FaultCode, str]:
    """Return the code and the message of the fault."""
    fault = await raised_fault(events)
    return fault.code, fault.message


def streamed_text(events: Sequence[Event]) -> str:
    """Return the text of the parts of events."""
    text = ""
    for event in events:
        match event:
            case PartDelta(text=more) | PartAdded(part=TextPart(text=more)):
                text += more
            case _:
                pass
    return text


async def until_first_token(events: AsyncIterator[Event]) -> None:
    """Read events up to the first part."""
    async for event in events:
        if isinstance(event, PartAdded):
            return


def bound_ids(events: Sequence[Event]) -> dict[str, str]:
    """Return the ids of the upstream in events."""
    ids: dict[str, str] = {}
    for event in events:
        if isinstance(event, UpstreamBound):
            ids |= event.ids
    return ids

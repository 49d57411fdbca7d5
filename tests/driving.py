"""Output of an agent behind a URL: all of it, or the fault with which it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, TypeVar

import pytest

from babelgate.canonical import Event, Fault, FaultCode, FaultError

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

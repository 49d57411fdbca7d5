"""Helpers that call agents in this process."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from babelgate.canonical import Message
from babelgate.conformance.contract import Dialogue, Transcript
from babelgate.gateway.agents.python.agent import InProcess, wrap

T = TypeVar("T")


def agent(target: object, **options: Any) -> InProcess:
    wrapped = wrap(target, "agent", **options)[1]
    assert isinstance(wrapped, InProcess)
    return wrapped


async def run_agent(target: object, content: str | Message | dict[str, Any] = "hi") -> Transcript:
    return await Dialogue(agent(target)).say(content)


async def within(awaited: Awaitable[T]) -> T:
    """Return the result, or raise TimeoutError after 30 s."""
    return await asyncio.wait_for(awaited, 30)

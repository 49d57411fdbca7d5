"""How the tests of agents in process talk with them."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from babelgate.canonical import Message
from babelgate.conformance.contract import Dialogue, Transcript
from babelgate.gateway.agents.python.agent import InProcess, wrap

T = TypeVar("T")


def agent(target: object, **options: Any) -> InProcess:
    made = wrap(target, "agent", **options)[1]
    assert isinstance(made, InProcess)
    return made


async def tell(target: object, said: str | Message | dict[str, Any] = "hi") -> Transcript:
    return await Dialogue(agent(target)).say(said)


async def within(awaited: Awaitable[T]) -> T:
    """With a bound, for what should happen at once."""
    return await asyncio.wait_for(awaited, 30)

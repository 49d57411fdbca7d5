"""A gateway with the agents that tests of chat completions and responses call."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import (
    AnnotationPart,
    Ask,
    DataPart,
    Invocation,
    Message,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
)
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, RunEnded
from babelgate.gateway import demo
from tests.running import Running, running


class Latch:
    """Event that each test replaces, because each module has its own event loop."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


GATE: Final = Latch()
STARTED: Final = Latch()
ENDED: Final = Latch()


ASKS: Final = frozenset({"ask", "twice", "approve"})
"""Agents that ask questions. Tests declare the tool by which agents ask, unless they say otherwise."""
ASK_TOOL: Final = {"type": "function", "name": "ask_caller"}
"""Tool by which agents ask, as responses declare it."""
CHAT_ASK_TOOL: Final = {"type": "function", "function": {"name": "ask_caller"}}


@pytest.fixture
def closed() -> None:
    for latch in (GATE, STARTED, ENDED):
        latch.clear()


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.wait()
    yield " last"


async def waiting(text: str) -> AsyncGenerator[str]:
    """Wait until the run is cancelled."""
    STARTED.set()
    try:
        yield "first"
        await asyncio.Event().wait()
    finally:
        ENDED.set()


async def failing(text: str) -> str:
    raise RuntimeError("on purpose")


async def history(call: Invocation) -> str:
    return " | ".join(f"{message.role}: {message.text}" for message in (*call.history, *call.messages))


async def saying(call: Invocation) -> str:
    """Return the input text, and ignore the history."""
    return call.text


async def settings(call: Invocation) -> str:
    return json.dumps({"config": call.config, "metadata": call.metadata})


async def rich(text: str) -> AsyncGenerator[Any]:
    """Yield every kind of item."""
    yield Message.of("Half way.", phase="progress")
    yield ReasoningPart(text="Hm. ")
    yield ToolCall("word_count", {"text": text}, output={"words": 2})
    cited = AnnotationPart(url="https://example.com", title="A page", start=0, end=4)
    yield Message(parts=(TextPart(text="Two."), cited, DataPart(data={"a": 1})))


async def cited(text: str) -> AsyncGenerator[Any]:
    yield ReasoningPart(text="Hm. ")
    yield Message(parts=(TextPart(text="One."),))
    page = AnnotationPart(url="https://example.com", title="A page", start=0, end=4)
    yield Message(parts=(TextPart(text="Two."), page))


async def refusing(text: str) -> AsyncGenerator[Any]:
    yield Message(parts=(RefusalPart(text="I will not."),))


async def counted(call: Invocation) -> AsyncGenerator[Any]:
    yield MessageStarted()
    yield PartAdded(part=TextPart(text="cut"))
    yield MessageEnded(finish="length")
    yield RunEnded(usage={"input_tokens": 3, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}})


async def twice(text: str) -> AsyncGenerator[Any, Any]:
    first, second = yield [Ask("First?"), Ask("Second?", schema={"type": "object"}, kind="approval")]
    yield f"{first} and {second}"


async def pays(text: str) -> AsyncGenerator[Any, Any]:
    """Ask a question with data in addition to its text."""
    yield f"{(yield Ask('Pay?', value={'amount': 5}))}"


async def shapes(call: Invocation) -> str:
    """Return the names, types and sizes of the input files."""
    return ", ".join(f"{file.name} {file.media_type} {len(file.inline or b'')}" for file in call.files)


OWN: Final = (
    *(gated, waiting, failing, history, saying, settings),
    *(rich, cited, refusing, counted, twice, pays, shapes),
)
AGENTS: Final[dict[str, Any]] = {
    **{name: getattr(demo, name) for name in demo.__all__},
    **{agent.__name__: agent for agent in OWN},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("openai"), AGENTS) as running_gateway:
        yield running_gateway

"""Agents behind the stored conversations. Together they emit every event that an agent can emit.

Gateways of earlier releases run them (`make.py`), so they use only features that those releases have.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from babelgate.canonical import Artifact, Ask, DataPart, FilePart, Invocation, Message, Step, TextPart, ToolCall
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import AnnotationPart, ReasoningPart, RefusalPart, ToolCallPart, ToolResultPart


async def everything(call: Invocation) -> AsyncGenerator[Any]:
    """Yield values and events of every kind."""
    yield UpstreamBound(protocol="acp", ids={"run": "run of the upstream", "session": "its session"})
    yield LossNoted(feature="citations", how="They were left out.")
    yield Step("read")
    yield Message.of("Reading…", phase="progress")
    yield ToolCall("count", {"text": call.text}, output=len(call.text))
    yield Custom(name="mood", ns=("left", "right"), value={"mood": "good"})
    yield Native(protocol="langgraph", event="events", data={"event": "on_chain_start", "name": "inner"})
    yield Step("write")
    yield ReasoningPart(text="Let me think.")
    yield f"You said {call.text!r}, "
    yield "and sent "
    yield f"{len(call.files)} files."
    yield DataPart(data={"number": 1.5, "none": None, "text": "naïve 漢字 🎈"}, metadata={"shown": "raw"})
    yield FilePart(name="inner.txt", media_type="text/plain", inline=b"inside of a message")
    yield FilePart(name="far.png", media_type="image/png", url="https://example.com/far.png")
    yield AnnotationPart(start=0, end=3, url="https://example.com/", title="Source", description="Where it is from.")
    for event in _raw():
        yield event
    report = (TextPart(text="Two "), TextPart(text="parts."), DataPart(data=[1, 2]))
    yield Artifact(name="report.txt", parts=report)
    yield Artifact(name="data.bin", parts=(FilePart(media_type="application/x-thing", inline=bytes(range(64))),))
    for number, text in enumerate(("one ", "two ", "three")):
        part = TextPart(text=text)
        yield ArtifactAdded(artifact_id="pieces", name="pieces.txt", part=part, append=number > 0, last=number == 2)
    yield RunEnded(output={"said": "all"}, usage={"input_tokens": 3, "output_tokens": 5})


def _raw() -> list[Any]:
    """Return events for which an agent has no shorter form."""
    return [
        MessageStarted(message_id="told", name="inner", node="node", ns=("left",), metadata={"mine": 1}),
        PartAdded(message_id="told", index=0, part=TextPart(text="Piece"), open=True),
        PartDelta(message_id="told", index=0, text=" by piece."),
        PartEnded(message_id="told", index=0),
        PartAdded(
            message_id="told", index=1, part=ToolCallPart(call_id="c1", name="weather", arguments='{"city": "Rome"}')
        ),
        PartAdded(message_id="told", index=2, part=RefusalPart(text="That I will not say.")),
        MessageEnded(message_id="told", finish="tool_calls", usage={"output_tokens": 4}),
        MessageStarted(message_id="result", role="tool", name="weather"),
        PartAdded(message_id="result", part=ToolResultPart(call_id="c1", output={"sky": "clear"})),
        MessageEnded(message_id="result"),
        ToolStarted(call_id="c2", name="lookup", input={"what": "it"}, node="node"),
        ToolEnded(call_id="c2", name="lookup", fault=Fault(code=FaultCode.AGENT_FAILED, message="Not found there.")),
        StepStarted(step_id="s1", name="check", node="check", ns=("left",), input={"what": "it"}),
        StepEnded(step_id="s1", name="check", node="check", ns=("left",), update={"checked": True}),
        StateSaved(values={"topic": "all", "count": 1}, step=1, as_node="node", next=("check",)),
        StateSaved(delta={"count": 2}, step=2, as_node="check"),
    ]


async def asks(text: str) -> AsyncGenerator[Any, Any]:
    """Ask twice, the second time two questions at once."""
    yield f"{text}? "
    name = yield Ask("Your name?", schema={"type": "string", "minLength": 1}, value={"field": "name"})
    yield f"Hello, {name}. "
    both = yield [Ask("May I write?", kind="approval"), Ask("And tell?", kind="approval", value=[1])]
    yield f"I was told {both}."


async def fails(text: str) -> AsyncGenerator[str]:
    """Yield a text, and then raise an error."""
    yield f"{text}, but"
    raise ValueError("It broke.")


async def refuses(text: str) -> str:
    """Reject the task."""
    raise FaultError(FaultCode.AGENT_FAILED, f"{text}: not by me.", rejected=True)


async def waits(text: str) -> AsyncGenerator[str]:
    """Yield a text, and wait to be cancelled."""
    yield text
    await asyncio.Event().wait()


async def remembers(call: Invocation) -> str:
    """Return the text with the number of messages in the history."""
    return f"{call.text}, after {len(call.history)} messages"

"""Public API for authors of agents.

    from collections.abc import AsyncGenerator

    from babelgate import Ask


    async def booking(text: str) -> AsyncGenerator[Ask | str, str]:
        people = yield Ask("For how many?")
        yield f"{text}: a table for {people}."

An agent is a Python callable; docs/agents.md says which, and what it may yield. The names by purpose:

- What a call brings: `Invocation`, with `RunInput`, `CallerTool` and `InterruptAnswered` in it.
- Questions and stages: `Ask`, `UseTool`, `Declined`, `Step`, `ToolCall`.
- Messages and files: `Message`, `Artifact`, and the parts `TextPart`, `DataPart`, `FilePart`, `ReasoningPart`,
  `RefusalPart`, `AnnotationPart`, `ToolCallPart`, `ToolResultPart`; `Part` is their union.
- Failures: `FaultError`, with a `Fault` and its `FaultCode`.
- Events, for agents that yield them: `Event` is the union; an agent yields the members that are listed here.
- The port of such an agent: `Agent`, `Reattachable`, and `AgentInfo` with `Skill`, which describe it.

`babelgate.testing` has what tests of agents need. The other packages are the product itself: `babelgate.canonical` (the
model), `babelgate.adapters` (the protocols), `babelgate.gateway` and `babelgate.conformance`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babelgate.canonical import (
        Agent,
        AgentInfo,
        AnnotationPart,
        Artifact,
        ArtifactAdded,
        Ask,
        CallerTool,
        Custom,
        DataPart,
        Declined,
        Event,
        Fault,
        FaultCode,
        FaultError,
        FilePart,
        InterruptAnswered,
        InterruptRaised,
        Invocation,
        LossNoted,
        Message,
        MessageEnded,
        MessageStarted,
        Native,
        Part,
        PartAdded,
        PartDelta,
        PartEnded,
        ReasoningPart,
        Reattachable,
        RefusalPart,
        RunEnded,
        RunInput,
        RunReason,
        RunStarted,
        RunStatus,
        Skill,
        StateSaved,
        Step,
        StepEnded,
        StepStarted,
        TextPart,
        ToolCall,
        ToolCallPart,
        ToolEnded,
        ToolResultPart,
        ToolStarted,
        UpstreamBound,
        UseTool,
    )

__all__ = (
    "Agent",
    "AgentInfo",
    "AnnotationPart",
    "Artifact",
    "ArtifactAdded",
    "Ask",
    "CallerTool",
    "Custom",
    "DataPart",
    "Declined",
    "Event",
    "Fault",
    "FaultCode",
    "FaultError",
    "FilePart",
    "InterruptAnswered",
    "InterruptRaised",
    "Invocation",
    "LossNoted",
    "Message",
    "MessageEnded",
    "MessageStarted",
    "Native",
    "Part",
    "PartAdded",
    "PartDelta",
    "PartEnded",
    "ReasoningPart",
    "Reattachable",
    "RefusalPart",
    "RunEnded",
    "RunInput",
    "RunReason",
    "RunStarted",
    "RunStatus",
    "Skill",
    "StateSaved",
    "Step",
    "StepEnded",
    "StepStarted",
    "TextPart",
    "ToolCall",
    "ToolCallPart",
    "ToolEnded",
    "ToolResultPart",
    "ToolStarted",
    "UpstreamBound",
    "UseTool",
)


def __getattr__(name: str) -> Any:
    """Return a public name, which is imported with the model on first use.

    pytest loads the plug-in of this distribution at each of its starts, and `babelgate --help` is asked often. Neither
    needs the model, whose import takes 80 ms (measured, 2026-11).
    """
    if name in __all__:
        return getattr(import_module("babelgate.canonical"), name)
    raise AttributeError(f"module 'babelgate' has no attribute {name!r}")

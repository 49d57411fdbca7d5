"""What of an input ACP cannot carry."""

from collections.abc import Container, Iterator
from typing import Final

from babelgate.adapters.acp.carries import CARRIES
from babelgate.adapters.acp.codec.parts import extra_of
from babelgate.canonical import Feature, Invocation, Part, RefusalPart, ToolCallPart, ToolResultPart, declared_tools
from babelgate.canonical.event import LossNoted

_DECLINED: Final = "a refusal to answer has no form, and is told as an answer"


def losses(call: Invocation, told: Container[str] = ()) -> list[LossNoted]:
    """Each once, in an order that follows from the input; `told` = the members of what is said by the extension."""
    features = dict.fromkeys(_features(call, told))
    noted = [LossNoted(feature=feature, how=CARRIES[feature].how) for feature in features]
    if any(answer.action == "decline" for answer in call.answers) and "answers" not in told:
        noted.append(LossNoted(feature=Feature.QUESTION, how=_DECLINED))
    return noted


def _features(call: Invocation, told: Container[str]) -> Iterator[Feature]:
    # Of an ACP caller it goes on as it came, among the members that ACP does not know.
    given = extra_of(call.input.extra).get("metadata")
    if call.metadata and not call.answers and given != call.metadata and "metadata" not in told:
        yield Feature.METADATA
    if declared_tools(call.config) and not call.answers and "tools" not in told:
        yield Feature.CALLER_TOOLS
    for message in () if "messages" in told else call.messages:
        if message.metadata:
            yield Feature.METADATA
        for part in message.parts:
            yield from _features_of(part)


def _features_of(part: Part) -> Iterator[Feature]:
    if part.metadata:
        yield Feature.METADATA
    match part:
        case RefusalPart():
            yield Feature.REFUSAL
        case ToolCallPart(side="caller"):
            yield Feature.CALLER_TOOLS
        case ToolCallPart() | ToolResultPart():
            yield Feature.TOOL_ACTIVITY
        case _:
            pass

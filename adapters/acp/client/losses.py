"""Features of an input that ACP cannot carry."""

from collections.abc import Container, Iterator
from typing import Final

from babelgate.adapters.acp.carries import CARRIES
from babelgate.adapters.acp.codec.parts import extra_of
from babelgate.canonical import Feature, Invocation, Part, RefusalPart, ToolCallPart, ToolResultPart, declared_tools
from babelgate.canonical.event import LossNoted

_DECLINED: Final = "a refusal to answer is sent as an answer"


def losses(call: Invocation, sent: Container[str] = ()) -> list[LossNoted]:
    """Return the losses of a call's input, each once, in the order of the input. `sent` are the names of the members by
    which the Babelgate extension carries content that would be lost otherwise."""
    features = dict.fromkeys(_features(call, sent))
    losses_noted = [LossNoted(feature=feature, how=CARRIES[feature].how) for feature in features]
    if any(answer.action == "decline" for answer in call.answers) and "answers" not in sent:
        losses_noted.append(LossNoted(feature=Feature.QUESTION, how=_DECLINED))
    return losses_noted


def _features(call: Invocation, sent: Container[str]) -> Iterator[Feature]:
    """Yield the features of a call's input that ACP cannot carry. A feature may occur several times."""
    # The metadata of an ACP caller is passed through, among the members that ACP does not define.
    caller_metadata = extra_of(call.input.extra).get("metadata")
    if call.metadata and not call.answers and caller_metadata != call.metadata and "metadata" not in sent:
        yield Feature.METADATA
    if declared_tools(call.config) and not call.answers and "tools" not in sent:
        yield Feature.CALLER_TOOLS
    for message in () if "messages" in sent else call.messages:
        if message.metadata:
            yield Feature.METADATA
        for part in message.parts:
            yield from _features_of(part)


def _features_of(part: Part) -> Iterator[Feature]:
    """Yield the features of one part that ACP cannot carry."""
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

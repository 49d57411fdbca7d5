"""Dialect of A2A in the a2a-server of gemini-cli 0.25.2: thoughts, tool calls, citations, and confirmations of tool
calls."""

from collections.abc import Iterator
from typing import Final

from babelgate.adapters.a2a.frameworks.framework import (
    CONFIRMED,
    DecodedContent,
    Framework,
    FrameworkQuestion,
    ToolUse,
    as_words,
    describe_call,
    read_error,
    text_parts,
)
from babelgate.adapters.kit.client.consent import is_yes
from babelgate.canonical import AnnotationPart, DataPart, ReasoningPart, TextPart
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

_KEY: Final = "coderAgent"
"""Key in the metadata of an update for an object that names the kind of the update's content, such as `thought`."""


def _read_kind(content: DecodedContent, value: Json, _: JsonObject) -> None:
    match as_object(value).get("kind"):
        case "thought":
            data = [as_object(part.data) for part in content.parts if isinstance(part, DataPart)]
            thoughts = [
                ": ".join(filter(None, (as_text(thought.get("subject")), as_text(thought.get("description")))))
                for thought in data
            ]
            content.parts = [ReasoningPart(text=text) for text in thoughts if text]
        case "text-content":
            content.says = "answer"
        case "tool-call-update":
            for call in content.take_data():
                _read_call(content, call)
        case "citation":
            texts = [part.text for part in content.parts if isinstance(part, TextPart)]
            citations = [citation for text in texts for citation in _citations(text)]
            content.says = "progress"
            if citations:
                content.citations += citations
                content.parts = [part for part in content.parts if not isinstance(part, TextPart)]
        case str():  # changes of its state, among others
            content.says = "progress"
        case _:
            pass


def _citations(text: str) -> Iterator[AnnotationPart]:
    """Yield the citations in a text. Each is one line with a URL, after `(title)` if it has one; other lines are
    skipped."""
    for line in text.splitlines():
        title, _, url = line.strip().rpartition(" ")
        if "://" in url:
            yield AnnotationPart(url=url, title=title.removeprefix("(").removesuffix(")") or None)


def _read_call(content: DecodedContent, call: JsonObject) -> None:
    request, status = as_object(call.get("request")), call.get("status")
    call_id, name = as_text(request.get("callId")), as_text(request.get("name"))
    if not call_id or not name:
        return
    content.tools.append(ToolUse(call_id, name, value=request.get("args")))
    if status in ("success", "error", "cancelled"):
        error = None if status == "success" else as_words(call.get("response") or status)
        content.tools.append(ToolUse(call_id, name, ended=True, value=call.get("response"), error=error))


def _read_confirmation(part: DataPart) -> list[FrameworkQuestion]:
    """Return a list with one question if a data part is a tool call that waits for a confirmation. Return an empty list
    for any other part."""
    data = as_object(part.data)
    call, details = as_object(data.get("request")), data.get("confirmationDetails")
    call_id, name = as_text(call.get("callId")), as_text(call.get("name"))
    if not call_id or not isinstance(details, dict) or data.get("status") != "awaiting_approval":
        return []
    words = describe_call(name, as_object(call.get("args")))
    return [
        FrameworkQuestion(text_parts(words), call_id, data, CONFIRMED, "approval", {"as": "outcome", "id": call_id})
    ]


def _write_outcome(form: JsonObject, value: Json) -> DataPart:
    outcome = value.get("outcome") if isinstance(value, dict) else None
    return DataPart(data={"callId": form["id"], "outcome": outcome or ("proceed_once" if is_yes(value) else "cancel")})


GEMINI_CLI: Final = Framework(
    metadata={_KEY: _read_kind},
    read_question=_read_confirmation,
    answers={"outcome": _write_outcome},
    is_answer=lambda part: "outcome" in as_object(part.data),
    errors={_KEY: read_error},
    task_usage=((_KEY, "usageMetadata"),),
)

"""Dialect of A2A in opencode-a2a 1.4.0 and codex-a2a 1.4.0: thoughts, tool calls, progress, usage and questions in
metadata."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import (
    DecodedContent,
    Framework,
    FrameworkQuestion,
    ToolUse,
    as_words,
    enum_schema,
    read_error,
    text_parts,
)
from babelgate.canonical import TextPart
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

SHARED: Final = "shared"
"""Key of metadata for the stream, the progress, the usage and the questions of the agent. An update that contains a
question may have no message."""
_REASONING: Final = ":reasoning"
"""Suffix of the id of an artifact whose text is a thought, also if its metadata do not mark it as one."""
_ANSWERS_IN_ORDER: Final[JsonObject] = {
    "type": "object",
    "properties": {"answers": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
    "required": ["answers"],
}
"""JSON Schema of the answer to several questions at once: for each question in order, a list of the chosen options."""


def _read_shared(content: DecodedContent, value: Json, _: JsonObject) -> None:
    shared = as_object(value)
    kind = as_object(shared.get("stream")).get("block_type")
    progress = shared.get("progress")
    if isinstance(progress, str):
        line = [progress]
    else:
        line = [as_text(as_object(progress).get(key)) for key in ("type", "status")]
    if any(line):
        content.progress.append(TextPart(text=": ".join(filter(None, line))))
    if kind == "reasoning":
        content.is_all_thought = True
    elif kind == "tool_call":
        for call in content.take_data():
            _read_call(content, call)


def _read_call(content: DecodedContent, call: JsonObject) -> None:
    call_id, name, status = as_text(call.get("call_id")), as_text(call.get("tool")), call.get("status")
    if not call_id or not name:
        return
    content.tools.append(ToolUse(call_id, name, value=call.get("input")))
    if status in ("completed", "error"):
        error = as_words(call.get("error") or status) if status == "error" else None
        content.tools.append(ToolUse(call_id, name, ended=True, value=call.get("output"), error=error))


def _read_artifact(content: DecodedContent, artifact_id: str, _: str | None) -> None:
    if artifact_id.endswith(_REASONING):
        content.is_all_thought = True


def _read_interrupt(_: str, shared: JsonObject) -> list[FrameworkQuestion]:
    """Return the request for a permission, or the questions, in the value of `SHARED`, as one question. Return an empty
    list if there is none, or if it was resolved.

    A message cannot answer it: the server accepts answers only by its own methods, `a2a.interrupt.permission.reply` and
    `a2a.interrupt.question.reply`. The schemas are those of these methods.
    """
    interrupt = as_object(shared.get("interrupt"))
    request_id, details = as_text(interrupt.get("request_id")), as_object(interrupt.get("details"))
    # A resolved interrupt stays in the metadata of its task.
    if not request_id or interrupt.get("phase") == "resolved":
        return []
    if interrupt.get("type") == "permission":
        patterns = [pattern for pattern in as_list(details.get("patterns")) if isinstance(pattern, str)]
        words = ": ".join(filter(None, (as_text(details.get("permission")), ", ".join(patterns))))
        schema = enum_schema("reply", "once", "always", "reject")
        parts = text_parts(words or "The agent asks for a permission.")
        return [FrameworkQuestion(parts, request_id, interrupt, schema, "approval")]
    questions = objects_in(details.get("questions"))
    words = "\n".join(filter(None, map(_with_options, questions))) or "The agent asks."
    return [FrameworkQuestion(text_parts(words), request_id, interrupt, _ANSWERS_IN_ORDER if questions else None)]


def _with_options(question: JsonObject) -> str:
    """Return the text of a question, with the labels of its options in parentheses."""
    labels = [
        as_text(option.get("label")) or as_text(option.get("value")) for option in objects_in(question.get("options"))
    ]
    options = ", ".join(filter(None, labels))
    words = as_text(question.get("question")) or as_text(question.get("header"))
    return f"{words} ({options})" if options else words


OPENCODE: Final = Framework(
    metadata={SHARED: _read_shared},
    read_artifact=_read_artifact,
    question_endings={SHARED: _read_interrupt},
    errors={SHARED: read_error},
)

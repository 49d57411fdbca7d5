"""Dialect of google-adk 2.13.0. It encodes parts of the Google GenAI SDK in data parts, which the dialect of kagent
shares."""

from typing import Final, cast

from babelgate.adapters.a2a.frameworks.framework import (
    CONFIRMED,
    DecodedContent,
    Framework,
    FrameworkQuestion,
    ToolUse,
    as_count,
    cite,
    describe_call,
    error_in_result,
    text_parts,
)
from babelgate.adapters.kit.client.consent import is_yes
from babelgate.canonical import AnnotationPart, DataPart, TextPart
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

PART_TYPE: Final = "adk_type"
"""Key of a part's metadata for the type of the GenAI part that it represents, such as `function_call`."""
THOUGHT: Final = "adk_thought"
CITATIONS: Final = "adk_citation_metadata"
GROUNDING: Final = "adk_grounding_metadata"
USAGE: Final = "adk_usage_metadata"

_CALLS: Final = frozenset({"function_call", "tool_call", "executable_code"})
_RESULTS: Final = frozenset({"function_response", "tool_response", "code_execution_result"})
"""Types of GenAI parts that contain the result of a call. `_CALLS` has the types of the calls themselves. Both have one
type for tools that the agent executes, one for tools that the model's host executes, and one for code."""
_CODE: Final = "code_execution"


# Content


def read_genai_part(mark: str, part: DataPart, content: DecodedContent, scope: str) -> list[ToolUse]:
    """Return the start or end of a tool call that a GenAI part represents. Return an empty list for a part of another
    type.

    `mark` is the type of the part, such as `function_call`. `scope` is the id of the message or artifact: code
    executions, which have no ids, are numbered within it.
    """
    data = as_object(part.data)
    call_id, name = as_text(data.get("id")), as_text(data.get("name")) or as_text(data.get("tool_type"))
    if mark in ("executable_code", "code_execution_result"):
        number = sum(use.name == _CODE and use.ended == (mark not in _CALLS) for use in content.tools)
        call_id, name = call_id or f"{scope}/{number}", _CODE
    if not name:
        return []
    if mark in _CALLS:
        arguments = data if name == _CODE else _unwrap(data.get("args"), part.metadata)
        return [ToolUse(call_id or None, name, value=cast("Json", arguments))]
    if mark in _RESULTS:
        result = data if name == _CODE else data.get("response")
        outcome = as_text(data.get("outcome"))
        error = error_in_result(result) if name != _CODE else (outcome if outcome not in ("", "OUTCOME_OK") else None)
        return [
            ToolUse(call_id or None, name, ended=True, value=_unwrap(cast("Json", result), part.metadata), error=error)
        ]
    return []


def _unwrap(value: Json, metadata: JsonObject) -> Json:
    """Return the original arguments or result of a tool call. Another gateway has put a value that is no object into an
    object, because GenAI requires one, and has named the member with the value in the metadata."""
    name = as_text(as_object(metadata.get("babelgate")).get("value"))
    return value.get(name) if name and isinstance(value, dict) else value


def _read_citations(content: DecodedContent, value: Json, metadata: JsonObject) -> None:
    # The grounding, if there is one, repeats the citations with places in bytes.
    if not as_object(metadata.get(GROUNDING)).get("groundingSupports"):
        for citation in objects_in(as_object(value).get("citations")):
            cite(content, citation, "startIndex", "endIndex", "uri")


def _read_grounding(content: DecodedContent, value: Json, _: JsonObject) -> None:
    """Add the citations in the metadata of a GenAI grounding. Their positions are counted in UTF-8 bytes within one
    part, and are converted to characters of the whole text."""
    grounding = as_object(value)
    chunks = [as_object(chunk.get("web")) for chunk in objects_in(grounding.get("groundingChunks"))]
    texts = [part.text for part in content.parts if isinstance(part, TextPart)]
    for support in objects_in(grounding.get("groundingSupports")):
        segment = as_object(support.get("segment"))
        index = as_count(segment.get("partIndex")) or 0
        if index >= len(texts):
            continue
        before, text = sum(map(len, texts[:index])), texts[index].encode()
        places = (as_count(segment.get("startIndex")) or 0, as_count(segment.get("endIndex")) or 0)
        start, end = (before + len(text[:place].decode(errors="ignore")) for place in places)
        for number in map(as_count, support.get("groundingChunkIndices") or ()):
            if number is not None and number < len(chunks):
                web = chunks[number]
                url, title = as_text(web.get("uri")) or None, as_text(web.get("title")) or None
                content.citations.append(AnnotationPart(start=start, end=end, url=url, title=title))


def _read_actions(content: DecodedContent, value: Json, _: JsonObject) -> None:
    if delta := as_object(value).get("stateDelta"):
        content.states.append(("adk_actions.stateDelta", delta))


def _read_author(metadata: JsonObject) -> tuple[str, str] | None:
    """Return the name of the agent that wrote an update, and its branch, from the update's metadata. The name is empty
    for the called agent. Return None if the metadata name no agent. Agents of different branches run in parallel."""
    author = as_text(metadata.get("adk_author"))
    if author in ("", "user"):
        return None
    return "" if author == metadata.get("adk_app_name") else author, as_text(metadata.get("adk_branch"))


def _read_error_code(value: Json, _: JsonObject) -> tuple[str, JsonObject]:
    return "", {"error_code": value} if isinstance(value, str) else {}


# Questions


def is_waiting(part: DataPart) -> bool:
    """Return True if a part is a tool call that waits for the caller, which ADK calls long-running."""
    return part.metadata.get("adk_is_long_running") is True


def read_waiting_call(part: DataPart, mark: str) -> list[FrameworkQuestion]:
    """Return the question that a tool call asks if it waits for a response of the caller. Return an empty list for any
    other part.

    `mark` is the key of the part's metadata that names its type: the response needs the same key.
    """
    data = as_object(part.data)
    if part.metadata.get(mark) != "function_call" or not is_waiting(part):
        return []
    call_id, name, args = as_text(data.get("id")), as_text(data.get("name")), as_object(data.get("args"))
    if not call_id or not name:
        return []
    form: JsonObject = {"as": "function_response", "mark": mark, "id": call_id, "name": name}
    match name:
        case "adk_request_confirmation":
            hint = as_text(as_object(args.get("toolConfirmation")).get("hint"))
            # The hint does not contain the arguments of the confirmed tool.
            call = as_object(args.get("originalFunctionCall"))
            words = "\n".join(filter(None, (hint, describe_call(call.get("name"), call.get("args"))))) or name
            return [FrameworkQuestion(text_parts(words), call_id, args, CONFIRMED, "approval", form)]
        case "adk_request_input":
            schema = as_object(args.get("response_schema")) or None
            words = as_text(args.get("message")) or name
            return [FrameworkQuestion(text_parts(words), call_id, args.get("payload"), schema, form=form)]
        case "adk_request_credential":
            return [FrameworkQuestion(text_parts("The agent asks for credentials."), call_id, args, None, "auth", form)]
        case _:
            words = describe_call(name, args)
            return [FrameworkQuestion(text_parts(words), call_id, {"name": name, "args": args}, form=form)]


def _write_function_response(form: JsonObject, value: Json) -> DataPart:
    name = form["name"]
    if name == "adk_request_confirmation":
        response: JsonObject = {"confirmed": is_yes(value)}
        if isinstance(value, dict) and "payload" in value:
            response["payload"] = value["payload"]
    else:
        # The response must be an object. ADK unwraps one whose only member is `result` (`_unwrap_response`).
        response = value if isinstance(value, dict) else {"result": value}
    data: JsonObject = {"id": form["id"], "name": name, "response": response}
    return DataPart(data=data, metadata={form["mark"]: "function_response"})


GOOGLE_ADK: Final = Framework(
    thoughts={THOUGHT: (True,)},
    genai_marks=(PART_TYPE,),
    # CITATIONS: the newer executor of ADK.
    metadata={"adk_actions": _read_actions, CITATIONS: _read_citations, GROUNDING: _read_grounding},
    read_author=_read_author,
    is_waiting=is_waiting,
    read_question=lambda part: read_waiting_call(part, PART_TYPE),
    answers={"function_response": _write_function_response},
    errors={"adk_error_code": _read_error_code},
    message_usage=(USAGE,),
    event_id="adk_event_id",
)

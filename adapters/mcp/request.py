"""Invocation → the arguments of a tool on another server."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from babelgate.adapters.kit.json import parse_text
from babelgate.adapters.mcp.codec.arguments import THREAD
from babelgate.canonical import DataPart, Event, FaultCode, FaultError, Feature, FilePart, Invocation
from babelgate.canonical.event import LossNoted
from babelgate.canonical.json import as_list, as_object, as_text
from babelgate.canonical.value import JsonObject

_NO_FILES = LossNoted(feature=Feature.FILE_BYTES, how="the tool has no argument for files")
_NO_DATA = LossNoted(feature=Feature.DATA, how="the tool has no argument for data")


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """Arguments of a call, and the losses of the input that has no place in them."""

    arguments: JsonObject
    losses: Sequence[Event]


def has_message_argument(schema: JsonObject) -> bool:
    """Return True if a tool has the argument `message` for a text, as the tools of a Babelgate and of LangGraph's
    server have."""
    properties = as_object(schema.get("properties"))
    return as_object(properties.get("message")).get("type") == "string"


def encode_arguments(call: Invocation, schema: JsonObject) -> ToolArguments:
    """Return the arguments of a tool with this input schema. The input is the first of these that the call has:

    - for a tool with the argument `message`: the text, with the data and files if it has arguments for them
    - the input as data, or a data part, if it is an object: its members are the arguments
    - the text, if it is a JSON object, or the tool has exactly one argument that can be a text

    Raises invalid if none of them fits.
    """
    properties = as_object(schema.get("properties"))
    data = call.data if call.data not in (None, {}, []) else None
    parts = [part.data for message in call.messages for part in message.parts if isinstance(part, DataPart)]
    losses: list[Event] = []
    if has_message_argument(schema):
        text = call.text if data is None or call.messages else ""
        arguments: JsonObject = {"message": _transcript(call) + text}
        value = data if data is not None else parts[-1] if parts else None
        if value is not None and "data" in properties:
            arguments["data"] = value
        elif value is not None:
            arguments["message"] = _transcript(call) + call.text
    elif isinstance(data, dict):
        arguments = dict(data)
    elif parts and isinstance(parts[-1], dict):
        arguments = dict(as_object(parts[-1]))
    else:
        arguments = _from_text(call.text, schema)
    if call.files and "files" in properties:
        arguments["files"] = [_encode_file(part) for part in call.files]
    elif call.files:
        losses.append(_NO_FILES)
    if len(parts) > 1 and "data" in properties:
        losses.append(_NO_DATA)
    if THREAD in properties:
        arguments.setdefault(THREAD, thread_of(call))
    return ToolArguments(arguments, losses)


def thread_of(call: Invocation) -> str:
    """Return the name of the conversation on the server. It is that of earlier runs if they bound one. Otherwise it is
    new: the run's id if the thread has a history, else the thread's id."""
    return call.upstream.get("context") or (call.run_id if call.history else call.thread_id)


def _transcript(call: Invocation) -> str:
    """Return the history of the conversation, to be sent before the text. Empty if the server has the conversation."""
    lines = [f"{message.role}: {message.text}" for message in call.history if message.text]
    if not lines or call.upstream.get("context"):
        return ""
    return "\n".join(["Said before in this conversation:", *lines, "", "Said now:", ""])


def _from_text(text: str, schema: JsonObject) -> JsonObject:
    properties = {name: each for name, each in as_object(schema.get("properties")).items() if name != THREAD}
    if text.lstrip().startswith("{"):
        parsed = parse_text(text)
        if isinstance(parsed, dict) and (not properties or parsed.keys() <= properties.keys()):
            return parsed
    texts = [name for name, each in properties.items() if as_object(each).get("type", "string") == "string"]
    required = [name for name in map(as_text, as_list(schema.get("required"))) if name in properties]
    names = [name for name in required if name in texts] if required else texts
    if len(names) == 1 and len(required) <= 1:
        return {names[0]: text}
    if not properties:
        return {}
    raise FaultError(
        FaultCode.INVALID, f"The agent needs an object with the members {', '.join(sorted(properties))[:500]}."
    )


def _encode_file(part: FilePart) -> JsonObject:
    file: JsonObject = {} if part.name is None else {"name": part.name}
    if part.media_type is not None:
        file["mime_type"] = part.media_type
    if part.url is not None:
        return {**file, "uri": part.url}
    return {**file, "data": b64encode(part.inline or b"").decode()}

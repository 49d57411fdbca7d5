"""Decoding of a tool call's arguments as the input of an agent's run."""

from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Mapping

from babelgate.adapters.kit.json import validate
from babelgate.adapters.mcp import wire as w
from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Message, Part, RunInput, TextPart
from babelgate.canonical.value import JsonObject

THREAD = "thread_id"
"""Argument with which a caller names the thread: a UUID, or a name that the caller chose."""


def decode_arguments(arguments: JsonObject) -> RunInput:
    """Return the run input for arguments in the gateway's schema: message, data and files. Raises invalid for arguments
    that violate the schema, and for empty ones."""
    decoded = validate(w.Arguments, arguments)
    parts: list[Part] = [TextPart(text=decoded.message)] if decoded.message else []
    if decoded.data is not None:
        parts.append(DataPart(data=decoded.data))
    parts += [_decode_file(file, f"files.{number}") for number, file in enumerate(decoded.files)]
    if not parts:
        raise FaultError(FaultCode.INVALID, "message: It must not be empty unless data or files are given.")
    return RunInput(messages=(Message(role="user", parts=tuple(parts)),))


def decode_data(arguments: JsonObject) -> RunInput:
    """Return the run input for arguments in the agent's own schema, without `thread_id`. The caller has validated
    them."""
    return RunInput(data={name: value for name, value in arguments.items() if name != THREAD})


def thread_of(arguments: Mapping[str, object]) -> str | None:
    """Return the argument `thread_id`, or None if the caller names no thread. Raises invalid if it is not a string of 1
    to 256 characters."""
    thread = arguments.get(THREAD)
    if thread is None:
        return None
    if not isinstance(thread, str) or not 0 < len(thread) <= 256:
        raise FaultError(FaultCode.INVALID, f"{THREAD}: It must be a string of 1 to 256 characters.")
    return thread


def _decode_file(file: w.File, where: str) -> FilePart:
    """Return a file of the arguments as a file part. `where` names it in errors. Raises invalid for data that is not
    base64, and for a file with both data and a URI, or neither."""
    media_type = file.mime_type or "application/octet-stream"
    if (file.data is None) == (file.uri is None):
        raise FaultError(FaultCode.INVALID, f"{where}: It must have either data or uri.")
    if file.data is None:
        return FilePart(name=file.name, media_type=media_type, url=file.uri)
    try:
        raw = b64decode(file.data, validate=True)
    except (BinasciiError, ValueError) as error:
        raise FaultError(FaultCode.INVALID, f"{where}.data: It must be base64.") from error
    return FilePart(name=file.name, media_type=media_type, inline=raw, size=len(raw))

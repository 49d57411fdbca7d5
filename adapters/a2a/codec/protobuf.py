"""Link between the JSON of A2A 1.0 and its protocol buffer messages: ProtoJSON, in both directions.

gRPC has no other codec. A request becomes the JSON that a caller of JSON-RPC would send, and a response is
converted from the JSON that this caller would receive.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final

from google.protobuf.json_format import Error as ProtoJsonError
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError, EncodeError, Message

from babelgate.adapters.a2a.codec.protojson import ProtoJson
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.a2a.wire.protobuf import POOL, Status
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject

_JSON: Final = ProtoJson(POOL)
_FEW: Final = 64 * 1024
"""Maximum size of a message whose fields are not counted, in bytes. Chosen: it has at most 32,768 fields."""
MOST_FIELDS: Final = 2_000_000
"""Maximum number of fields in a response. Chosen: a JSON value takes up to four fields, and a response may have 500,000
values."""
MOST_REQUEST_FIELDS: Final = 400_000
"""Maximum number of fields in a request. Chosen: a JSON value takes up to four fields, and a request may have 100,000
values by default."""
_STATUS_SIZE: Final = 4096
"""Maximum size of the details of an error, in bytes. Chosen: clients accept 8 KiB of metadata with a response."""
_MESSAGE_LENGTH: Final = 1024
"""Maximum length of an error's text, in characters. Chosen, for the same reason."""


def to_message(value: JsonObject, message: Message) -> Message:
    """Fill a message from its JSON, and return it. Members that the protocol buffer does not define are left out.

    Raises unsupported for content that a protocol buffer cannot hold: an integer that is not exact as a double, or a
    text with half of a surrogate pair.
    """
    try:
        _JSON.write(value, message)
    except (ParseError, TypeError, ValueError, RecursionError) as error:
        raise a2a_error(
            "UNSUPPORTED_OPERATION",
            f"A message of gRPC cannot hold this content; use JSON-RPC or REST: {str(error)[:200]}",
        ) from error
    return message


def to_bytes(value: JsonObject, message: Message) -> bytes:
    """Return a message from its JSON as bytes. Raises unsupported, as `to_message` does."""
    return serialize(to_message(value, message))


def serialize(message: Message) -> bytes:
    """Return a message as bytes. Raises unsupported for one that is nested too deeply."""
    try:
        # In one order: streams of one task then have the same bytes, which clients compare.
        return message.SerializeToString(deterministic=True)
    except EncodeError as error:
        raise a2a_error(
            "UNSUPPORTED_OPERATION", "A message of gRPC cannot hold this content; use JSON-RPC or REST."
        ) from error


def from_bytes(content: bytes, message: Message, most: int = MOST_FIELDS) -> JsonObject:
    """Return the JSON of a message. Raises invalid for bytes that are no such message, and too_large if it has more
    than `most` fields."""
    if len(content) > _FEW:
        check_fields(content, message.DESCRIPTOR, most)
    try:
        message.ParseFromString(content)
        return from_message(message)
    except (DecodeError, UnicodeError, ValueError, RecursionError) as error:
        raise FaultError(
            FaultCode.INVALID, f"The message is not a valid {message.DESCRIPTOR.full_name} of lf.a2a.v1."
        ) from error


def check_fields(content: bytes, descriptor: Any, most: int) -> None:
    """Check the number of fields in a message before it is parsed: one of 2 bytes takes 50 bytes of memory. Raises
    too_large if there are more than `most`. Bytes that are no message are left to the parser.

    The wire format is that of https://protobuf.dev/programming-guides/encoding/.
    """
    count = 0
    left = [(0, len(content), descriptor)]
    try:
        while left:
            at, end, kind = left.pop()
            inner = _message_fields(kind)
            while at < end:
                tag, at = _read_varint(content, at)
                count += 1
                if count > most:
                    raise FaultError(FaultCode.TOO_LARGE, f"The message has more than {most} fields.")
                match tag & 7:
                    case 0:
                        _, at = _read_varint(content, at)
                    case 2:
                        length, at = _read_varint(content, at)
                        if (field := inner.get(tag >> 3)) is not None and length:
                            left.append((at, at + length, field))
                        at += length
                    case 1 | 5 as wire_type:
                        at += 8 if wire_type == 1 else 4
                    case _:  # groups, which proto3 does not have
                        return
    except IndexError:
        return


@cache
def _message_fields(descriptor: Any) -> Mapping[int, Any]:
    """Return the descriptors of the fields that are messages, by the number of the field."""
    return {each.number: each.message_type for each in descriptor.fields if each.message_type is not None}


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it. Raises IndexError at the end of the bytes, and for
    more than ten bytes."""
    value = shift = 0
    while (byte := content[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise IndexError
    return value | byte << shift, at + 1


def from_message(message: Message) -> JsonObject:
    return _JSON.read(message)


def encode_status(code: int, text: str, details: Sequence[JsonObject]) -> bytes:
    """Return a `google.rpc.Status` as bytes, for the metadata `grpc-status-details-bin`. `details` are in ProtoJSON.

    If it is larger than `_STATUS_SIZE`, the last entries of `fieldViolations` are left out, because clients would
    refuse the whole response.
    """
    details = [deepcopy(each) for each in details]
    while True:
        value = {"code": code, "message": text[:_MESSAGE_LENGTH], "details": details}
        content = to_bytes(value, Status())
        listed: list[list[Any]] = [each["fieldViolations"] for each in details if "fieldViolations" in each]
        violations = listed[0] if listed else []
        if len(content) <= _STATUS_SIZE or not violations:
            return content
        del violations[len(violations) // 2 :]


def decode_status(content: bytes) -> Sequence[JsonObject]:
    """Return the details of a `google.rpc.Status` in ProtoJSON. Return none for bytes that are no such message, and
    for details of unknown types."""
    status: Any = Status()
    try:
        status.ParseFromString(content)
    except DecodeError:
        return ()
    details: list[JsonObject] = []
    for each in status.details:
        try:
            details.append(from_message(each))
        except (TypeError, ValueError, KeyError, DecodeError, ProtoJsonError):
            continue
    return details

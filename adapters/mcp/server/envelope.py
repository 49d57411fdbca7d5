"""Envelope of a request of 2026-07-28: its version and capabilities in `_meta`, and the headers that repeat parts of
its body (NEXT/basic/transports)."""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    HEADER_MISMATCH,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from babelgate.adapters.mcp.errors import INVALID_PARAMS
from babelgate.adapters.mcp.server.exchange import MethodError
from babelgate.canonical.value import JsonObject

VERSION_HEADER: Final = "mcp-protocol-version"
_PARAM_HEADER: Final = "Mcp-Param-"
"""Prefix of the headers that repeat arguments of a tool call (NEXT/basic/transports, Custom Headers)."""
_ANNOTATION: Final = "x-mcp-header"
"""Keyword of JSON Schema with the rest of the name of the header that repeats a property."""
_NAME_MEMBERS: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Parameter that the header `Mcp-Name` repeats, by method."""
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""Pattern of a header's name (RFC 9110, section 5.6.2)."""
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")
"""Pattern of a header's value that is not printable ASCII, in base64."""
_TYPES: Final = frozenset({"string", "integer", "boolean"})
"""Types of the properties that a header may repeat."""
_ONE: Final = frozenset(
    {
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    }
)
"""Keywords of JSON Schema 2020-12 whose value is a schema."""
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value has a schema for each name. `properties` is not one of them: only it can have annotations."""


def check_version(version: object) -> None:
    """Raise MethodError for a version that the gateway does not serve."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        data: JsonObject = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": version}
        raise MethodError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


def check_envelope(method: str, params: JsonObject | None, headers: Mapping[str, str]) -> JsonObject:
    """Return the member `_meta` of a request. Raises MethodError if it lacks a required key, if a header does not match
    the body, or for a version that is not served. `headers` has the headers by lower-case name."""
    meta = (params or {}).get("_meta")
    if not isinstance(meta, dict):
        raise MethodError(
            INVALID_PARAMS,
            f"params._meta must be an object carrying the required {PROTOCOL_VERSION_META_KEY!r} and "
            f"{CLIENT_CAPABILITIES_META_KEY!r} envelope keys",
        )
    meta = cast("JsonObject", meta)
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        message = f"params._meta is missing the required envelope key(s): {', '.join(missing)}"
        raise MethodError(INVALID_PARAMS, message)
    version = meta[PROTOCOL_VERSION_META_KEY]
    if headers.get(VERSION_HEADER) != version:
        message = f"{VERSION_HEADER} header does not match the request envelope's protocol version"
        raise MethodError(HEADER_MISMATCH, message)
    if headers.get("mcp-method") != method:
        raise MethodError(HEADER_MISMATCH, "mcp-method header does not match the request body's method")
    member = _NAME_MEMBERS.get(method)
    name = (params or {}).get(member) if member is not None else None
    if name is not None and _decode(headers.get("mcp-name")) != name:
        raise MethodError(HEADER_MISMATCH, f"mcp-name header does not match the request body's {member!r} parameter")
    check_version(version)
    return meta


class _Annotation(NamedTuple):
    """Property of a tool's arguments that a header repeats."""

    path: tuple[str, ...]
    header: str
    """Name of the header, such as `Mcp-Param-Region`."""
    type: str


def check_param_headers(schema: JsonObject, arguments: JsonObject, headers: Mapping[str, str]) -> None:
    """Raise MethodError if the headers `Mcp-Param-…` of a tool call do not match its arguments. `schema` is the input
    schema of the tool; one whose annotations are invalid declares no headers (NEXT/basic/transports, Custom
    Headers)."""
    for path, header, type_ in _annotations(schema):
        text = headers.get(header.lower())
        value, argument = _value_at(arguments, path), ".".join(path)
        rendered = _render(value)
        if text is None and rendered is None:
            continue
        reason = f"does not match the request body's {argument!r} argument"
        if value is None:
            reason = f"is present but the request body's {argument!r} argument is absent"
        elif text is None:
            reason = f"is missing but the request body's {argument!r} argument is present"
        elif (decoded := _decode(text)) is None:
            reason = "carries a malformed base64 sentinel value" if rendered is not None else reason
        elif rendered is not None and _matches(type_, value, rendered, decoded):
            continue
        raise MethodError(HEADER_MISMATCH, f"{header} header {reason}")


def _annotations(schema: JsonObject) -> Sequence[_Annotation]:
    """Return the annotated properties of a schema. Return none if an annotation is invalid: clients then ignore the
    tool."""
    found: dict[str, _Annotation] = {}
    for path, each in _subschemas(schema):
        if _ANNOTATION not in each:
            continue
        token, type_ = each[_ANNOTATION], each.get("type")
        is_valid = isinstance(token, str) and _TOKEN.fullmatch(token) is not None
        if not path or not is_valid or not isinstance(type_, str) or type_ not in _TYPES or token.lower() in found:
            return ()
        found[token.lower()] = _Annotation(path, f"{_PARAM_HEADER}{token}", type_)
    return tuple(found.values())


def _subschemas(schema: JsonObject) -> Iterator[tuple[tuple[str, ...] | None, JsonObject]]:
    """Yield each schema in a schema, with its path: the names of the properties that lead to it. The path is None
    behind any other keyword."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        node = cast("JsonObject", node)
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                properties = cast("JsonObject", value)
                stack += [(None if path is None else (*path, name), each) for name, each in properties.items()]
            elif keyword in _ONE:
                stack.append((None, value))
            elif keyword in _LISTS and isinstance(value, list):
                stack += [(None, each) for each in cast("list[Any]", value)]
            elif keyword in _MAPS and isinstance(value, dict):
                stack += [(None, each) for each in cast("JsonObject", value).values()]


def _value_at(arguments: JsonObject, path: Sequence[str]) -> object:
    """Return the argument at a path, or None if there is none."""
    node: Any = arguments
    for name in path:
        if not isinstance(node, dict):
            return None
        node = cast("JsonObject", node).get(name)
    return node


def _render(value: object) -> str | None:
    """Return an argument as the text that a header repeats, or None if a header cannot repeat it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _matches(type_: str, value: object, rendered: str, decoded: str) -> bool:
    """Return True if the decoded value of a header is an argument. Integers are compared as numbers: 42 is 42.0."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if type_ == "integer" and is_whole and not isinstance(value, bool) and _DECIMAL.fullmatch(decoded):
        whole, _, fraction = decoded.partition(".")
        try:
            return not fraction.strip("0") and int(whole) == int(cast("float", value))
        except ValueError:  # more digits than Python converts
            return False
    return decoded == rendered


def _decode(text: str | None) -> str | None:
    """Return the value of a header that may be in base64. Return None if it is absent or malformed."""
    encoded = _ENCODED.fullmatch(text) if text is not None else None
    if encoded is None:
        return text
    try:
        raw = b64decode(encoded[1], validate=True)
        return raw.decode() if b64encode(raw).decode() == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None

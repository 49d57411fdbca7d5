"""Canonical form of agent cards (specification 1.0, 8.4.1): the bytes that a signature of a card covers.

The card is reduced to the members of the protocol, and written as canonical JSON (RFC 8785). Implementations differ in
which members they omit, so a verifier tries several candidates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import rfc8785

from babelgate.canonical.value import Json, JsonObject

MAX_DEPTH: Final = 64
"""Maximum nesting of a card that is signed or verified, in levels. Chosen: the limit of a2a-sdk 1.3.0. The library
rfc8785 fails with RecursionError at about 300."""

_Kind = Literal["text", "flag", "optional", "struct"]
"""Type of a member of a card:

- `text`: a string; omitted if it is empty, the default.
- `flag`: a boolean; omitted if it is False, the default.
- `optional`: a boolean that is kept also if it is False.
- `struct`: an object with any content.
"""


class NotCanonical(ValueError):
    """Raised for a card without a canonical form. The message is the reason."""


@dataclass(frozen=True, slots=True)
class _ListOf:
    items: "_Kind | _Message"
    is_kept: bool = False
    """True if an empty list stays in the signed form of the card. The payload of the signature omits it in any case."""


@dataclass(frozen=True, slots=True)
class _MapOf:
    values: "_Kind | _Message | _ListOf"


@dataclass(frozen=True, slots=True)
class _Message:
    """Type of an object in a card (a message of the protocol buffer): the types of its members, by name."""

    members: "Mapping[str, _Kind | _Message | _ListOf | _MapOf]"


_Type = _Kind | _Message | _ListOf | _MapOf

_TEXTS: Final = _ListOf("text")
_REQUIREMENTS: Final = _ListOf(_Message({"schemes": _MapOf(_Message({"list": _ListOf("text", is_kept=True)}))}))
_SCOPES: Final = _MapOf("text")
_FLOW: Final[Mapping[str, _Type]] = {"tokenUrl": "text", "refreshUrl": "text", "scopes": _SCOPES}
_FLOWS: Final = _Message(
    {
        "authorizationCode": _Message({**_FLOW, "authorizationUrl": "text", "pkceRequired": "flag"}),
        "clientCredentials": _Message(_FLOW),
        "implicit": _Message({"authorizationUrl": "text", "refreshUrl": "text", "scopes": _SCOPES}),
        "password": _Message(_FLOW),
        "deviceCode": _Message({**_FLOW, "deviceAuthorizationUrl": "text"}),
    }
)
_SCHEME: Final = _Message(
    {
        "apiKeySecurityScheme": _Message({"description": "text", "location": "text", "name": "text"}),
        "httpAuthSecurityScheme": _Message({"description": "text", "scheme": "text", "bearerFormat": "text"}),
        "oauth2SecurityScheme": _Message({"description": "text", "flows": _FLOWS, "oauth2MetadataUrl": "text"}),
        "openIdConnectSecurityScheme": _Message({"description": "text", "openIdConnectUrl": "text"}),
        "mtlsSecurityScheme": _Message({"description": "text"}),
    }
)
_CARD: Final = _Message(
    {
        "name": "text",
        "description": "text",
        "supportedInterfaces": _ListOf(
            _Message({"url": "text", "protocolBinding": "text", "tenant": "text", "protocolVersion": "text"})
        ),
        "provider": _Message({"url": "text", "organization": "text"}),
        "version": "text",
        "documentationUrl": "text",
        "capabilities": _Message(
            {
                "streaming": "optional",
                "pushNotifications": "optional",
                "extensions": _ListOf(
                    _Message({"uri": "text", "description": "text", "required": "flag", "params": "struct"})
                ),
                "extendedAgentCard": "optional",
            }
        ),
        "securitySchemes": _MapOf(_SCHEME),
        "securityRequirements": _REQUIREMENTS,
        "defaultInputModes": _TEXTS,
        "defaultOutputModes": _TEXTS,
        "skills": _ListOf(
            _Message(
                {
                    "id": "text",
                    "name": "text",
                    "description": "text",
                    "tags": _TEXTS,
                    "examples": _TEXTS,
                    "inputModes": _TEXTS,
                    "outputModes": _TEXTS,
                    "securityRequirements": _REQUIREMENTS,
                }
            )
        ),
        "iconUrl": "text",
    }
)
"""Type of an AgentCard of specification 1.0, without the member `signatures`."""


def canonicalize(value: Json) -> bytes:
    """Return a value as canonical JSON (RFC 8785). Raises NotCanonical if it is nested too deeply, or has a number or a
    text that RFC 8785 does not allow."""
    _check_depth(value)
    try:
        return rfc8785.dumps(cast("Any", value))
    except (ValueError, TypeError, RecursionError) as error:  # NaN, integers above 2^53, lone surrogates
        raise NotCanonical("it has a number or a text that RFC 8785 does not allow") from error


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _children(each)]
        if not level:
            return
    if any(isinstance(each, (dict, list)) for each in level):
        raise NotCanonical(f"it is nested deeper than {MAX_DEPTH} levels")


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(cast("JsonObject", value).values())
    return cast("list[Json]", value) if isinstance(value, list) else []


def signed_form(card: JsonObject) -> JsonObject:
    """Return the form of a 1.0 card that is served together with a signature: only members of the protocol, and no
    default values.

    Other members, and those with a value of another type, are left out, because verifiers do not see them. An extension
    whose parameters have no canonical form is left out, too.
    """
    form = cast("JsonObject", _reduce(card, _CARD, is_closed=True))
    if len(form.get("provider", ())) == 1:  # both of its members are REQUIRED
        del form["provider"]
    capabilities: JsonObject = form.get("capabilities") or {}
    if "extensions" in capabilities:
        extensions = [each for each in capabilities["extensions"] if _is_canonical(each)]
        form["capabilities"] = {**capabilities, "extensions": extensions}
    return form


def payload_of(form: JsonObject) -> bytes:
    """Return the bytes that the signatures of a card cover. `form` is the result of `signed_form`. Raises NotCanonical
    for a value that has no canonical JSON (RFC 8785).

    Empty values are left out, because a2a-sdk 1.3.0 and @a2a-js/sdk 1.3.0 do so, even for lists of scopes and for
    values in parameters.
    """
    return canonicalize(_without_empties(form))


def candidate_forms(card: JsonObject) -> Iterator[tuple[JsonObject, bytes]]:
    """Yield the forms of another server's card that its signature may cover, each with the payload of the signature.
    Servers differ in whether they sign empty values, default values, and unknown members.

    Some forms have only the members of 1.0, because servers may add the members of 0.3 after they have signed. Raises
    NotCanonical if no form can be encoded.
    """
    _check_depth(card)
    sent = {name: value for name, value in card.items() if name != "signatures"}
    of_1_0 = {name: value for name, value in sent.items() if name in _CARD.members}
    payloads, problem = set[bytes](), NotCanonical("it is empty")
    for form in (
        sent,
        _without_empties(sent),
        _without_empties(_reduce(sent, _CARD, is_closed=False)),
        of_1_0,
        _without_empties(of_1_0),
        _without_empties(_reduce(sent, _CARD, is_closed=True)),
    ):
        if not isinstance(form, dict):
            continue
        try:
            payload = canonicalize(form)
        except NotCanonical as error:
            problem = error
            continue
        if payload not in payloads:
            payloads.add(payload)
            yield cast("JsonObject", form), payload
    if not payloads:
        raise problem


def _is_canonical(value: Json) -> bool:
    try:
        canonicalize(value)
    except NotCanonical:
        return False
    return True


def _without_empties(value: Json) -> Json:
    """Return a value without the empty texts, lists and objects in it, and without null. Return None if nothing
    remains."""
    if isinstance(value, dict):
        members = ((name, _without_empties(each)) for name, each in cast("JsonObject", value).items())
        return {name: each for name, each in members if each is not None} or None
    if isinstance(value, list):
        items = (_without_empties(each) for each in cast("list[Json]", value))
        return [each for each in items if each is not None] or None
    return None if value == "" else value


_ABSENT: Final = object()
"""Result of `_reduce` for a value that must be omitted."""


def _reduce(value: Any, kind: _Type, *, is_closed: bool) -> Any:
    """Return a value of the type `kind` without default values, as ProtoJSON omits them. With `is_closed`, members that
    the protocol does not define are left out, too. Return `_ABSENT` for a default value, and for a value of another
    type."""
    match kind:
        case "text":
            return value if isinstance(value, str) and value else _ABSENT
        case "flag":
            return value if value is True else _ABSENT
        case "optional":
            return value if isinstance(value, bool) else _ABSENT
        case "struct":
            return cast("JsonObject", value) if isinstance(value, dict) else _ABSENT
        case _ListOf(items, is_kept):
            if not isinstance(value, list):
                return _ABSENT
            reduced = [_reduce(each, items, is_closed=is_closed) for each in cast("list[Any]", value)]
            remaining = [each for each in reduced if each is not _ABSENT]
            return remaining if remaining or is_kept else _ABSENT
        case _MapOf(values):
            if not isinstance(value, dict):
                return _ABSENT
            entries = cast("JsonObject", value).items()
            mapped: JsonObject = {name: _reduce(each, values, is_closed=is_closed) for name, each in entries}
            return {name: each for name, each in mapped.items() if each is not _ABSENT} or _ABSENT
        case _Message():
            return _reduce_message(value, kind, is_closed=is_closed)


def _reduce_message(value: Any, message: _Message, *, is_closed: bool) -> Any:
    if not isinstance(value, dict):
        return _ABSENT
    reduced: JsonObject = {}
    for name, each in cast("JsonObject", value).items():
        kind = message.members.get(name)
        if kind is None and is_closed:
            continue
        inner = each if kind is None else _reduce(each, kind, is_closed=is_closed)
        if inner is not _ABSENT:
            reduced[name] = inner
    return reduced

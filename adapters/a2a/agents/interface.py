"""Reading A2A agent cards of other servers → what is known of the agent, and the one interface by which it is
called."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import dumps
from typing import Any, Final, Literal, cast
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from babelgate.adapters.a2a.frameworks import FRAMEWORKS
from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.extension import URI
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Skill
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

Version = Literal["0.3", "1.0"]

_JSON_RPC, _REST = "JSONRPC", "HTTP+JSON"
_WELL_KNOWN: Final = "/.well-known/"
_CARDS: Final = (f"{_WELL_KNOWN}agent-card.json", f"{_WELL_KNOWN}agent.json")
_PORTS: Final = {"http": 80, "https": 443}
_PRIVATE: Final = frozenset({URI}.union(*(framework.private_extensions for framework in FRAMEWORKS)))
"""Extensions that are not passed on: the gateway has an entry of its own for its extension."""
_CARD: Final = frozenset(
    {
        "name",
        "description",
        "version",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
        "documentationUrl",
        "iconUrl",
        "capabilities",
        "url",
        "protocolVersion",
        "preferredTransport",
        "additionalInterfaces",
        "supportedInterfaces",
        "supportsAuthenticatedExtendedCard",
        "securitySchemes",
        "security",
        "securityRequirements",
        "signatures",
    }
)
"""Members that are read, and those that say how the server is called, which is not how the gateway is: what else is in
a card goes on to callers of A2A (`agents.card`)."""
_CAPABILITIES: Final = frozenset(
    {"streaming", "pushNotifications", "stateTransitionHistory", "extendedAgentCard", "extensions"}
)
_CREDENTIALS: Final = ("/auth/", "/services/", "secure-passport")
"""In the URIs of extensions by which callers hand over keys: agentstack-sdk 0.7.1 and kin, and A2A's samples."""
_NAME: Final = re.compile(r"[!-+\--~]{1,500}")
"""A URI that can stand in a header, in a list that commas separate."""
MOST_EXTENSIONS: Final = 32
"""Of one card, and of one request. Chosen, not measured: they stand in a header together."""
_SKILL: Final = frozenset({"id", "name", "description", "tags", "examples", "security", "securityRequirements"})
_MOST_CHARACTERS: Final = 64_000
"""Characters of them."""
_MODES: Final = {"text": "text/plain", "data": "application/json", "file": "*/*"}
"""Names of kinds of parts, which the first cards had where media types belong."""


@dataclass(frozen=True, slots=True)
class Interface:
    url: str
    version: Version = "1.0"
    rest: bool = False
    tenant: str = ""
    streams: bool = True
    answers_in_status: bool = False
    """Answers are the messages of the status, and not artifacts."""
    repeats_answer: bool = False
    """Each message of the status contains the whole answer so far."""
    extended: bool = False
    """Its card declares the extension."""
    extensions: tuple[str, ...] = ()
    """Others on its card that callers may activate, by URI."""


def bare(url: str) -> Interface:
    """Of a server that shows no card: its URL is taken for the JSON-RPC endpoint of the newest version. Whoever calls
    finds out otherwise by what it answers."""
    return Interface(url)


def card_urls(url: str) -> Sequence[str]:
    """Where the card may be: below the endpoint and at the origin, under the names of 0.3 and of 0.2."""
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return (url,)
    base, origin = _base(url), urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    # Specification 0.3, 5.3, has the card at the origin; a server with several agents has one below each endpoint, as
    # langgraph-api 0.16.7.
    return tuple(dict.fromkeys(below + name for below in (base, origin) for name in _CARDS))


def _base(url: str) -> str:
    """The agent's URL, also where that of its card is given."""
    parts = urlsplit(url)
    path = parts.path
    if path.endswith(".json"):
        path = path.rpartition(_WELL_KNOWN)[0] if _WELL_KNOWN in path else path.rpartition("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def is_card(value: Json) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    # `url` is required in 0.3, and `supportedInterfaces` in 1.0, which has no `url`. Some servers leave it out.
    if isinstance(value.get("supportedInterfaces"), list) or isinstance(value.get("url"), str):
        return True
    return value.get("url") is None and isinstance(value.get("protocolVersion"), str)


def find_interface(card: JsonObject, url: str, *, at_origin: bool = False) -> Interface | None:
    """The one to call: 1.0 before 0.3, JSON-RPC before REST. `url` = where the operator says that the agent is.

    A card is followed to no other origin, because configured headers go along: there the operator's URL counts. One
    that was found `at_origin` and not below the agent's own path may be another agent's: None if it does not name the
    path. Raises agent_invalid for a card without an interface that can be called.
    """
    # Not in the card's order of preference (specification 1.0, 4.4.6): both bindings carry the same.
    found = sorted(_interfaces(card, url), key=lambda each: (each.version != "1.0", each.rest))
    if not found:
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's card names no interface by JSON-RPC or REST")
    path = urlsplit(_base(url)).path
    if at_origin and path and path not in _declared_paths(card):
        return None
    return found[0]


def _declared_paths(card: JsonObject) -> set[str]:
    """The paths that the card names."""
    paths: set[str] = set()
    for each in _entries(card):
        declared = each.get("url")
        if isinstance(declared, str):
            with suppress(ValueError):
                paths.add(urlsplit(declared).path.rstrip("/"))
    return paths


def _entries(card: JsonObject) -> Sequence[JsonObject]:
    """Of both generations: 1.0's `supportedInterfaces`, 0.3's `url` and `additionalInterfaces`."""
    old = card.get("url")
    version = card.get("protocolVersion")
    entries = objects_in(card.get("supportedInterfaces"))
    if isinstance(old, str) or (old is None and not entries):
        if not version:
            # langgraph-api 0.16.7: it says 1.0 here, and its streams are those of 0.3. It takes the methods of either.
            entries = [{**each, "protocolVersion": "0.3"} for each in entries]
        # `protocolVersion` is required in 0.3; a2a-sdk 1.3.0 takes its absence for 0.3.0.
        version = version or "0.3"
        main = {
            "url": old or "",
            "protocolBinding": card.get("preferredTransport") or _JSON_RPC,
            "protocolVersion": version,
        }
        more = [
            # Specification 0.3, 5.5.5 (AgentInterface): `transport`, which 1.0 names `protocolBinding`.
            {"url": each.get("url"), "protocolBinding": each.get("transport"), "protocolVersion": version}
            for each in objects_in(card.get("additionalInterfaces"))
        ]
        entries = [*entries, main, *more]
    return entries


def _interfaces(card: JsonObject, url: str) -> Iterator[Interface]:
    capabilities = card.get("capabilities")
    streams = isinstance(capabilities, dict) and cast("JsonObject", capabilities).get("streaming") is True
    extensions = objects_in(as_object(capabilities).get("extensions"))
    uris = [as_text(extension.get("uri")) for extension in extensions]
    frameworks = [each for each in FRAMEWORKS if each.is_on_card is not None and any(map(each.is_on_card, uris))]
    relayed = [str(each["uri"]) for each in extensions if _is_relayed(each)][:MOST_EXTENSIONS]
    for each in _entries(card):
        declared, binding = each.get("url"), str(each.get("protocolBinding") or _JSON_RPC).upper()
        version = _version(each.get("protocolVersion"))
        if not isinstance(declared, str) or binding not in (_JSON_RPC, _REST) or version is None:
            continue
        tenant = each.get("tenant")
        yield Interface(
            url=_reachable(declared, url),
            version=version,
            rest=binding == _REST,
            tenant=tenant if isinstance(tenant, str) else "",
            streams=streams,
            answers_in_status=any(framework.answers_in_status for framework in frameworks),
            repeats_answer=any(framework.repeats_answer for framework in frameworks),
            extended=URI in uris,
            extensions=tuple(relayed),
        )


def _version(text: object) -> Version | None:
    # A patch number says nothing of what is spoken (specification 1.0, 3.6.1).
    major = str(text or "1.0").partition(".")[0]
    versions: dict[str, Version] = {"0": "0.3", "1": "1.0"}
    return versions.get(major)


def _reachable(declared: str, url: str) -> str:
    base = _base(url)
    own = urlsplit(base)
    if not declared:
        return base if urlsplit(url).path.endswith(".json") else url
    try:
        other = urlsplit(urljoin(base + "/", declared))
    except ValueError:  # an address that is none
        other = SplitResult("", "", "", "", "")
    if _origin(own) == _origin(other):
        return other.geturl()
    if own.path:  # behind a proxy, most likely, that the card does not know of
        return url if not urlsplit(url).path.endswith(".json") else base
    return own._replace(path=other.path).geturl()


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    try:
        port = url.port
    except ValueError:
        port = -1
    return url.scheme, url.hostname, port or _PORTS.get(url.scheme)


def describe(card: JsonObject) -> AgentInfo:
    """The agent in our words. Its URLs stay behind, and so do its signatures: they are of another document."""
    metadata: JsonObject = {"a2a": {"name": card["name"]}}
    if isinstance(card.get("provider"), dict):
        metadata["a2a"]["provider"] = card["provider"]
    unknown = _unknown(card, {*_CARD, "provider"})
    capabilities = _capabilities(card)
    skills = {_skill(each).id: _unknown(each, _SKILL) for each in objects_in(card.get("skills"))}
    skills = {key: value for key, value in skills.items() if value}
    for name, more in (("card", unknown), ("capabilities", capabilities), ("skills", skills)):
        # It is shown to whoever asks for the card.
        if more and len(dumps(more)) <= _MOST_CHARACTERS:
            metadata["a2a"][name] = more
    for theirs, ours in (("documentationUrl", "documentation_url"), ("iconUrl", "icon_url")):
        if isinstance(card.get(theirs), str) and card[theirs]:
            metadata[ours] = card[theirs]
    return AgentInfo(
        name=legal_name(card["name"]),
        description=as_text(card.get("description")),
        version=as_text(card.get("version")) or "1.0.0",
        input_types=_modes(card.get("defaultInputModes")),
        output_types=_modes(card.get("defaultOutputModes")),
        skills=tuple(_skill(each) for each in objects_in(card.get("skills"))),
        metadata=metadata,
        remembers=True,  # a context is the server's own memory: the transcript is not sent again
        replies=True,
    )


def assume_agent(called: str) -> AgentInfo:
    """Describe an agent whose server shows no card."""
    return AgentInfo(name=legal_name(called), input_types=("*/*",), output_types=("*/*",), remembers=True, replies=True)


def _capabilities(card: JsonObject) -> JsonObject:
    """What goes on to callers of A2A, who are shown what the agent says as it came."""
    told = card.get("capabilities")
    if not isinstance(told, dict):
        return {}
    found = cast("JsonObject", told)
    extensions = [each for each in objects_in(found.get("extensions")) if _is_relayed(each)]
    return {**_unknown(found, _CAPABILITIES), **({"extensions": extensions} if extensions else {})}


def _is_relayed(extension: JsonObject) -> bool:
    """Whether it is true of the agent behind the gateway, too. An extension puts what it has into metadata, which go
    through, and so does the header by which a caller activates it (specification 1.0, 3.2.6)."""
    uri = extension.get("uri")
    if not isinstance(uri, str) or uri in _PRIVATE:
        return False
    if _NAME.fullmatch(uri) is None:
        return False
    # What callers hand over would stand in the gateway's log.
    return not any(part in uri for part in _CREDENTIALS)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in cast("list[Any]", value) if isinstance(each, str)) if isinstance(value, list) else ()


def _modes(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_MODES.get(each, each) for each in _texts(value))) or ("text/plain",)


def _unknown(value: JsonObject, known: Collection[str]) -> JsonObject:
    return {name: each for name, each in value.items() if name not in known}


def _skill(skill: JsonObject) -> Skill:
    name = as_text(skill.get("name")) or as_text(skill.get("id"))
    return Skill(
        id=as_text(skill.get("id")) or legal_name(name),
        name=name,
        description=as_text(skill.get("description")),
        tags=_texts(skill.get("tags")),
        examples=_texts(skill.get("examples")),
    )

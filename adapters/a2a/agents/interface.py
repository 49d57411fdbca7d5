"""Reading of other servers' agent cards: the description of the agent, and the interface by which the agent is
called."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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

_JSON_RPC, _REST, _GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
_WELL_KNOWN: Final = "/.well-known/"
_CARDS: Final = (f"{_WELL_KNOWN}agent-card.json", f"{_WELL_KNOWN}agent.json")
_PORTS: Final = {"http": 80, "https": 443}
_PRIVATE: Final = frozenset({URI}.union(*(framework.private_extensions for framework in FRAMEWORKS)))
"""URIs of extensions that the gateway's card does not take over from an upstream card. One is the Babelgate extension,
which the gateway's card declares itself."""
_CARD_FIELDS: Final = frozenset(
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
"""Members of an upstream card that are read, or that only apply to a direct call of the server. All others appear
unchanged in the gateway's card (`agents.card`)."""
_CAPABILITY_FIELDS: Final = frozenset(
    {"streaming", "pushNotifications", "stateTransitionHistory", "extendedAgentCard", "extensions"}
)
_CREDENTIALS: Final = ("/auth/", "/services/", "secure-passport")
"""Substrings of the URIs of extensions that ask callers for keys. They occur in agentstack-sdk 0.7.1 and its relatives,
and in A2A's samples."""
_HEADER_SAFE: Final = re.compile(r"[!-+\--~]{1,500}")
"""Pattern of a URI that fits into a comma-separated list in a header."""
MOST_EXTENSIONS: Final = 32
"""Maximum number of extensions per card, and per request. Chosen, because one request header lists all of them."""
_SKILL_FIELDS: Final = frozenset({"id", "name", "description", "tags", "examples", "security", "securityRequirements"})
_MOST_CHARACTERS: Final = 64_000
"""Maximum length of the relayed members as JSON, in characters, for each of the card, its capabilities and its skills.
Chosen."""
_MODES: Final = {"text": "text/plain", "data": "application/json", "file": "*/*"}
"""Media types by the names (`text`, `data`, `file`) that the cards of early versions have instead of media types."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One endpoint of an agent, as its card declares it: the URL, the version and the binding to use, and how the
    server answers."""

    url: str
    version: Version = "1.0"
    rest: bool = False
    grpc: bool = False
    """True if the binding is gRPC. The URL is then `grpc://host:port`, or `grpcs://host:port` with TLS."""
    alternative: "Interface | None" = field(default=None, compare=False)
    """Interface to call instead if the gRPC server accepts no connection. None if there is none."""
    files_url: str = ""
    """URL below which another gateway has the files of its messages; empty if it is `url`."""
    tenant: str = ""
    streams: bool = True
    answers_in_status: bool = False
    """True if the agent sends its answers as the messages of its status, and not as artifacts."""
    repeats_answer: bool = False
    """True if each message of the status repeats the whole answer so far."""
    extended: bool = False
    """True if the card declares the Babelgate extension."""
    extensions: tuple[str, ...] = ()
    """URIs of the other extensions on the card that callers may activate."""


def assume_interface(url: str) -> Interface:
    """Return the interface of a server without a card: its URL is assumed to be a JSON-RPC endpoint of 1.0.

    If it is not, the client tries 0.3 after the first error.
    """
    return Interface(url)


def card_urls(url: str) -> Sequence[str]:
    """Return the URLs at which the agent's card may be, in the order to try: below the endpoint, then at the origin,
    each under the file names of 0.3 and of 0.2."""
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return (url,)
    base, origin = _base(url), urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    # Specification 0.3, 5.3, has the card at the origin. Servers with several agents (langgraph-api 0.16.7) have one
    # below each endpoint.
    return tuple(dict.fromkeys(below + name for below in (base, origin) for name in _CARDS))


def _base(url: str) -> str:
    """Return the agent's URL without a trailing slash and without a query. If `url` is that of a card, the path of the
    card is removed."""
    parts = urlsplit(url)
    path = parts.path
    if path.endswith(".json"):
        path = path.rpartition(_WELL_KNOWN)[0] if _WELL_KNOWN in path else path.rpartition("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def is_card(value: Json) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    # 0.3 requires `url`, and 1.0, which has no `url`, `supportedInterfaces`. Some servers of 0.3 omit `url`.
    if isinstance(value.get("supportedInterfaces"), list) or isinstance(value.get("url"), str):
        return True
    return value.get("url") is None and isinstance(value.get("protocolVersion"), str)


def find_interface(
    card: JsonObject, url: str, *, at_origin: bool = False, speaks_grpc: bool = False
) -> Interface | None:
    """Return the interface to call among those in the card: 1.0 before 0.3, and JSON-RPC before REST. gRPC is called
    if `speaks_grpc`, and if it is the first interface of the card or the only one.

    `url` is the agent's URL in the configuration. If the card names another origin, `url` is called instead, because
    the requests carry configured headers. `at_origin` is True if the card was found at the origin and not below the
    agent's path. Such a card may be that of another agent, so the result is None unless the card names the path. Raises
    agent_invalid for a card without a usable interface.
    """
    # Not in the card's order of preference (specification 1.0, 4.4.6): these bindings carry the same. A server that
    # prefers gRPC is called so, because its other bindings may be less complete.
    prefers_grpc = any(_is_grpc(each) for each in _entries(card)[:1])
    interfaces = sorted(
        (each for each in _interfaces(card, url) if speaks_grpc or not each.grpc),
        key=lambda each: (each.version != "1.0", each.grpc is not prefers_grpc, each.rest),
    )
    if not interfaces:
        needs = "; gRPC needs babelgate[grpc]" if any(map(_is_grpc, _entries(card))) and not speaks_grpc else ""
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's card names no interface by JSON-RPC or REST{needs}")
    path = urlsplit(_base(url)).path
    if at_origin and path and path not in _declared_paths(card):
        return None
    best = interfaces[0]
    return replace(best, alternative=next((each for each in interfaces if not each.grpc), None)) if best.grpc else best


def _declared_paths(card: JsonObject) -> set[str]:
    """Return the paths of all URLs that the card declares."""
    paths: set[str] = set()
    for each in _entries(card):
        declared = each.get("url")
        if isinstance(declared, str):
            with suppress(ValueError):
                paths.add(urlsplit(declared).path.rstrip("/"))
    return paths


def _entries(card: JsonObject) -> Sequence[JsonObject]:
    """Return the interfaces that a card of either version declares, each in the form of 1.0.

    They are in `supportedInterfaces` in 1.0, and in `url` and `additionalInterfaces` in 0.3.
    """
    main_url = card.get("url")
    version = card.get("protocolVersion")
    entries = objects_in(card.get("supportedInterfaces"))
    if isinstance(main_url, str) or (main_url is None and not entries):
        if not version:
            # langgraph-api 0.16.7 declares 1.0 here, but its streams are those of 0.3. It accepts the methods of both.
            entries = [{**each, "protocolVersion": "0.3"} for each in entries]
        # 0.3 requires `protocolVersion`. a2a-sdk 1.3.0 reads a card without it as 0.3.0.
        version = version or "0.3"
        main = {
            "url": main_url or "",
            "protocolBinding": card.get("preferredTransport") or _JSON_RPC,
            "protocolVersion": version,
        }
        more = [
            # `transport` (specification 0.3, 5.5.5, AgentInterface) is `protocolBinding` in 1.0.
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
        if not isinstance(declared, str) or binding not in (_JSON_RPC, _REST, _GRPC) or version is None:
            continue
        is_grpc = binding == _GRPC
        reachable = _reachable_rpc(declared, url) if is_grpc else _reachable(declared, url)
        if reachable is None or (is_grpc and version != "1.0"):  # 0.3 has another protocol buffer
            continue
        tenant = each.get("tenant")
        yield Interface(
            url=reachable,
            version=version,
            rest=binding == _REST,
            grpc=is_grpc,
            files_url=_base(url) if is_grpc else "",
            tenant=tenant if isinstance(tenant, str) else "",
            streams=streams,
            answers_in_status=any(framework.answers_in_status for framework in frameworks),
            repeats_answer=any(framework.repeats_answer for framework in frameworks),
            extended=URI in uris,
            extensions=tuple(relayed),
        )


def _version(text: object) -> Version | None:
    # A patch number does not change the protocol (specification 1.0, 3.6.1).
    major = str(text or "1.0").partition(".")[0]
    versions: dict[str, Version] = {"0": "0.3", "1": "1.0"}
    return versions.get(major)


def _reachable(declared: str, url: str) -> str:
    """Return the URL to call for an interface. It is the `declared` URL if that has the origin of the configured `url`.
    Otherwise it is `url`, or the declared path at the origin of `url` if `url` has no path."""
    base = _base(url)
    configured = urlsplit(base)
    if not declared:
        return base if urlsplit(url).path.endswith(".json") else url
    try:
        other = urlsplit(urljoin(base + "/", declared))
    except ValueError:  # not a valid URL
        other = SplitResult("", "", "", "", "")
    if _origin(configured) == _origin(other):
        return other.geturl()
    if configured.path:  # most likely behind a proxy that is not in the card
        return url if not urlsplit(url).path.endswith(".json") else base
    return configured._replace(path=other.path).geturl()


def _reachable_rpc(declared: str, url: str) -> str | None:
    """Return the URL to call for a gRPC interface: the declared port at the host of the configured URL, with TLS if
    that URL has TLS. Return None without a port.

    The card has `host:port`, or a URL in its place. The host in it is often one that only the server knows, such as
    `0.0.0.0`.
    """
    configured = urlsplit(url)
    try:
        place = urlsplit(declared if "://" in declared else f"//{declared}")
        port = place.port or {"https": 443, "grpcs": 443}.get(place.scheme)
    except ValueError:
        return None
    if port is None or configured.hostname is None:
        return None
    host = f"[{configured.hostname}]" if ":" in configured.hostname else configured.hostname
    return f"{'grpcs' if configured.scheme == 'https' else 'grpc'}://{host}:{port}"


def _is_grpc(entry: JsonObject) -> bool:
    return str(entry.get("protocolBinding") or "").upper() == _GRPC


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    try:
        port = url.port
    except ValueError:
        port = -1
    return url.scheme, url.hostname, port or _PORTS.get(url.scheme)


def describe(card: JsonObject) -> AgentInfo:
    """Return the agent that a card describes.

    The result contains neither the URLs by which the server is called nor the signatures, which only fit the original
    card.
    """
    metadata: JsonObject = {"a2a": {"name": card["name"]}}
    if isinstance(card.get("provider"), dict):
        metadata["a2a"]["provider"] = card["provider"]
    unknown = _unknown(card, {*_CARD_FIELDS, "provider"})
    capabilities = _capabilities(card)
    skills = {_skill(each).id: _unknown(each, _SKILL_FIELDS) for each in objects_in(card.get("skills"))}
    skills = {key: value for key, value in skills.items() if value}
    for name, more in (("card", unknown), ("capabilities", capabilities), ("skills", skills)):
        # Every client that gets the card receives these.
        if more and len(dumps(more)) <= _MOST_CHARACTERS:
            metadata["a2a"][name] = more
    for name, key in (("documentationUrl", "documentation_url"), ("iconUrl", "icon_url")):
        if isinstance(card.get(name), str) and card[name]:
            metadata[key] = card[name]
    return AgentInfo(
        name=legal_name(card["name"]),
        description=as_text(card.get("description")),
        version=as_text(card.get("version")) or "1.0.0",
        input_types=_modes(card.get("defaultInputModes")),
        output_types=_modes(card.get("defaultOutputModes")),
        skills=tuple(_skill(each) for each in objects_in(card.get("skills"))),
        metadata=metadata,
        remembers=True,  # the server keeps the context: the transcript is not sent again
        replies=True,
    )


def assume_agent(name: str) -> AgentInfo:
    """Return a description of an agent whose server has no card: it accepts and produces content of any media type."""
    return AgentInfo(name=legal_name(name), input_types=("*/*",), output_types=("*/*",), remembers=True, replies=True)


def _capabilities(card: JsonObject) -> JsonObject:
    """Return the capabilities in an upstream card that the gateway's card relays."""
    declared = card.get("capabilities")
    if not isinstance(declared, dict):
        return {}
    capabilities = cast("JsonObject", declared)
    extensions = [each for each in objects_in(capabilities.get("extensions")) if _is_relayed(each)]
    return {**_unknown(capabilities, _CAPABILITY_FIELDS), **({"extensions": extensions} if extensions else {})}


def _is_relayed(extension: JsonObject) -> bool:
    """Return True if the gateway can relay an extension of an upstream server to its callers.

    The content of an extension is in metadata, which the gateway relays, and so is the header that activates the
    extension (specification 1.0, 3.2.6). Extensions by which callers send keys are not relayed, because the log would
    contain the keys.
    """
    uri = extension.get("uri")
    if not isinstance(uri, str) or uri in _PRIVATE:
        return False
    if _HEADER_SAFE.fullmatch(uri) is None:
        return False
    # The gateway's log would contain the keys.
    return not any(part in uri for part in _CREDENTIALS)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in cast("list[Any]", value) if isinstance(each, str)) if isinstance(value, list) else ()


def _modes(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_MODES.get(each, each) for each in _texts(value))) or ("text/plain",)


def _unknown(value: JsonObject, fields: Collection[str]) -> JsonObject:
    """Return the members of an object that are not among the fields."""
    return {name: each for name, each in value.items() if name not in fields}


def _skill(skill: JsonObject) -> Skill:
    name = as_text(skill.get("name")) or as_text(skill.get("id"))
    return Skill(
        id=as_text(skill.get("id")) or legal_name(name),
        name=name,
        description=as_text(skill.get("description")),
        tags=_texts(skill.get("tags")),
        examples=_texts(skill.get("examples")),
    )

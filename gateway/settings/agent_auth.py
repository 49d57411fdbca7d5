"""Settings of the identity that the gateway shows to an agent's server: `auth` of an agent."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from babelgate.gateway.settings.credentials import is_trusted_url
from babelgate.gateway.settings.fields import TOKEN, Period, SettingsSection, check_http_url

_SCOPES: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
"""Pattern of OAuth scopes with one space between them (RFC 6749, 3.3)."""
_NOT_FORWARDED: Final = frozenset(
    (
        "authorization",
        "x-api-key",
        "cookie",
        "host",
        "content-length",
        "content-type",
        "connection",
        "transfer-encoding",
    )
)


def check_sent_headers(headers: Mapping[str, SecretStr]) -> None:
    """Check the names and values of the headers that the gateway sends to an agent's server. Raises ValueError for a
    name that is not a token, and a value that is not printable ASCII."""
    for number, (name, secret) in enumerate(headers.items(), 1):
        if not TOKEN.fullmatch(name):  # the name is not shown: `{Authorization:Bearer x}` lacks a space
            raise ValueError(f"the name of entry {number} is not the name of a header")
        value = secret.get_secret_value()
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of {name} is not printable ASCII")


def check_forwarded(names: Iterable[str]) -> tuple[str, ...]:
    """Check the names of headers to forward, and return them in lower case. Raises ValueError for a name that is not a
    token, and for one that is never forwarded."""
    lower: list[str] = []
    for number, name in enumerate(names, 1):
        if not TOKEN.fullmatch(name):
            raise ValueError(f"entry {number} is not the name of a header")
        if name.lower() in _NOT_FORWARDED:
            raise ValueError(f"{name} is reserved: the gateway does not forward callers' keys, hosts and lengths")
        lower.append(name.lower())
    return tuple(lower)


def _trusted_url(value: str) -> str:
    check_http_url(value)
    if not is_trusted_url(value):
        raise ValueError("an https:// URL, or an http:// URL of this machine")
    return value


def _page_url(value: str) -> str:
    if not is_trusted_url(value) or not value.isprintable() or " " in value or "#" in value:
        raise ValueError("an https:// URL, or an http:// URL of this machine, without #")
    return value


def _scope(value: str) -> str:
    if not _SCOPES.fullmatch(value):
        raise ValueError("scopes with one space between them, such as agents:run agents:read")
    return value


ProviderUrl = Annotated[str, AfterValidator(_trusted_url), Field(json_schema_extra={"format": "uri"})]
Scope = Annotated[str, AfterValidator(_scope)]


class TokenRequest(SettingsSection):
    """Request for a token of an identity provider (OAuth 2)."""

    token_url: ProviderUrl
    """URL of the provider's token endpoint."""
    client_id: Annotated[str, Field(min_length=1)]
    """Id of the gateway at the provider."""
    client_secret: Annotated[SecretStr, Field(min_length=1)]
    """Secret of the gateway at the provider."""
    scope: Scope | None = None
    """Scopes of the token, with spaces between them. By default the provider chooses."""
    audience: Annotated[str, Field(min_length=1)] | None = None
    """Name of the agent's server at the provider, for which the token is requested (RFC 8693, 2.1)."""
    resource: ProviderUrl | None = None
    """URL of the agent's server, for which the token is requested (RFC 8707). Providers know either this or
    `audience`."""

    @model_validator(mode="after")
    def _one_target(self) -> "TokenRequest":
        if self.audience is not None and self.resource is not None:
            raise ValueError("set either audience or resource: providers know one of them")
        return self

    @property
    def target(self) -> Mapping[str, str]:
        """Parameters of the token request that name the agent's server: `audience`, `resource`, or neither."""
        targets = {"audience": self.audience, "resource": self.resource}
        return {name: value for name, value in targets.items() if value is not None}


class ClientCredentials(TokenRequest):
    """Request for a token of the gateway itself, by the client credentials grant (RFC 6749, 4.4)."""


class ConsentSettings(SettingsSection):
    """Authorization by the user in a browser, if the provider needs it (RFC 6749, 4.1). It needs `public_url` and
    `secrets_key`."""

    authorize_url: Annotated[str, AfterValidator(_page_url), Field(json_schema_extra={"format": "uri"})]
    """URL of the provider's page on which the user logs in and agrees. It may have parameters: `prompt=consent` makes
    many providers issue a refresh token."""
    scope: Scope | None = None
    """Scopes to which the user agrees, with spaces between them. By default `scope` of the exchange."""
    ttl: Annotated[Period, Field(le=86_400)] = 600.0
    """Time within which the user has to agree, in seconds or as text such as `10m`. If the user does not, the run
    fails."""


class TokenExchange(TokenRequest):
    """Request for a token of the caller, for which the provider exchanges the token that the caller has sent (RFC
    8693)."""

    subject_token_type: Literal["access_token", "jwt"] = "access_token"
    """Type that the request states for the caller's token (RFC 8693, 3)."""
    requested_token_type: Annotated[str, Field(min_length=1)] | None = None
    """Type of the requested token, as a URI. By default it is not sent, as some providers refuse it."""
    actor: bool = False
    """True to name the gateway as the actor: it sends its own token with the caller's."""
    fallback: Literal["client", "ask"] | None = None
    """Token for a run without a token of its caller: `client` sends one of the gateway itself, `ask` asks the user for
    one. Such runs are those of API keys and crons, and those that continue after a restart. By default `ask` with
    `consent`; without it, such runs fail."""
    consent: ConsentSettings | None = None

    @model_validator(mode="after")
    def _askable(self) -> "TokenExchange":
        if self.fallback == "ask" and self.consent is None:
            raise ValueError("fallback: ask needs consent, with the page on which the user agrees")
        return self

    @property
    def purpose(self) -> str:
        """Text that identifies the provider and the agent's server. A stored token is used only with the text for which
        it was stored, so it is never sent to another server."""
        return " ".join((self.token_url, self.client_id, *sorted(map("=".join, self.target.items()))))


class AgentAuth(SettingsSection):
    """Identity that the gateway shows to the agent's server. It needs exactly one of its keys."""

    headers: dict[str, SecretStr] | None = None
    """Headers to send with every request, as `headers` of the agent."""
    forward: tuple[str, ...] | None = None
    """Names of headers of the caller's request to forward, as `forward` of the agent."""
    client_credentials: ClientCredentials | None = None
    exchange: TokenExchange | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "AgentAuth":
        if len(self.model_fields_set) != 1 or getattr(self, next(iter(self.model_fields_set))) is None:
            raise ValueError(f"one of {', '.join(type(self).model_fields)}")
        return self

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, SecretStr] | None) -> dict[str, SecretStr] | None:
        check_sent_headers(headers or {})
        return headers

    @field_validator("forward")
    @classmethod
    def _forwardable(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else check_forwarded(names)

    @property
    def token_request(self) -> ClientCredentials | TokenExchange | None:
        """Settings of the token request for the agent; None if the gateway sends it no token."""
        return self.client_credentials or self.exchange

"""Settings of the credentials that callers send: API keys, and tokens of issuers (OpenID Connect, OAuth 2)."""

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import NoDecode

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.fields import Leeway, SettingsSection, Strings, check_http_url, parse_list

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signature algorithms of tokens (RFC 7518, 3.1 and RFC 8037). Symmetric ones are not included: a party that can
verify such a token can forge one."""

_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CLAIM: Final = re.compile(r"\{([^{}]+)\}")
_ISSUER_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?")
_PRIVATE: Final = frozenset({"d", "k", "p", "q", "dp", "dq", "qi"})
"""Members of a JSON Web Key that are secret (RFC 7518, 6)."""


class ApiKey(SettingsSection):
    """One API key of an owner. It needs exactly one of `key` and `hash`."""

    key: SecretStr | None = None
    """The API key itself."""
    hash: str | None = None
    """SHA-256 digest of the API key instead of the key: `sha256:` and 64 hex digits. `babelgate keys new` prints it."""
    expires: datetime | None = None
    """Time at which the key expires, such as `2027-03-01` or `2027-03-01T12:00:00Z`. A date is its beginning in UTC."""
    groups: Strings = ()
    """Groups of a caller with this key."""
    scopes: Strings = ()
    """Scopes of a caller with this key."""

    @property
    def digest(self) -> bytes:
        """SHA-256 digest of the API key, 32 bytes."""
        if self.hash is not None:
            return bytes.fromhex(self.hash.removeprefix("sha256:"))
        assert self.key is not None
        return hashlib.sha256(self.key.get_secret_value().encode()).digest()

    @property
    def expires_at(self) -> float | None:
        """Time at which the key expires, in seconds since 1970, UTC; None if it does not."""
        if self.expires is None:
            return None
        return (self.expires if self.expires.tzinfo else self.expires.replace(tzinfo=UTC)).timestamp()

    @model_validator(mode="after")
    def _one_form(self) -> "ApiKey":
        if (self.key is None) == (self.hash is None):
            raise ValueError("a record has either hash or key")
        if self.hash is not None and not _HASH.fullmatch(self.hash):
            raise ValueError("a hash is sha256: and 64 hex digits")
        return self


def _parse_keys(value: object) -> object:
    """Convert the value for one owner in `keys` to a tuple of records. Raises ValueError, whose text contains no
    key."""
    if not isinstance(value, (list, tuple)):
        return (_parse_key(value),)
    entries = cast("Sequence[object]", value)
    if not entries:
        raise ValueError("the list of keys is empty")
    keys: list[ApiKey] = []
    for number, each in enumerate(entries, 1):
        try:
            keys.append(_parse_key(each))
        except ValueError as error:
            raise ValueError(f"item {number}: {error}") from None
    return tuple(keys)


def _parse_key(value: object) -> ApiKey:
    if isinstance(value, ApiKey):
        return value
    if isinstance(value, (str, SecretStr)):
        return ApiKey.model_validate({"key": value})
    if not isinstance(value, dict):
        raise ValueError("expected a key in quotes, a record with hash, or a list of these")
    try:
        return ApiKey.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    match first["type"]:
        case "extra_forbidden":  # the name is not shown, because it may be a misplaced key
            raise ValueError(f"a record has no such member; there are {', '.join(ApiKey.model_fields)}")
        case "value_error":
            raise ValueError(first["msg"].removeprefix("Value error, "))
        case _:
            message = first["msg"].removeprefix("Input should be ")
            raise ValueError(f"{first['loc'][0]}: {message[:1].lower()}{message[1:]}")


ApiKeys = Annotated[
    tuple[ApiKey, ...], BeforeValidator(_parse_keys, json_schema_input_type=str | ApiKey | list[str | ApiKey])
]


def check_distinct(keys: Mapping[str, Sequence[ApiKey]]) -> None:
    """Raise ValueError if an API key contains characters that a header cannot have, or occurs twice.

    The text names an entry by its number and not by its owner: if a user has swapped key and owner, the name is a
    key."""
    entries: dict[bytes, int] = {}
    for number, owner_keys in enumerate(keys.values(), 1):
        for each in owner_keys:
            if each.key is not None:
                key = each.key.get_secret_value()
                if not key or not key.isascii() or not key.isprintable() or " " in key:
                    raise ValueError(f"the key of entry {number} is not printable ASCII without spaces")
            if each.digest in entries:
                first = entries[each.digest]
                both = f"entry {number} has" if first == number else f"entries {first} and {number} have"
                raise ValueError(f"{both} the same key{' twice' if first == number else ''}")
            entries[each.digest] = number


def is_trusted_url(url: str) -> bool:
    """Return True if a URL leads only to its host, even on a hostile network: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def _issuer_url(value: str) -> str:
    """Return the URL of an issuer unchanged. Tokens are compared with it character by character (OpenID Connect Core
    1.0, 3.1.3.7).

    Raises ValueError unless it is an https URL, or an http URL of this machine."""
    check_http_url(value)
    if not is_trusted_url(value):
        raise ValueError("an https:// URL, or an http:// URL of this machine")
    return value


def _issuer_name(value: str) -> str:
    if not _ISSUER_NAME.fullmatch(value):
        raise ValueError(
            "the name of an issuer is 1 to 32 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends"
        )
    return value


IssuerName = Annotated[str, AfterValidator(_issuer_name)]


def _owner_template(value: str) -> str:
    rest = _CLAIM.sub("", value)
    if not value or not value.isprintable() or "{" in rest or "}" in rest:
        raise ValueError("a text with names of claims in braces, such as {org_id}")
    return value


def _key_set(value: object) -> object:
    """Parse a key set that is written as JSON text. Return a URL or the path of a file unchanged.

    Raises ValueError for text that begins with a brace and is not JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("the text begins with { and is not JSON") from None
    return value


def _check_key_set(value: str | JsonObject) -> str | JsonObject:
    if isinstance(value, str):
        if "://" in value and not is_trusted_url(value):
            raise ValueError("an https:// URL, an http:// URL of this machine, a file, or the key set itself")
        return value
    keys: Any = value.get("keys")
    if not isinstance(keys, list) or not keys:
        raise ValueError("a key set is {keys: [...]} with at least one public key")
    for number, key in enumerate(cast("list[object]", keys), 1):
        if not isinstance(key, dict) or not isinstance(cast("JsonObject", key).get("kty"), str):
            raise ValueError(f"key {number} has no kty")
        if _PRIVATE & cast("JsonObject", key).keys():
            raise ValueError(f"key {number} is private or symmetric: keep only the public keys")
    return value


def _not_empty(values: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    if not values:
        raise ValueError("the list is empty")
    return values


class IssuerSettings(SettingsSection):
    """One issuer of tokens: how its tokens are verified, and which owner, groups and scopes they give their callers."""

    issuer: Annotated[str, AfterValidator(_issuer_url), Field(json_schema_extra={"format": "uri"})]
    """URL of the issuer, exactly as in the claim `iss` of its tokens."""
    audience: Annotated[tuple[str, ...], Field(min_length=1), NoDecode, BeforeValidator(parse_list)]
    """Audiences of accepted tokens: one of them must be in the claim `aud`. Usually the value of `public_url`."""
    algorithms: Annotated[tuple[Algorithm, ...], AfterValidator(_not_empty)] = ("RS256", "PS256", "ES256", "EdDSA")
    """Signature algorithms of accepted tokens: RS, PS or ES with 256, 384 or 512, or EdDSA."""
    owner: Annotated[str, AfterValidator(_owner_template)] | None = None
    """Owner of the data that a caller works on, with names of claims in braces: `{org_id}` gives each organization its
    own data. Callers with the same owner share their data. By default the name of the issuer, `:` and the claim
    `sub`."""
    groups: Annotated[str, Field(min_length=1)] = "groups"
    """Claim with the groups of the caller: a name, or a path such as `realm_access.roles`."""
    scopes: Annotated[str, Field(min_length=1)] | None = None
    """Claim with the scopes of the caller. By default `scope`, or else `scp`."""
    jwks: Annotated[str | JsonObject, BeforeValidator(_key_set), AfterValidator(_check_key_set)] | None = None
    """Public keys of the issuer: a key set (`{keys: [...]}`, also as JSON text), a URL, or a file. By default the
    gateway finds them by the discovery document of the issuer."""
    leeway: Leeway = 60.0
    """Difference of clocks that is tolerated in the times of a token, in seconds or as text such as `60s`."""

    @property
    def discovery_url(self) -> str:
        """URL of the issuer's discovery document (OpenID Connect Discovery 1.0, 4)."""
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"

    @property
    def claims_of_owner(self) -> Sequence[str]:
        """Names of the claims in the template `owner`, such as `org_id`."""
        return _CLAIM.findall(self.owner or "")


def check_owners(
    keys: Mapping[str, object], issuers: Mapping[str, IssuerSettings], *, reserved: Sequence[str] = ()
) -> None:
    """Raise ValueError if an owner in `keys` could also be the default owner of a caller with a token, such as
    `google:123`.

    If `owner` of the issuer is set, the operator decides who shares data, and nothing is checked. `reserved` are names
    such as `mtls`, which replace an issuer for callers with another credential. No issuer may have such a name."""
    for name in reserved:
        if name in issuers:
            raise ValueError(f"issuers: {name} is the name for client certificates; take another name")
    for number, owner in enumerate(keys, 1):
        name, mark, _ = owner.partition(":")
        if mark and name in reserved:
            raise ValueError(
                f"keys, entry {number}: owners that begin with {name}: are callers with a client certificate; take "
                "another name"
            )
        if mark and name in issuers and issuers[name].owner is None:
            raise ValueError(
                f"keys, entry {number}: owners that begin with {name}: are callers of the issuer {name}; take another "
                f"name, or set issuers.{name}.owner"
            )

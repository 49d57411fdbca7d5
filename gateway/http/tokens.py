"""Verification of JSON Web Tokens (RFC 7519) of one issuer, and the principal that results from their claims."""

import base64
import binascii
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final, cast

import jwt

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.fault import INVALID_TOKEN
from babelgate.canonical.value import JsonObject
from babelgate.gateway.http.issuer_keys import IssuerKeys
from babelgate.gateway.key_set import KeysUnavailable
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.credentials import IssuerSettings

log = logging.getLogger("babelgate.credentials")

MAX_TOKEN: Final = 16 * 2**10
"""Maximum length of a token, in bytes. Chosen: tokens with many groups have about 8 KiB, the limit of most servers."""
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Accepted values of the header `typ` (RFC 9068, 4). Others are tokens for another purpose, such as `logout+jwt`."""
_REQUIRED: Final = ("exp", "iss", "aud", "sub")
_CLAIM: Final = re.compile(r"\{([^{}]+)\}")
_OWNER_LENGTH: Final = 128
_ID_LENGTH: Final = 64
"""Maximum length of a token's id in logs, in characters. Chosen: UUIDs have 36."""
_MAX_TIME: Final = 2**53
"""Maximum of a time in a claim, in seconds since 1970: the largest integer that a float can represent exactly."""
_SUBJECT_LENGTH: Final = 255
"""Maximum length of `sub`, in characters (OpenID Connect Core 1.0, 2)."""
_OVERAGE: Final = ("_claim_names", "hasgroups")
"""Claims by which Entra ID says that the caller has too many groups for a token."""


def refusal(reason: str) -> FaultError:
    """Return the error for a token that is not accepted. `reason` is a clause of its text."""
    return FaultError(FaultCode.UNAUTHENTICATED, f"The token is not accepted: {reason}.", reason=INVALID_TOKEN)


def read_unverified(token: bytes) -> tuple[JsonObject, JsonObject]:
    """Return the header and the claims of a token without a check of its signature. Raises unauthenticated for a
    malformed token."""
    if len(token) > MAX_TOKEN:
        raise refusal(f"it is longer than {MAX_TOKEN} bytes")
    parts = token.split(b".")
    if len(parts) != 3:
        raise refusal("it is not a JSON Web Token")
    header, claims, _ = (_decode(part) for part in parts)
    return _parse(header), _parse(claims)


def _decode(part: bytes) -> bytes:
    """Decode base64url without padding (RFC 7515, 2). Raises unauthenticated for any other text."""
    try:
        content = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        content = None
    if content is None or base64.urlsafe_b64encode(content).rstrip(b"=") != part:
        raise refusal("it is not a JSON Web Token")
    return content


def _parse(content: bytes) -> JsonObject:
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise refusal("it is not a JSON Web Token")
    return cast("JsonObject", value)


class TrustedIssuer:
    """Issuer whose tokens the gateway accepts, with its public keys and rules."""

    def __init__(
        self,
        name: str,
        settings: IssuerSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the issuer. `now` is a steady clock, in seconds."""
        self.name = name
        self.url = settings.issuer
        self.keys = IssuerKeys(name, settings, now=now, observer=observer)
        self._settings = settings
        self._warned_of_groups = False
        # An audience that is a URL is the same with and without a final slash: clients add one (mcp 2.3.0).
        self._audiences = [
            form
            for audience in settings.audience
            for form in ((audience.rstrip("/"), f"{audience.rstrip('/')}/") if "://" in audience else (audience,))
        ]

    def has_settings(self, name: str, settings: IssuerSettings) -> bool:
        """Return True if the issuer was created with this name and these settings."""
        return self.name == name and self._settings == settings

    async def verify(self, token: bytes, header: JsonObject, unverified: JsonObject) -> Principal:
        """Verify a token whose `iss` names this issuer, and return its principal.

        Raises unauthenticated, or unavailable if the keys of the issuer are not known.
        """
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise refusal(f"its algorithm is not one of {', '.join(self._settings.algorithms)}")
        if not _has_permitted_type(header):
            raise refusal("it is not an access token")
        if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11: extensions that are not understood
            raise refusal("its header has an extension that is not supported")
        if not (kid is None or isinstance(kid, str)):
            raise refusal("its signature does not match")
        try:
            key = await self.keys.find(kid, algorithm)
        except KeysUnavailable as error:
            raise FaultError(
                FaultCode.UNAVAILABLE,
                f"The keys of the issuer {self.name} cannot be fetched now; try again in {error.retry_after} seconds.",
                retry_after=error.retry_after,
            ) from None
        if key is None:
            raise refusal("its signature does not match")
        return self._principal(self._verified_claims(token, key, algorithm), token)

    def _verified_claims(self, token: bytes, key: Any, algorithm: str) -> JsonObject:
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audiences,
                issuer=self.url,
                leeway=self._settings.leeway,
                options={"require": list(_REQUIRED)},
            )
        except jwt.ExpiredSignatureError:
            raise refusal("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise refusal("it is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise refusal("it is not for this gateway") from None
        except jwt.InvalidIssuerError:
            raise refusal("its issuer is not trusted") from None
        except jwt.MissingRequiredClaimError as error:
            raise refusal(f"it has no claim {error.claim}") from None
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            raise refusal("its signature does not match") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise refusal("it has an invalid claim") from None
        if "cnf" in claims:  # RFC 8705, 3.1 and RFC 9449, 6: anyone who steals it must not be able to use it
            raise refusal("it is bound to a key of its sender, which the gateway does not check")
        return claims

    # Claims

    def _principal(self, claims: JsonObject, token: bytes) -> Principal:
        subject: str = claims["sub"]
        if not 0 < len(subject) <= _SUBJECT_LENGTH or not subject.isprintable():
            raise refusal("it has an invalid claim sub")
        return Principal(
            subject=f"user:{self.name}:{subject}",
            owner=self._owner(claims),
            groups=self._groups(claims),
            scopes=self._scopes(claims),
            issuer=self.name,
            credential_id=_id_of(claims, token),
            expires_at=min(int(claims["exp"]), _MAX_TIME) + self._settings.leeway,
        )

    def _owner(self, claims: JsonObject) -> str:
        def fill(match: re.Match[str]) -> str:
            value = find_claim(claims, match[1])
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                raise refusal(f"it has no claim {match[1]}")
            return str(value)

        template = self._settings.owner
        owner = _CLAIM.sub(fill, template) if template is not None else f"{self.name}:{claims['sub']}"
        if len(owner) > _OWNER_LENGTH or not owner.isprintable():
            raise refusal(f"its owner is not 1 to {_OWNER_LENGTH} printable characters")
        return owner

    def _groups(self, claims: JsonObject) -> frozenset[str]:
        groups = find_claim(claims, self._settings.groups)
        if groups is None and any(name in claims for name in _OVERAGE) and not self._warned_of_groups:
            self._warned_of_groups = True
            log.warning("token has too many groups, none used issuer=%s claim=%s", self.name, self._settings.groups)
        return _names(groups)

    def _scopes(self, claims: JsonObject) -> frozenset[str]:
        path = self._settings.scopes
        scopes = find_claim(claims, path) if path is not None else claims.get("scope", claims.get("scp"))
        return _names(scopes.split() if isinstance(scopes, str) else scopes)


def find_claim(claims: JsonObject, path: str) -> Any:
    """Return the claim with this name, or at this path of names with dots, such as `realm_access.roles`. Return None if
    there is no such claim.

    A name takes precedence, because names can contain dots: `https://example.com/roles`.
    """
    if path in claims:
        return claims[path]
    value: Any = claims
    for step in path.split("."):
        if not isinstance(value, dict) or step not in value:
            return None
        value = cast("JsonObject", value)[step]
    return value


def _names(value: object) -> frozenset[str]:
    entries = [value] if isinstance(value, str) else cast("list[object]", value) if isinstance(value, list) else []
    return frozenset(each for each in entries if isinstance(each, str) and each and each.isprintable())


def _has_permitted_type(header: JsonObject) -> bool:
    kind = header.get("typ")
    return "typ" not in header or (isinstance(kind, str) and kind.lower() in _TYPES)


def _id_of(claims: JsonObject, token: bytes) -> str:
    """Return the id by which logs name a token: its claim `jti`, or the beginning of its digest."""
    token_id = claims.get("jti")
    if isinstance(token_id, str) and 0 < len(token_id) <= _ID_LENGTH and token_id.isascii() and token_id.isprintable():
        return token_id
    return hashlib.sha256(token).hexdigest()[:8]

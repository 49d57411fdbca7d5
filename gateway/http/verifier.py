"""Verification of credentials: finds the principal of a request by the API key, token or client certificate that it
has."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.agent import DEFAULT_OWNER
from babelgate.canonical.fault import INVALID_TOKEN
from babelgate.gateway.admin.key_ring import KeyRing
from babelgate.gateway.http.client_certificate import CertificateGroups, ClientCertificate, refuse
from babelgate.gateway.http.temporary_keys import TemporaryKeys
from babelgate.gateway.http.tls import trust_of
from babelgate.gateway.http.tokens import MAX_TOKEN, TrustedIssuer, read_unverified, refusal
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import MTLS

WITHOUT_CREDENTIALS: Final = Principal(subject="anonymous", owner=DEFAULT_OWNER)
"""Principal of all requests if the settings require no credentials."""
ANONYMOUS: Final = Principal(subject="anonymous", owner="")
"""Principal of a request without a valid credential, to a path that needs no credential."""

_VERIFIED: Final = 10_000
"""Maximum number of verified tokens that are cached. Measured: to verify a token takes 134 µs, to find it in the cache
1 µs, 2026-11."""


class _Verified(NamedTuple):
    """Cached result of a token's verification."""

    principal: Principal
    issuer: TrustedIssuer
    revision: int
    """Revision of the issuer's keys by which the token was verified."""


class Verifier:
    """Verifier of all credentials that one gateway accepts."""

    def __init__(
        self,
        settings: Settings,
        key_ring: KeyRing | None = None,
        *,
        clock: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        previous: "Verifier | None" = None,
        observer: GatewayObserver = NO_OBSERVER,
        temporary_keys: TemporaryKeys | None = None,
    ) -> None:
        """Create the verifier.

        - `key_ring`: keys of the administration API; None if the API is off
        - `clock`: function that returns the time in seconds since 1970
        - `now`: steady clock, in seconds
        - `previous`: earlier verifier; issuers with the same settings are taken from it, with their keys
        - `temporary_keys`: keys of the programs that the gateway has started
        """
        self._clock = clock
        self._key_ring = key_ring
        self._temporary_keys = temporary_keys
        self._keys: dict[bytes, Principal] = {}
        for owner, keys in settings.keys.items():
            for key in keys:
                self._keys[key.digest] = Principal(
                    subject=f"key:{owner}",
                    owner=owner,
                    groups=frozenset(key.groups),
                    scopes=frozenset(key.scopes),
                    credential_id=key.digest.hex()[:8],
                    expires_at=key.expires_at,
                )
        earlier = dict[str, TrustedIssuer]() if previous is None else previous._issuers
        self._issuers: dict[str, TrustedIssuer] = {
            each.issuer: earlier[each.issuer]
            if each.issuer in earlier and earlier[each.issuer].has_settings(name, each)
            else TrustedIssuer(name, each, now=now, observer=observer)
            for name, each in settings.issuers.items()
        }
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._keeps_tokens = any(
            each.auth is not None and each.auth.exchange is not None for each in settings.agents.values()
        )
        """True if an agent may need the token of its caller (`auth.exchange`), so that principals contain the token."""
        self.is_required = settings.has_credentials
        """True if the settings require a credential of every caller."""
        self.trust = trust_of(settings.tls)
        """Digest of the CAs by which client certificates are verified; empty if the gateway accepts none as
        credentials."""
        self._certificate_groups = CertificateGroups(settings.tls)

    async def verify(self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None) -> Principal:
        """Return the principal of a request. `headers` have lower-case names, and `certificate` is that of the
        connection.

        A key or token in the headers takes precedence over the certificate, because a program may call for others.
        Raises unauthenticated, or unavailable if the keys of the token's issuer are not known.
        """
        if not self.is_required:
            return WITHOUT_CREDENTIALS
        scheme, credential = _credential_in(headers)
        if not credential and certificate is not None and self.trust:
            return self._verify_certificate(certificate)
        digest = hashlib.sha256(credential).digest()
        principal = self._keys.get(digest)
        if principal is None and self._key_ring is not None:
            principal = self._key_ring.find(digest)
        if principal is None and self._temporary_keys is not None:
            principal = self._temporary_keys.find(digest)
        if principal is None:
            if self._issuers and scheme == b"bearer" and credential.count(b".") == 2:
                principal = await self._verify_token(credential)
                return principal.with_token(credential.decode("ascii")) if self._keeps_tokens else principal
            raise self._refusal(is_sent=bool(credential))
        if principal.expires_at is not None and principal.expires_at <= self._clock():
            raise FaultError(
                FaultCode.UNAUTHENTICATED, "The API key is not accepted: it has expired.", reason=INVALID_TOKEN
            )
        return principal

    def _verify_certificate(self, certificate: ClientCertificate) -> Principal:
        if certificate.trust != self.trust:
            raise refuse("it was verified with earlier settings of tls: open a new connection")
        if certificate.expires_at <= self._clock():
            raise refuse("it has expired")
        return self._certificate_groups.add_to(certificate.principal)

    def method_of(self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None) -> str:
        """Return the kind of credential of a request: `key`, `token`, `certificate` or `none`."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if self.is_ambient(headers, certificate):
            return "certificate"
        if scheme.lower() == b"bearer":
            return "token" if self._issuers and token.count(b".") == 2 else "key"
        return "key" if b"x-api-key" in headers else "none"

    def is_ambient(self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None) -> bool:
        """Return True if the request has only a client certificate as a credential, which browsers send for every
        page."""
        return bool(certificate is not None and self.trust and not _credential_in(headers)[1])

    def find_current(self, principal: Principal, previous: "Verifier") -> Principal | None:
        """Return the principal that belongs now to a credential which the `previous` verifier has accepted.

        Return None if the credential is no longer accepted. A token of an issuer whose settings have changed needs
        another verification, so None is returned for it, too.
        """
        if principal.issuer == MTLS:
            is_same = self.trust and self.trust == previous.trust
            return self._certificate_groups.add_to(principal) if is_same else None
        if principal.issuer:
            is_same = self._find_issuer(principal.issuer) is previous._find_issuer(principal.issuer)
            return principal if is_same else None
        if not principal.credential_id:
            return None if self.is_required else principal
        if self._key_ring is not None and self._key_ring.has_principal(principal):
            return principal
        same = (principal.subject, principal.credential_id)
        return next((each for each in self._keys.values() if (each.subject, each.credential_id) == same), None)

    def _find_issuer(self, name: str) -> TrustedIssuer | None:
        return next((each for each in self._issuers.values() if each.name == name), None)

    def _refusal(self, *, is_sent: bool) -> FaultError:
        if not self._issuers and not self._keys and self.trust:
            text = "A client certificate is needed: open the connection with one that a CA of this gateway has signed."
        elif not self._issuers:
            text = "An API key is needed: send Authorization: Bearer <key>, or X-Api-Key: <key>."
        elif not self._keys:
            text = "A token is needed: send Authorization: Bearer <token>."
        else:
            text = "An API key or a token is needed: send Authorization: Bearer <key or token>, or X-Api-Key: <key>."
        if self.trust and (self._issuers or self._keys):
            text = f"{text.removesuffix('.')}, or use a client certificate."
        details: dict[str, Any] = {"reason": INVALID_TOKEN} if is_sent and self._issuers else {}
        return FaultError(FaultCode.UNAUTHENTICATED, text, **details)

    async def _verify_token(self, token: bytes) -> Principal:
        if len(token) > MAX_TOKEN:
            raise refusal(f"it is longer than {MAX_TOKEN} bytes")
        digest = hashlib.sha256(token).digest()
        verified = self._verified.get(digest)
        if verified is not None and self._is_current(verified):
            verified.issuer.keys.refresh()
            return verified.principal
        header, claims = read_unverified(token)
        name = claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None  # a list as `iss` cannot be looked up
        if issuer is None:
            raise refusal("its issuer is not trusted")
        principal = await issuer.verify(token, header, claims)
        self._verified.pop(digest, None)
        self._verified[digest] = _Verified(principal, issuer, issuer.keys.revision)
        if len(self._verified) > _VERIFIED:
            self._verified.popitem(last=False)
        return principal

    def _is_current(self, verified: _Verified) -> bool:
        expires_at = verified.principal.expires_at
        is_valid = expires_at is not None and self._clock() < expires_at
        keys = verified.issuer.keys
        return is_valid and keys.is_usable and verified.revision == keys.revision

    async def aclose(self, successor: "Verifier | None" = None) -> None:
        """Cancel the fetches of keys, except those of issuers that the `successor` has taken over."""
        used_ids = set[int]() if successor is None else {id(each) for each in successor._issuers.values()}
        for issuer in self._issuers.values():
            if id(issuer) not in used_ids:
                await issuer.keys.aclose()


def _credential_in(headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the scheme of `Authorization` in lower case, and the key or token of a request. Both are empty if the
    request has none."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    scheme = scheme.lower()
    return scheme, token.strip() if scheme == b"bearer" else headers.get(b"x-api-key", b"")

"""Settings of one generation that apply to requests: credentials, host names, origins, and the base URL of
responses."""

import ipaddress
import logging
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.server.caller import Authentication, Issuer
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.console.pages import is_console, is_static
from babelgate.gateway.http.host import Hosts
from babelgate.gateway.http.response import Scope
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.runs.consents import CALLBACK
from babelgate.gateway.settings.access import scopes_of
from babelgate.gateway.settings.fields import IPNetwork, split_listen
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.signing_keys import SigningKey, SigningKeyError, SigningKeys, read_signing_key

log = logging.getLogger("babelgate")

JWKS_PATH: Final = "/.well-known/jwks.json"
"""Path at which the gateway publishes its public keys. It needs no credential."""
_OPEN: Final = tuple(
    path.split("/")
    for path in (
        "/healthz",
        "/readyz",
        JWKS_PATH,
        CALLBACK,
        *(path for adapter in ADAPTERS for path in adapter.open_paths),
    )
)
"""Paths that need no credential, each split into segments."""
_LOGIN: Final = tuple(path.split("/") for adapter in ADAPTERS for path in adapter.login_paths)
"""Paths that need no credential if the gateway accepts tokens, each split into segments."""
_ORIGIN_CHECKED: Final = tuple(prefix for adapter in ADAPTERS if adapter.checks_origin for prefix in adapter.prefixes)
_LOOPBACK: Final = re.compile(r"^https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$")
_LOOPBACK_HOST: Final = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$", re.IGNORECASE)
_HTTP_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
"""Schemes of URLs in responses, by the scheme of the request: `http` for `ws`, for example."""
_PREFIX: Final = re.compile(r"(/[\w.-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Checks of requests by the settings of one generation. A request uses the same `Front` from its start to its
    end."""

    registry: Registry
    verifier: Verifier
    authentication: Authentication
    signing_keys: SigningKeys | None
    """Private keys of `signing.keys`; None if there are none."""
    hosts: Hosts
    origins: Set[str]
    """Origins whose pages may call the gateway (`cors`). If empty, pages of this machine may call it."""
    public_url: str | None
    public_origin: str | None
    """Origin of `public_url`, in lower case; None if that is not set."""
    rpc_port: int | None
    """Port of the gRPC server; None if there is none."""
    rpc_address: str | None
    """Host and port in `grpc.address`; None if that is not set."""
    proxies: Sequence[IPNetwork]
    open_paths: Sequence[Sequence[str]]
    forwarded: Set[str]
    """Names of the request headers that the settings of any agent forward, in lower case."""
    state: Mapping[str, Any]
    """Values that are added to the state of every request, for the adapters."""

    @classmethod
    def of(cls, settings: Settings, registry: Registry, verifier: Verifier) -> "Front":
        """Return the checks for these settings and agents. Raises invalid for an unusable file in `signing.keys`."""
        public_url = settings.public_url.rstrip("/") if settings.public_url else None
        authentication = _authentication_of(settings)
        return cls(
            registry=registry,
            verifier=verifier,
            authentication=authentication,
            signing_keys=_read_signing_keys(settings.signing.keys, public_url),
            hosts=Hosts.of(settings),
            origins=frozenset(settings.cors),
            public_url=public_url,
            public_origin="/".join(public_url.split("/")[:3]).lower() if public_url else None,
            rpc_port=None if settings.grpc.listen is None else split_listen(settings.grpc.listen)[1],
            rpc_address=settings.grpc.address,
            proxies=settings.trusted_proxies,
            open_paths=(*_OPEN, *(_LOGIN if settings.issuers else ())),
            forwarded=frozenset(name for agent in settings.agents.values() for name in agent.forwarded_names),
            state={
                "body_limit": settings.limits.body,
                "values_limit": settings.limits.values,
                "has_siblings": settings.workers > 1,
                "authentication": authentication,
            },
        )

    @property
    def signer(self) -> SigningKeys | None:
        """Signer of agent cards. It is None without keys, and without `public_url`: a signed card must not contain a
        URL that an untrusted client chose."""
        return None if self.public_url is None else self.signing_keys

    def is_open(self, path: str) -> bool:
        """Return True if a path needs no credential. `{agent}` in an open path matches any name."""
        if is_static(path):
            return True
        segments = path.split("/")
        return any(
            len(segments) == len(open_path)
            and all(
                part == sent or (part == "{agent}" and sent) for part, sent in zip(open_path, segments, strict=True)
            )
            for open_path in self.open_paths
        )

    def check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Check that the gateway accepts the host names of the request. Raises forbidden for any other host name.

        A host that a trusted proxy forwards is checked, too: the proxy may pass on a header of the caller.
        """
        local = (scope.get("server") or (None,))[0]
        for raw_host in self._called_hosts(scope, headers):
            host = raw_host.decode("latin-1")
            if not self.hosts.is_permitted(host, local):
                raise FaultError(
                    FaultCode.FORBIDDEN,
                    f"Unknown host {host[:100]!r}: add it to hosts in the settings, or set public_url.",
                )

    def _called_hosts(self, scope: Scope, headers: Mapping[bytes, bytes]) -> list[bytes]:
        """Return the host names of the request, with ports: that of `Host`, and that of `X-Forwarded-Host` from a
        trusted proxy."""
        hosts = [headers.get(b"host", b"")]
        if self._is_proxied(scope):
            hosts.append(headers.get(b"x-forwarded-host", b"").split(b",")[0].strip())
        return hosts

    def is_foreign(self, headers: Mapping[bytes, bytes], *, is_ambient: bool = False) -> bool:
        """Return True if a request without an Origin header may come from a page that is not allowed to call the
        gateway. Such a request may only read.

        Browsers send no Origin with a GET for an image or a new window, but state whether it comes from the same origin
        (Fetch Metadata §2.3). `is_ambient` is true for a caller that is known by its client certificate, which browsers
        show for every page.
        """
        if (self.verifier.is_required and not is_ambient) or b"origin" in headers:
            return False
        return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")

    def check_origin(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes], *, is_ambient: bool = False
    ) -> None:
        """Check that a page of the request's origin may call the gateway. Raises unauthenticated, with the `reason`
        `origin`.

        Without API keys, every page that is open in a browser on this machine could call the gateway, because a POST of
        plain text needs no preflight. But browsers send the page's origin.

        With API keys, a page has no key to send. The origin is checked only for protocols that require it. There, pages
        from the host that they call are allowed, too.

        `is_ambient` is true for a caller that is known by its client certificate alone, which browsers send for every
        page. Then the origin is checked for all protocols. Pages from the host that they call are allowed, because the
        browser has verified the gateway's certificate for this host.
        """
        origin = headers.get(b"origin")
        if origin is None or self._is_permitted(origin.decode("latin-1")):
            return
        if (is_ambient or not self.hosts.is_open) and not self._is_elsewhere(scope, headers, origin):
            return  # the gateway's own page, the console: `check_host` has accepted the name
        is_keyed = self.verifier.is_required and not is_ambient
        if is_keyed and not (_checks_origin(path) and self._is_elsewhere(scope, headers, origin)):
            return
        raise FaultError(
            FaultCode.UNAUTHENTICATED,
            "Pages of this origin may not call the gateway: add it to cors in the settings.",
            reason="origin",
        )

    def has_own_origin(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if the Origin header of a request names the gateway: by `public_url`, or by the host that the
        request calls."""
        origin = headers.get(b"origin", b"")
        return origin.decode("latin-1") == self.public_origin or not self._is_elsewhere(scope, headers, origin)

    def _is_elsewhere(self, scope: Scope, headers: Mapping[bytes, bytes], origin: bytes) -> bool:
        """Return True if the host of an origin is not a host name of the request."""
        host = origin.partition(b"://")[2].lower()
        return not host or host not in (called.lower() for called in self._called_hosts(scope, headers))

    def base_url(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return the base URL under which the caller reaches the gateway.

        The Host header is trusted only if it names loopback, or comes through a trusted proxy: responses must not
        contain addresses that an untrusted client chose.
        """
        if self.public_url is not None:
            return self.public_url
        scheme = _HTTP_SCHEMES.get(scope.get("scheme", "http"), "http")
        host = headers.get(b"host", b"").decode("latin-1")
        if self._is_proxied(scope):
            proto = headers.get(b"x-forwarded-proto", scheme.encode()).decode("latin-1").split(",")[0].strip()
            forwarded = headers.get(b"x-forwarded-host", host.encode("latin-1")).decode("latin-1").split(",")[0].strip()
            prefix = headers.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
            if proto in ("http", "https") and re.fullmatch(r"[\w.\-\[\]:]+", forwarded):
                return f"{proto}://{forwarded}{prefix if _PREFIX.fullmatch(prefix) else ''}"
        if _LOOPBACK_HOST.match(host):
            return f"{scheme}://{host}"
        address, port = scope.get("server") or ("127.0.0.1", None)
        return f"{scheme}://{f'[{address}]' if ':' in address else address}{f':{port}' if port else ''}"

    def find_rpc_address(self, base_url: str) -> str | None:
        """Return the host and port at which a caller of `base_url` reaches the gRPC server; None if there is none."""
        if self.rpc_port is None or self.rpc_address is not None:
            return self.rpc_address
        host = urlsplit(base_url).hostname or ""
        return f"[{host}]:{self.rpc_port}" if ":" in host else f"{host}:{self.rpc_port}"

    def _is_proxied(self, scope: Scope) -> bool:
        client = scope.get("client")
        return bool(self.proxies and client and _within(client[0], self.proxies))

    def is_granted(self, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if the response may have CORS headers: the request comes from a page of another origin that may
        call the gateway.

        Always False for the paths of the console, which only its own page calls.
        """
        origin = headers.get(b"origin")
        return origin is not None and not is_console(path) and self._is_permitted(origin.decode("latin-1"))

    def _is_permitted(self, origin: str) -> bool:
        if origin == self.public_origin:
            return True
        if self.origins:
            return origin in self.origins or "*" in self.origins
        return _LOOPBACK.fullmatch(origin) is not None


def _read_signing_keys(paths: Sequence[Path], public_url: str | None) -> SigningKeys | None:
    """Read the private keys of the settings, and log their ids. Raises invalid if a file is not a usable key."""
    if not paths:
        return None
    keys: list[SigningKey] = []
    for number, path in enumerate(paths):
        try:
            keys.append(read_signing_key(path))
        except SigningKeyError as error:
            raise FaultError(FaultCode.INVALID, f"signing.keys.{number}: {error}") from None
    signing_keys = SigningKeys(keys, None if public_url is None else f"{public_url}{JWKS_PATH}")
    log.info("signing keys read kids=%s", ",".join(signing_keys.kids))
    if public_url is None:
        log.warning("cards not signed reason=%r", "public_url is not set")
    return signing_keys


def _within(address: str, networks: Sequence[IPNetwork]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):  # a dual-stack socket reports 10.0.0.1 as ::ffff:10.0.0.1
        parsed = parsed.ipv4_mapped or parsed
    return any(parsed in network for network in networks)


def _checks_origin(path: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in _ORIGIN_CHECKED)


def _authentication_of(settings: Settings) -> Authentication:
    issuers = [Issuer(name, each.issuer, each.discovery_url, each.audience) for name, each in settings.issuers.items()]
    return Authentication(
        accepts_keys=bool(settings.keys), issuers=tuple(issuers), scopes=tuple(scopes_of(settings.access))
    )

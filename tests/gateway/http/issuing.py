"""An issuer of tokens for tests: its keys, its tokens, and its documents on loopback."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from tests.serving import listen, serving

AUDIENCE: Final = "https://agents.example.com"


def private_key(algorithm: str, number: int = 0) -> Any:
    """Return a private key for an algorithm. Keys with different numbers are different."""
    return _make_key(algorithm, number)


@cache
def _make_key(algorithm: str, number: int) -> Any:
    match algorithm[:2]:
        case "ES":
            return ec.generate_private_key(ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1())
        case "Ed":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_key(algorithm: str = "RS256", number: int = 0, **members: Any) -> dict[str, Any]:
    """Return the JSON Web Key of a private key, with the id `<algorithm>-<number>`."""
    method: Any = get_default_algorithms()[algorithm]
    key = json.loads(method.to_jwk(private_key(algorithm, number).public_key()))
    key.pop("key_ops", None)
    return {**key, "kid": f"{algorithm}-{number}", "use": "sig", **members}


class Issuing:
    """An issuer whose documents a test can change."""

    def __init__(self, url: str = "https://login.example.com") -> None:
        self.url = url
        self.keys: list[dict[str, Any]] = [public_key()]
        self.fetches: list[str] = []
        """Paths of the requests so far."""
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.documents: dict[str, Any] = {}
        """Documents that replace the usual ones, by path: JSON values, or bytes."""

    def token(
        self, algorithm: str = "RS256", number: int = 0, headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a signed token. `claims` and `headers` replace the usual ones; those whose value is None are
        omitted."""
        now = int(time.time())
        values = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600, **claims}
        header = {"kid": f"{algorithm}-{number}", "typ": "JWT", **(headers or {})}
        return sign(
            {name: value for name, value in values.items() if value is not None},
            private_key(algorithm, number),
            algorithm,
            {name: value for name, value in header.items() if value is not None},
        )

    def settings(self, **members: Any) -> dict[str, Any]:
        """Return the settings of the issuer, with discovery."""
        return {"issuer": self.url, "audience": [AUDIENCE], **members}

    def inline(self, **members: Any) -> dict[str, Any]:
        """Return the settings of the issuer, with its keys."""
        return self.settings(jwks={"keys": self.keys}, **members)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request for a document."""
        path = scope["path"]
        self.fetches.append(path)
        body = self._document(path)
        status = 404 if body is None else self.status
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _document(self, path: str) -> Any:
        if path in self.documents:
            return self.documents[path]
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        return {"keys": self.keys} if path == "/keys" else None


def sign(claims: object, key: Any, algorithm: str, headers: Mapping[str, Any]) -> str:
    """Return a signed token with exactly these claims and headers, valid or not."""
    method: Any = get_default_algorithms()[algorithm]
    parts = [_encode(json.dumps(part).encode()) for part in ({"alg": algorithm, **headers}, claims)]
    return ".".join((*parts, _encode(method.sign(".".join(parts).encode(), key))))


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


@asynccontextmanager
async def issuing() -> AsyncGenerator[Issuing]:
    """Serve an issuer on a free port of loopback."""
    listener = listen()
    host, port = listener.getsockname()
    issuer = Issuing(f"http://{host}:{port}")
    async with serving(issuer, listener):
        yield issuer


def bearer(token: str) -> dict[bytes, bytes]:
    """Return the headers of a request with a token."""
    return {b"authorization": f"Bearer {token}".encode()}

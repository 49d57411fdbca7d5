"""HTTP clients for servers on loopback."""

import ssl
from typing import Any, Final

import httpx

_TRUSTS_NOBODY: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""The certificates of the world's authorities take 30 ms to load, which is more than most tests take."""


def client(**options: Any) -> httpx.AsyncClient:
    """One that speaks plain HTTP and goes through no proxy of the environment. `options` are httpx's own."""
    return httpx.AsyncClient(verify=_TRUSTS_NOBODY, trust_env=False, **options)

"""HTTP clients for servers on loopback."""

from typing import Any

import httpx

from tests.transport import Transport


def client(**options: Any) -> httpx.AsyncClient:
    """One that speaks plain HTTP and goes through no proxy of the environment. `options` are httpx's own."""
    return httpx.AsyncClient(transport=Transport(), trust_env=False, **options)

"""TLS of the requests to a judged server."""

import ssl
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Final

import httpx

EXTRA_CA: Final[ContextVar[Path | None]] = ContextVar("judged_extra_ca", default=None)
"""File with CAs or certificates of servers that are trusted in addition to those of the system."""


def open_context() -> ssl.SSLContext:
    """Return the TLS context for requests in this context. It trusts the CAs of the system, or those of SSL_CERT_FILE.
    Raises OSError if a file cannot be used."""
    return _open(EXTRA_CA.get())


@cache
def _open(extra: Path | None) -> ssl.SSLContext:
    """Create a context once: loading the certificates takes longer than many requests. Raises OSError."""
    context = httpx.create_ssl_context()
    if extra is not None:
        context.load_verify_locations(cafile=extra)
        # A certificate in the file is trusted even if it is not that of a CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    return context

"""TLS settings for requests to a judged server."""

import os
import ssl
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Final

import httpx

EXTRA_CA: Final[ContextVar[Path | None]] = ContextVar("judged_extra_ca", default=None)
"""PEM file with certificates of CAs or servers that are trusted in addition to those of the system; None if there is
none."""

CLIENT_FILES: Final[ContextVar[tuple[Path, Path | None] | None]] = ContextVar("judged_client_files", default=None)
"""File with the client certificate for servers that request one, and the file with its key unless both are in one."""

PINNED: Final = "BABELGATE_PINNED_CERTIFICATE"
"""Environment variable that names a PEM file. The first certificate in it is the only one that is trusted, at any
address. A gateway sets the variable for programs that call it: its certificate has the host name for callers, and not
the address of its process."""
_END: Final = "-----END CERTIFICATE-----"


def open_context() -> ssl.SSLContext:
    """Return the TLS context for requests. It trusts the certificate of PINNED if that is set, else the CAs of the
    system (or of SSL_CERT_FILE) and those of EXTRA_CA. Raises OSError if a file cannot be used."""
    pinned = os.environ.get(PINNED)
    return _open(EXTRA_CA.get(), CLIENT_FILES.get()) if pinned is None else pin_certificate(Path(pinned))


def pin_certificate(path: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the first certificate in a PEM file, at any address. Raises OSError if the
    file cannot be used."""
    leaf = path.read_text(encoding="ascii", errors="replace").partition(_END)[0] + _END
    context = ssl.create_default_context(cadata=leaf)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@cache
def _open(extra: Path | None, client: tuple[Path, Path | None] | None) -> ssl.SSLContext:
    """Return the TLS context for these files. It is created once, because loading the certificates takes longer than
    many requests. Raises OSError if a file cannot be used."""
    context = httpx.create_ssl_context()
    if extra is not None:
        context.load_verify_locations(cafile=extra)
        # A certificate in the file is trusted even if it is not that of a CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if client is not None:
        context.load_cert_chain(*client)
    context.set_alpn_protocols(["http/1.1"])
    return context

"""Certificates of a command's https connections: those that it trusts, and the one that it presents."""

import ssl
from pathlib import Path

from babelgate.adapters.kit.client.tls import CLIENT_FILES, EXTRA_CA, load_client
from babelgate.conformance.wire import tls as conformance_tls
from babelgate.gateway.cli.errors import USAGE, CliError


def trust_file(path: Path) -> None:
    """Make all connections of this command trust the certificates in a file. Raises CliError if the file cannot be read
    or has no certificates."""
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise CliError(f"--ca {path}: it has no certificate in PEM form", code=USAGE) from None
    except OSError as error:
        raise CliError(f"--ca {path}: it cannot be read: {error.strerror}", code=USAGE) from None
    EXTRA_CA.set(path.absolute())
    conformance_tls.EXTRA_CA.set(path.absolute())


def present_certificate(cert: Path | None, key: Path | None) -> None:
    """Make all connections of this command present a client certificate to servers that request one. Without `key`, the
    private key is in the file of the certificate. Raises CliError for a file that cannot be used, and for a key without
    a certificate."""
    if cert is None:
        raise CliError("--client-key needs --client-cert, the certificate of the key", code=USAGE)
    files = cert.absolute(), None if key is None else key.absolute()
    for option, path in (("--client-cert", cert), ("--client-key", key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise CliError(f"{option} {path}: it cannot be read: {error.strerror}", code=USAGE) from None
    try:
        load_client(ssl.create_default_context(), files)
    except OSError as error:
        is_openssl = isinstance(error, ssl.SSLError)
        reason = "its certificate and its key do not fit, or are not in PEM form" if is_openssl else str(error)
        raise CliError(f"--client-cert {cert}: {reason}", code=USAGE) from None
    CLIENT_FILES.set(files)
    conformance_tls.CLIENT_FILES.set(files)

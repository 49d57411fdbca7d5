"""Certificates that a command trusts for https because of its option `--ca`."""

import ssl
from pathlib import Path

from babelgate.adapters.kit.client.tls import EXTRA_CA
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

"""Options of commands that call servers with https: the trusted certificates, and the client certificate."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

_Path: Final = click.Path(path_type=Path)


def _trust(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Load the certificates in the file of `--ca`. Raises CliError if the file cannot be used."""
    if path is not None:
        from babelgate.gateway.cli.trust import trust_file

        trust_file(path)
    return path


_ca: Final = click.option(
    "--ca",
    type=_Path,
    metavar="FILE",
    expose_value=False,
    callback=_trust,
    help="File with CAs or certificates of servers to trust for https, besides those of the system.",
)
_cert: Final = click.option(
    "--client-cert", type=_Path, metavar="FILE", help="File with the client certificate to present to servers."
)
_key: Final = click.option(
    "--client-key",
    type=_Path,
    metavar="FILE",
    help="File with the private key of the client certificate. By default the key is in the file of the certificate.",
)


def tls_options(command: C) -> C:
    """Add the options to a command. The command is called when the files are loaded."""

    @wraps(command)
    def call(*arguments: Any, client_cert: Path | None, client_key: Path | None, **more: Any) -> Any:
        if client_cert is not None or client_key is not None:
            from babelgate.gateway.cli.trust import present_certificate

            present_certificate(client_cert, client_key)
        return command(*arguments, **more)

    return _ca(_cert(_key(call)))  # pyright: ignore[reportReturnType]

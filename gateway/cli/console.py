"""`babelgate console`: print the URL of a running gateway's console, and open it in a browser."""

import webbrowser
from typing import Final
from urllib.parse import urlsplit

import click
import httpx

from babelgate.adapters.kit.client.tls import default_context, explain_failure
from babelgate.gateway.cli.errors import USAGE, CliError

_TIMEOUT: Final = 10.0
"""Maximum seconds to wait for the gateway's response. Chosen: the gateway answers from memory."""


def show_console(url: str, *, opens: bool) -> None:
    """Print the URL of the console of the gateway at `url`, and open it in a browser if `opens` is true. Raises
    CliError if the gateway serves no console."""
    base = _without_credentials(url)
    page = f"{base}/console/"
    try:
        status = httpx.get(page, timeout=_TIMEOUT, verify=default_context()).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = (
            explain_failure(error, base, remedy="give --ca", identify="give --client-cert")
            or str(error)
            or type(error).__name__
        )
        raise CliError(
            f"no gateway answers at {base}: {reason}. Start one with babelgate serve, or name its URL with --url"
        ) from None
    if status != 200:
        raise CliError(f"{page}: status {status}: the server is no gateway, or console is false in its settings")
    click.echo(page)
    if opens and not webbrowser.open(page):
        click.echo("No browser was found here: open this URL in one.", err=True)


def _without_credentials(url: str) -> str:
    """Return the base URL of a gateway without a user and password, which must not be printed, and without a query.
    Raises CliError for a text that is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise CliError("--url: this is no URL", code=USAGE) from None
    if parts.scheme not in ("http", "https"):
        raise CliError("--url: a URL begins with http:// or https://", code=USAGE)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"

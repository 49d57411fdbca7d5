"""`babelgate keys`: make API keys."""

import json
import re
from typing import Final

import click

from babelgate.gateway.api_key import digest_of, make_key

_PLAIN_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
"""Names that are text in YAML without quotes."""


def new_key(owner: str | None) -> None:
    """Print a new key, and the line for it in babelgate.yaml, which does not contain the key. `owner` is the owner in
    that line, if given."""
    key = make_key()
    record = f'{{hash: "sha256:{digest_of(key)}"}}'
    click.echo("API key, which is not stored:", err=True)
    click.echo(key)
    click.echo("Record for keys in babelgate.yaml:", err=True)
    click.echo(record if owner is None else f"{_quote(owner)}: {record}")


def _quote(owner: str) -> str:
    is_word = owner.lower() in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return owner if _PLAIN_NAME.fullmatch(owner) and not is_word else json.dumps(owner, ensure_ascii=False)

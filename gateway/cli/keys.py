"""`babelgate keys`: make API keys."""

import json
import re
from typing import Final

import click

from babelgate.gateway.api_key import digest_of, make_key

_PLAIN_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
"""Owner names that YAML reads as text without quotes."""


def new_key(owner: str | None) -> None:
    """Print a new API key, and the record for babelgate.yaml, which has its digest instead. `owner` is the owner in
    that record; None prints it without an owner."""
    key = make_key()
    record = f'{{hash: "sha256:{digest_of(key)}"}}'
    click.echo("API key, which is not stored:", err=True)
    click.echo(key)
    click.echo("Record for keys in babelgate.yaml:", err=True)
    click.echo(record if owner is None else f"{_quote(owner)}: {record}")


def _quote(owner: str) -> str:
    is_word = owner.lower() in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return owner if _PLAIN_NAME.fullmatch(owner) and not is_word else json.dumps(owner, ensure_ascii=False)

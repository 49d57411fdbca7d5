"""Removal of secrets from settings and text, before either leaves the operator's machine.

There are two barriers: `redact` shows no value that may be a secret, and `Scrubber` removes all known secrets from any
text, such as log lines."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.secret_files import SecretFileError, read_secret

HIDDEN: Final = "***"
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|authorization|credential|cookie|private|api_?key|^hash$|^key$", re.I
)
"""Pattern of the names of settings whose values may be secrets."""
_FREE: Final = frozenset({"headers", "options"})
"""Names of settings whose members have any name and any value, so all values are hidden."""
_PUBLIC_URLS: Final = frozenset({"public_url", "issuer", "cors", "artifacts"})
"""Names of settings with URLs that are public, or cannot contain a secret."""
_SHORTEST: Final = 4
"""Minimum length of a secret that is removed from text, in characters. Chosen: a shorter one would also be removed from
inside of ordinary words."""
_LONG: Final = 16
"""Minimum length, in characters, of a path segment in a URL or a line of a secret file that is removed from text as a
separate secret. Chosen."""
_PATTERNS: Final = (
    re.compile(r"\bbg_[\w-]{40,}"),
    re.compile(r"\bwhsec_[\w+/=-]+"),
    re.compile(r"\beyJ[\w-]*\.[\w-]*\.[\w-]*"),
    re.compile(r"(?<=\bBearer )[^\s,\"']{8,}", re.I),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?<=password=)[^&\s\"']+"),
)
"""Patterns of text that is removed because of its form: API keys, secrets of webhooks, JSON Web Tokens, bearer tokens,
and passwords in URLs."""
_VARIABLE: Final = re.compile(r"\$\{(?:file:([^}]*)|([A-Za-z_][A-Za-z0-9_]*))\}")


def redact(settings: Settings) -> JsonObject:
    """Return the settings as JSON, with `***` instead of each value that may be a secret.

    URLs that are not public are cut after the host, because the path may be a secret. Owners in `keys` are shown as
    numbers: if a user has swapped an owner and its API key, the name of the owner is the key. Values from secret files
    are never shown.
    """
    values = settings.references.hide(settings.model_dump(mode="json"), HIDDEN)
    redacted = cast("JsonObject", _redact("", values))
    redacted["keys"] = {
        f"entry {number}": [{**each, "key": HIDDEN, "hash": HIDDEN} for each in records]
        for number, records in enumerate(redacted["keys"].values(), 1)
    }
    return redacted


def _redact(name: str, value: object) -> object:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        if name in _FREE:
            return dict.fromkeys(members, HIDDEN)
        return {key: _redact(key, each) for key, each in members.items()}
    if isinstance(value, (list, tuple)):
        return [_redact(name, each) for each in cast("Iterable[object]", value)]
    if not isinstance(value, str):
        return value
    if _SECRET_NAME.search(name):
        return HIDDEN
    return value if name in _PUBLIC_URLS else _origin(value)


def _origin(text: str) -> str:
    """Return only scheme, host and port of a URL, with `…` for a path. Other text, such as the path of a file, is
    unchanged."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "sqlite":
        return text
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].rpartition("@")[2].partition("/")
    return f"{scheme}://{place}{slash}{'…' if path else ''}"


class Scrubber:
    """Filter that removes secrets from text: known ones, and all text that has the form of a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        words = sorted({each for each in secrets if len(each) >= _SHORTEST}, key=len, reverse=True)
        self._words = words
        """Secrets to remove, the longest first, because a shorter one may be a part of a longer one."""

    @classmethod
    def of(cls, settings: Settings | None, file: Path | None, *others: str) -> "Scrubber":
        """Create a filter for the secrets in the settings, the values of all `${VAR}` and `${file:…}` in the file, and
        `others`.

        `settings` is None if they have errors, and `file` is None if there is no file."""
        references = () if settings is None else settings.references.secrets
        return cls((*_secrets_of(settings), *references, *_filled_values(file), *others))

    def clean(self, text: str) -> str:
        """Return the text with `***` instead of each secret."""
        for word in self._words:
            text = text.replace(word, HIDDEN)
        for pattern in _PATTERNS:
            text = pattern.sub(HIDDEN, text)
        return text


def _secrets_of(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        yield secret
        yield secret.rpartition(" ")[2]  # of `Bearer …` also the token alone
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields.keys() - _PUBLIC_URLS:
            yield from _secrets_of(getattr(value, name))
    elif isinstance(value, Mapping):
        yield from _secrets_of(list(cast("Mapping[object, object]", value).values()))
    elif isinstance(value, (list, tuple)):
        for each in cast("Iterable[object]", value):
            yield from _secrets_of(each)
    elif isinstance(value, str) and "://" in value:
        yield from _secrets_of_url(value)


def _secrets_of_url(url: str) -> Iterator[str]:
    place, _, query = url.partition("://")[2].partition("?")
    password = place.rpartition("@")[0].partition(":")[2]
    yield from (password, unquote(password))
    for pair in query.split("&"):
        value = pair.partition("=")[2]
        yield from (value, unquote(value))
    # A long segment of a path may be the secret of an agent's server.
    yield from (segment for segment in place.split("/")[1:] if len(segment) >= _LONG)


def _filled_values(file: Path | None) -> Iterator[str]:
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for path, variable in _VARIABLE.findall(text):
        if variable:
            yield os.environ.get(variable, "")
            continue
        with suppress(SecretFileError):
            content = read_secret(path)
            yield content
            yield from (line for line in content.splitlines() if len(line) >= _LONG)

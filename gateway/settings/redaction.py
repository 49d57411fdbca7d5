"""Settings without their secrets, and text without the secrets of the settings: what may leave the operator's machine.

Two barriers: `redact` shows no value that may be a secret, and `Scrubber` removes the secrets that are known from
any text, such as log lines.
"""

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
"""Names of members whose value may be a secret."""
_FREE: Final = frozenset({"headers", "options"})
"""Names of mappings whose values are free text."""
_PUBLIC_URLS: Final = frozenset({"public_url", "issuer", "cors", "artifacts"})
"""Names of members whose URLs are public, or have no place for a secret."""
_SHORTEST: Final = 4
"""Minimum length of a secret that is removed from text, in characters. A shorter one would also remove other words."""
_LONG: Final = 16
"""Minimum length of a path segment, or of one line of a secret, that is removed from text, in characters.
Chosen."""
_PATTERNS: Final = (
    re.compile(r"\bbg_[\w-]{40,}"),
    re.compile(r"\bwhsec_[\w+/=-]+"),
    re.compile(r"\beyJ[\w-]*\.[\w-]*\.[\w-]*"),
    re.compile(r"(?<=\bBearer )[^\s,\"']{8,}", re.I),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?<=password=)[^&\s\"']+"),
)
"""Patterns of API keys, secrets of webhooks, tokens, bearers and passwords in URLs."""
_VARIABLE: Final = re.compile(r"\$\{(?:file:([^}]*)|([A-Za-z_][A-Za-z0-9_]*))\}")


def redact(settings: Settings) -> JsonObject:
    """Return the settings as JSON, with `***` instead of values that may be secrets.

    Of a URL that is not public, only scheme and host are shown: its path may be a secret. Owners of API keys are shown
    as numbers: an owner and its key may have been swapped. What comes from a file of secrets is not shown at all.
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
    """Return a URL without its user, password, path and query. Other text and the path of a file are returned as they
    are."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "sqlite":
        return text
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].rpartition("@")[2].partition("/")
    return f"{scheme}://{place}{slash}{'…' if path else ''}"


class Scrubber:
    """Removal of known secrets, and of text in the form of a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        words = sorted({each for each in secrets if len(each) >= _SHORTEST}, key=len, reverse=True)
        self._words = words
        """Secrets, the longest first: a shorter one may be a part of it."""

    @classmethod
    def of(cls, settings: Settings | None, file: Path | None, *others: str) -> "Scrubber":
        """Return the scrubber for the secrets of the settings, for all values that `${VAR}` and `${file:…}` have in
        their file, and for other secrets. The settings are None if they have errors, and the file is None without
        one."""
        references = () if settings is None else settings.references.secrets
        return cls((*_secrets_of(settings), *references, *_filled_values(file), *others))

    def clean(self, text: str) -> str:
        """Return the text with `***` instead of secrets."""
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

"""Advice on settings that are valid but probably wrong: a key that can be guessed, days written as seconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.access import find_access_doubts
from babelgate.gateway.settings.limits import find_limit_doubts
from babelgate.gateway.settings.model import Settings

_KEY_LENGTH: Final = 16
"""Minimum length of an API key, in characters. Chosen: 16 hexadecimal digits are 64 bits, too many to guess over
HTTP."""
_DAYS: Final = 3650
"""Ten years in days. A plain number up to this was probably meant as days: in seconds it is about an hour."""

Advice = tuple[tuple[str, ...], str]
"""Location of a key, and the problem with its value. The text never contains the value, which may be a secret."""


def find_doubts(settings: Settings, written: JsonObject) -> Iterator[Advice]:
    """Yield advice on the settings. `written` has the values as they were set, before they were parsed."""
    for number, keys in enumerate(settings.keys.values(), 1):
        for length in (len(each.key.get_secret_value()) for each in keys if each.key is not None):
            if length >= _KEY_LENGTH:
                continue
            yield (
                ("keys",),
                f"the key of entry {number} has {length} character{'s' if length > 1 else ''} and can be guessed: take "
                f"{_KEY_LENGTH} or more, such as the output of `openssl rand -hex 32`",
            )
    yield from find_access_doubts(
        settings.access, agents=list(settings.agents), keys=list(settings.keys), issuers=list(settings.issuers)
    )
    yield from find_limit_doubts(
        settings.limits.rate, settings.budgets, {name: agent.price for name, agent in settings.agents.items()}
    )
    retention = written.get("retention")
    for name, value in cast("JsonObject", retention).items() if isinstance(retention, dict) else ():
        seconds = getattr(settings.retention, name, None)
        if isinstance(value, (int, float, str)) and _is_plain(value) and seconds is not None and seconds <= _DAYS:
            yield (
                ("retention", name),
                f"{seconds:g} without a unit is {seconds:g} seconds: write {seconds:g}d for days, or {seconds:g}s if "
                "seconds are meant",
            )


def find_missing_files(settings: Settings) -> Iterator[Advice]:
    """Yield advice for each agent whose file does not exist. Relative paths start from the working directory."""
    for name, agent in settings.agents.items():
        place = (agent.graph or "").rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            yield (
                ("agents", name, "graph"),
                f"there is no file {Path(place).resolve()}: correct the path, which starts from the working directory",
            )


def _is_plain(value: float | str) -> bool:
    return not isinstance(value, bool) and str(value).strip().replace(".", "", 1).isdecimal()

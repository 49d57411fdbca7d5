"""Advice on settings that are valid but probably wrong.

Examples are an API key that can be guessed, days that are written as seconds, and threads that are erased before their
webhooks are delivered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.access import find_access_doubts
from babelgate.gateway.settings.certificates import CertificateError, check_files, find_expired, sections_of
from babelgate.gateway.settings.limits import find_limit_doubts
from babelgate.gateway.settings.model import RETRY_JITTER, AgentSettings, Settings
from babelgate.gateway.settings.tls import MTLS

_KEY_LENGTH: Final = 16
"""Minimum length of an API key, in characters. Chosen: 16 hexadecimal digits are 64 bits, too many to guess over
HTTP."""
_DAYS: Final = 3650
"""Number of days in ten years. A period up to this number without a unit was probably meant in days: in seconds it is
about an hour. Chosen."""

Advice = tuple[tuple[str, ...], str]
"""Location of a setting, such as `("retention", "threads")`, and the problem with its value. The text never contains
the value, which may be a secret."""


def find_doubts(settings: Settings, written: JsonObject) -> Iterator[Advice]:
    """Yield advice on the settings. `written` has the values as the user wrote them, such as `30d`, before parsing."""
    for number, keys in enumerate(settings.keys.values(), 1):
        for length in (len(each.key.get_secret_value()) for each in keys if each.key is not None):
            if length >= _KEY_LENGTH:
                continue
            yield (
                ("keys",),
                f"the key of entry {number} has {length} character{'s' if length > 1 else ''} and can be guessed: take "
                f"{_KEY_LENGTH} or more, such as the output of `openssl rand -hex 32`",
            )
    issuers = [*settings.issuers, *((MTLS,) if settings.has_client_certificates else ())]
    yield from find_access_doubts(
        settings.access, agents=list(settings.agents), keys=list(settings.keys), issuers=issuers
    )
    if settings.signing.keys and settings.public_url is None:
        yield (
            ("signing", "keys"),
            "cards are not signed without public_url, because a signed card names the gateway by it: set public_url",
        )
    yield from find_expired(settings)
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
    threads, longest = settings.retention.threads, sum(settings.webhooks.retries) * (1 + RETRY_JITTER)
    if threads is not None and threads < longest:
        yield (
            ("retention", "threads"),
            f"a webhook is erased with its thread, {threads:g} seconds after the last event, but webhooks.retries "
            f"repeats a failed delivery for up to {longest:g} seconds: keep threads longer, or retry for less time",
        )


def find_wrong_keys(settings: Settings) -> Iterator[Advice]:
    """Yield advice for each file in `signing.keys` that has no usable private key."""
    if not settings.signing.keys:
        return
    # Imported late: cryptography takes longer to import than the rest of most commands.
    from babelgate.gateway.signing_keys import SigningKeyError, read_signing_key

    for number, path in enumerate(settings.signing.keys):
        try:
            read_signing_key(path)
        except SigningKeyError as error:
            yield ("signing", "keys", str(number)), str(error)


def find_bad_certificates(settings: Settings, *, is_server: bool = False) -> Iterator[Advice]:
    """Yield advice for each certificate or key file in the settings that cannot be used.

    With `is_server`, check only the files of the gateway's own certificate, in the section `tls`."""
    for location, files in sections_of(settings):
        if is_server and location != ("tls",):
            continue
        try:
            check_files(files)
        except CertificateError as error:
            yield (*location, error.key), str(error)


def find_missing_files(settings: Settings) -> Iterator[Advice]:
    """Yield advice for each agent whose `graph` file does not exist, and for each of its `card.keys` files without
    public keys.

    Relative paths start from the working directory."""
    for name, agent in settings.agents.items():
        yield from _find_wrong_card_keys(name, agent)
        place = (agent.graph or "").rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            yield (
                ("agents", name, "graph"),
                f"there is no file {Path(place).resolve()}: correct the path, which starts from the working directory",
            )


def _find_wrong_card_keys(name: str, agent: AgentSettings) -> Iterator[Advice]:
    files = [(number, Path(each)) for number, each in enumerate(agent.card.keys) if "://" not in each]
    if not files:
        return
    # Imported late: cryptography takes longer to import than the rest of most commands.
    from babelgate.gateway.key_set import KeyFetchError, find_public_keys, load_key_file

    for number, path in files:
        try:
            find_public_keys(load_key_file(path))
        except (KeyFetchError, OSError) as error:
            reason = f"the file cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            yield ("agents", name, "card", "keys", str(number)), reason


def _is_plain(value: float | str) -> bool:
    return not isinstance(value, bool) and str(value).strip().replace(".", "", 1).isdecimal()

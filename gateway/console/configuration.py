"""Console API for the settings in force: each value with its source, without secrets, for operators."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical.value import JsonObject
from babelgate.gateway.console.gate import need_operator
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.redaction import HIDDEN, redact

_API: Final = "administration API"


class SettingHandlers(Handlers):
    """HTTP handlers of the console for the settings in force."""

    def __init__(self, port: GatewayPort) -> None:
        self._port = port

    async def list_settings(self, request: AnyRequest) -> Response[Any]:
        """Return the settings in force, for operators. Raises forbidden for any other caller."""
        need_operator(request)
        added = {f"agents.{name}": _API for name in self._port.added_agents()}
        rows = list_settings(self._port.settings(), {**self._port.sources(), **added})
        return Response({"items": list(rows), "next": None})


def list_settings(settings: Settings, sources: Mapping[str, str]) -> Iterator[JsonObject]:
    """Yield each value of the settings with its key and its source, without secrets.

    `sources` has the sources of the values that are not defaults, by key. Owners in `keys` are shown as numbers: if a
    user has swapped an owner and its API key in the file, the name of the owner is the key.
    """
    owners = {f"keys.entry {number}": f"keys.{owner}" for number, owner in enumerate(settings.keys, 1)}
    for key, value in _leaves("", redact(settings)):
        where = _find_source(owners.get(key, key), sources)
        public_value, has_secret = _remove_secrets(value)
        yield {"key": key, "value": public_value, "from": _kind_of(where), "where": where, "secret": has_secret}


def _leaves(key: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield each value below a section, with its full key. A list or an empty mapping is one value."""
    if isinstance(value, Mapping) and value:
        for name, each in cast("Mapping[str, object]", value).items():
            yield from _leaves(f"{key}.{name}" if key else name, each)
    else:
        yield key, value


def _remove_secrets(value: object) -> tuple[object, bool]:
    """Return a redacted value without its secrets, and True if there were any.

    The result does not show how many secrets there are, or how long they are.
    """
    if value == HIDDEN:
        return None, True
    if isinstance(value, Mapping):
        members = {name: _remove_secrets(each) for name, each in cast("Mapping[str, object]", value).items()}
        public = {name: each for name, (each, is_secret) in members.items() if not is_secret}
        return public, len(public) < len(members)
    if isinstance(value, list):
        items = [_remove_secrets(each) for each in cast("list[object]", value)]
        if HIDDEN in value:
            return None, True
        return [each for each, _ in items], any(has_secret for _, has_secret in items)
    return value, False


def _find_source(key: str, sources: Mapping[str, str]) -> str | None:
    """Return the source of the value with this key: its own, or that of the nearest section that was set as a whole.
    Return None for a default."""
    while key:
        if key in sources:
            return sources[key]
        key = key.rpartition(".")[0]
    return None


def _kind_of(where: str | None) -> str:
    if where is None:
        return "default"
    if where == _API:
        return "api"
    if where == "PORT" or where.startswith("BABELGATE_"):
        return "variable"
    return "file" if ": " in where else "flag"

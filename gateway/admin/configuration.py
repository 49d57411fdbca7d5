"""Administration API for the configuration: the settings in force, and their reload."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from litestar import Response

from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.model import Settings, hide_password

_REDACTED: Final = "**********"
_SECRET_NAME: Final = re.compile(r"token$|secret$|password$|^authorization$|^key$|^hash$", re.IGNORECASE)
"""Names of settings whose text is not shown, in addition to the fields that have a secret type."""
_SHOWN: Final = frozenset({"token_url"})


class ConfigurationHandlers(Handlers):
    """HTTP handlers of the administration API for the configuration."""

    def __init__(self, port: GatewayPort) -> None:
        self._port = port

    async def get_config(self) -> Response[Any]:
        """Return the settings in force without their secrets, and the source of each that is not a default."""
        added = {f"agents.{name}": "administration API" for name in sorted(self._port.added_agents())}
        sources = {**self._port.sources(), **added}
        return Response({"settings": redact_settings(self._port.settings()), "sources": sources})

    async def reload(self) -> Response[Any]:
        """Read the configuration again, and apply it if it has no mistakes."""
        report = await self._port.reload()
        has_mistakes = bool(report["mistakes"])
        return Response({"reloaded": not has_mistakes, **report}, status_code=422 if has_mistakes else 200)


def redact_settings(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON values, with a placeholder for each secret."""
    values = settings.references.hide(settings.model_dump(mode="json"), _REDACTED)
    for name in ("database", "pooler"):
        if isinstance(values.get(name), str):
            values[name] = hide_password(values[name])
    return cast("dict[str, Any]", _redact(values))


def _redact(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        members = cast("Mapping[str, Any]", value)
        return {member: _redact(each, member) for member, each in members.items()}
    if isinstance(value, list):
        return [_redact(each, name) for each in cast("list[Any]", value)]
    is_secret = isinstance(value, str) and value and name not in _SHOWN and _SECRET_NAME.search(name)
    return _REDACTED if is_secret else value

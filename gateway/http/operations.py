"""Names of requests in metrics and logs: the protocol, and its operation. Both are from fixed sets, so that metrics
have few labels."""

import re
from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.adapters.kit.server.caller import OPERATION

GATEWAY: Final = "gateway"
"""Protocol name for requests that belong to no protocol, such as health checks."""
OTHER: Final = "other"
"""Operation name for requests that reach no handler."""
_IMPLIED: Final = frozenset({"Server", "Transport"})
"""Classes that are left out of operation names: `Server.create_run` becomes `create_run`."""
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Operations:
    """Cache of the protocol and operation names of requests, by handler."""

    def __init__(self) -> None:
        self._by_handler: dict[int, tuple[str, str]] = {}
        """Protocol and operation by the `id` of the handler, which lives as long as the application."""

    def find(self, scope: Mapping[str, Any]) -> tuple[str, str]:
        """Return the protocol and the operation of a request, from its scope after it was routed."""
        handler = scope.get("route_handler")
        if handler is None:
            return find_protocol(scope["path"]), OTHER
        names = self._by_handler.get(id(handler))
        if names is None:
            function = handler.fn
            names = find_protocol(scope["path"]), _name(getattr(function, "__qualname__", OTHER))
            self._by_handler[id(handler)] = names
        operation = scope["state"].get(OPERATION)
        return names if operation is None else (names[0], operation)


def find_adapter(path: str) -> Adapter | None:
    """Return the adapter that a path belongs to, or None for the gateway's own paths."""
    for adapter in ADAPTERS:
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in adapter.prefixes):
            return adapter
    return None


def find_protocol(path: str) -> str:
    """Return the name of the protocol that a path belongs to, or `gateway` for the gateway's own paths."""
    adapter = find_adapter(path)
    return GATEWAY if adapter is None else adapter.name


def _name(qualified: str) -> str:
    """Return the operation of a handler from the qualified name of its function: `thread.create`, for example."""
    owner, _, method = qualified.replace(".<locals>", "").rpartition(".")
    owner = owner.rpartition(".")[2].removesuffix("Handlers")
    if method == "options_handler":
        return OTHER
    if not owner or owner in _IMPLIED or not owner[0].isupper():
        return method
    return f"{_CAPITAL.sub('_', owner).lower()}.{method}"

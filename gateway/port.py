"""Functions of the gateway that the administration API and the console call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from babelgate.canonical import Principal
from babelgate.gateway.settings.model import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPort:
    """Functions of the gateway that the administration API and the console call."""

    settings: Callable[[], Settings]
    """Returns the settings in force."""
    sources: Callable[[], Mapping[str, str]]
    """Returns the source of each setting that has no default value, by its key."""
    reload: Callable[[], Awaitable[Mapping[str, Sequence[str]]]]
    """Reads the configuration again, and returns the report as lists of texts by name: `applied`, `needs_restart`,
    `broken` and `mistakes`. With any mistakes, nothing was changed."""
    refresh_agents: Callable[[], Awaitable[None]]
    """Applies the agents of the administration API."""
    added_agents: Callable[[], frozenset[str]]
    """Returns the names of the agents that were added by the administration API and are in force."""
    count_streams: Callable[[], int]
    """Returns the number of open streams of callers."""
    count_connections: Callable[[], tuple[int, int] | None]
    """Returns the number of open connections of callers, and their maximum. None if another program accepts them."""
    issue_key: Callable[[Principal, float], str]
    """Returns a new key that only this process accepts. It has the rights of a caller, until a time in seconds since
    1970."""
    revoke_key: Callable[[str], None]
    """Stops accepting such a key."""

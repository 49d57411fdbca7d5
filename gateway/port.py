"""Functions of the gateway's HTTP layer that the administration API and the console call, because they may not import
that layer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from babelgate.canonical import Principal
from babelgate.gateway.settings.model import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPort:
    """Functions of the gateway for the administration API and the console."""

    settings: Callable[[], Settings]
    """Function that returns the settings in force."""
    sources: Callable[[], Mapping[str, str]]
    """Function that returns the source of each setting that is not at its default, by its key. A source is a file, an
    environment variable or an option, for example."""
    reload: Callable[[], Awaitable[Mapping[str, Sequence[str]]]]
    """Function that reads the configuration again and applies it.

    It returns lists of texts by name: `applied`, `needs_restart`, `broken` and `mistakes`. If there are mistakes,
    nothing was changed.
    """
    refresh_agents: Callable[[], Awaitable[None]]
    """Function that applies the agents which the administration API has stored in the database."""
    added_agents: Callable[[], frozenset[str]]
    """Function that returns the names of the agents that were added by the administration API and are in force."""
    count_streams: Callable[[], int]
    """Function that returns the number of open streams of callers."""
    count_connections: Callable[[], tuple[int, int] | None]
    """Function that returns the number of callers' open connections, and the maximum number. It returns None if another
    program accepts them."""
    issue_key: Callable[[Principal, float], str]
    """Function that returns a new API key that only this process accepts. It has the rights of a caller, and a time of
    expiry in seconds since 1970."""
    revoke_key: Callable[[str], None]
    """Function that revokes a key of `issue_key`."""

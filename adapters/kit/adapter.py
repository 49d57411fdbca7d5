"""Plug-in interface of servers: the folder of a protocol exports one `Adapter` value to the gateway."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from litestar import Request, Response
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.adapters.kit.server.rest import RestDescription
from babelgate.canonical import Carry, Cron, Fault, Feature, Hub, Principal, Record, Task, Webhook


@dataclass(frozen=True, slots=True)
class Example:
    """One row of the table of URLs: the URL to call, and a command to paste."""

    label: str
    url: str
    curl: str


class WebhookWriter(Protocol):
    """Encoder of records for the deliveries of one webhook."""

    @property
    def scope(self) -> Literal["task", "thread"]:
        """The records that the writer is fed, from the first one on: those of the task, or all of its thread."""
        ...

    @property
    def once(self) -> bool:
        """True if only the first body is posted."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every delivery, including the token or credentials of the webhook's owner."""
        ...

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        """Return the bodies to post for this record, mostly none or one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The server half of one protocol."""

    name: str
    title: str
    versions: tuple[str, ...]
    prefixes: tuple[str, ...]
    """Path prefixes of the protocol. Faults below them are encoded by `encode_fault`, even if no route matches."""
    open_paths: tuple[str, ...] = ()
    """Paths served without an API key, such as public cards and pings. `{agent}` matches the name of any agent."""
    login_paths: tuple[str, ...] = ()
    """Paths with instructions to get a token. They are served without a credential if the gateway accepts tokens."""
    checks_origin: bool = False
    """True if a browser page from a disallowed origin is refused even with a valid key, as the protocol requires."""
    routes: Callable[[Hub], Sequence[ControllerRouterHandler]]
    encode_fault: Callable[[Fault, Request[Any, Any, Any]], Response[Any]]
    """Encoder of a fault as an error response of the protocol."""
    carries: Mapping[str, Mapping[Feature, Carry]]
    """Carry of each feature (whole, with a loss, or dropped), by version and feature."""
    extended: Mapping[str, Mapping[Feature, Carry]] = field(default_factory=dict[str, Any])
    """Features carried with the Babelgate extension (`babelgate.adapters.kit.extension`), by version. Versions without
    the extension are omitted."""
    examples: Callable[[str, str], Sequence[Example]]
    """Rows for the table of URLs: (base URL without a trailing slash, agent name) → examples."""
    rest: RestDescription | None = None
    """Types of the bodies of its REST operations, for OpenAPI documents. None for a protocol without REST."""
    webhooks: Mapping[str, Callable[[Webhook, Task, str], WebhookWriter]] = field(default_factory=dict[str, Any])
    """Factories of webhook writers, by dialect: (webhook, task, id of the thread in this protocol) → writer."""
    crons: Mapping[str, Callable[[Hub, Principal, Cron, str], Awaitable[object]]] = field(
        default_factory=dict[str, Any]
    )
    """Functions that submit a run of a cron, by the protocol of the cron: (hub, principal, cron, run id) → the result
    of the submission."""

"""Plug-in interface of servers: what a protocol's folder gives to the gateway, one `Adapter` value."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from litestar import Request, Response
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.canonical import Carry, Cron, Fault, Feature, Hub, Record, Task, Webhook


@dataclass(frozen=True, slots=True)
class Example:
    """One line of the table of URLs: what to call, and a command that can be pasted."""

    label: str
    url: str
    curl: str


class WebhookWriter(Protocol):
    """Encodes records for one webhook."""

    @property
    def scope(self) -> Literal["task", "thread"]:
        """Whose records it is given, from the first one on: the task's, or all of its thread's."""
        ...

    @property
    def once(self) -> bool:
        """Whether the first body is the only one."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Of every delivery; with the registrant's own token or credentials."""
        ...

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        """The bodies to post for this record, most often none or one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    name: str
    title: str
    versions: tuple[str, ...]
    prefixes: tuple[str, ...]
    """Paths that begin with one of these answer in this protocol's words, also where no route matches."""
    open_paths: tuple[str, ...] = ()
    """Paths that are answered without a key, where `{agent}` stands for the name of any agent: public cards, pings."""
    checks_origin: bool = False
    """Whether a page of an origin that may not call is refused also where it has a key: its specification says so."""
    routes: Callable[[Hub], Sequence[ControllerRouterHandler]]
    encode_fault: Callable[[Fault, Request[Any, Any, Any]], Response[Any]]
    """The protocol's own error answer."""
    carries: Mapping[str, Mapping[Feature, Carry]]
    """By version: every Feature, whole, with loss or dropped."""
    extended: Mapping[str, Mapping[Feature, Carry]] = field(default_factory=dict[str, Any])
    """Features carried with the Babelgate extension (`babelgate.adapters.kit.extension`), by version. Versions without
    the extension are left out."""
    examples: Callable[[str, str], Sequence[Example]]
    """(base URL without a trailing slash, agent name) → lines for the table of URLs."""
    webhooks: Mapping[str, Callable[[Webhook, Task, str], WebhookWriter]] = field(default_factory=dict[str, Any])
    """By dialect: (webhook, task, the thread's name in this protocol) → writer."""
    crons: Mapping[str, Callable[[Hub, str, Cron, str], Awaitable[object]]] = field(default_factory=dict[str, Any])
    """By the protocol of a cron: (hub, owner, cron, the id of the run) → its submission."""

"""Plug-in interface of servers: the folder of a protocol exports one `Adapter` value to the gateway."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from litestar import Response
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.adapters.kit.server.rest import RestDescription
from babelgate.canonical import Carry, Cron, Fault, Feature, Hub, Principal, Record, Run, Task, Thread, Webhook
from babelgate.canonical.event import RunCreated
from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class Example:
    """One row of the URL table: the URL to call, and a command to paste."""

    label: str
    url: str
    curl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A short program that calls an agent with the text `Hello`, and prints the answer."""

    version: str
    """Version of the protocol: a key of `Adapter.carries`."""
    language: str
    """`shell`, `python` or `typescript`."""
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A request that reads something from the gateway, and changes nothing."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    """Path and query below the gateway's base URL. It begins with a slash."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of the protocol. Credentials are the caller's own."""
    body: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One way to read a run in a protocol, or the reason why there is none. Either `request` or `why_not` is set."""

    version: str
    """Version of the protocol: a key of `Adapter.carries`."""
    title: str
    form: Literal["object", "list", "stream"] = "object"
    """Form of the response: the run as it is now, all of its events until now, or its events as a stream. The stream
    begins with the first event, and ends when the run has stopped."""
    request: ReadRequest | None = None
    why_not: str = ""
    hidden: Mapping[Feature, str] = field(default_factory=dict[Feature, str])
    """Features that the protocol carries, but not in this response, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookTarget:
    """The run that a look reads. All ids are the gateway's, and every protocol accepts them."""

    task: Task
    run: Run
    thread: Thread
    created: RunCreated
    """Input of the run."""
    features: frozenset[Feature]
    """Features that the run has used until now."""


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
    encode_fault: Callable[[Fault, AnyRequest], Response[Any]]
    """Encoder of a fault as an error response of the protocol."""
    carries: Mapping[str, Mapping[Feature, Carry]]
    """Carry of each feature (whole, with a loss, or dropped), by version and feature."""
    extended: Mapping[str, Mapping[Feature, Carry]] = field(default_factory=dict[str, Any])
    """Features carried with the Babelgate extension (`babelgate.adapters.kit.extension`), by version. Versions without
    the extension are omitted."""
    examples: Callable[[str, str], Sequence[Example]]
    """Rows for the table of URLs: (base URL without a trailing slash, agent name) → examples."""
    rest: RestDescription | None = None
    """Types of its REST operations' bodies, for OpenAPI documents. None for a protocol without REST."""
    snippets: Callable[[str, str], Sequence[Snippet]] = lambda base_url, agent: ()
    """Programs to copy: (base URL without a trailing slash, agent name) → snippets. One uses curl, the others the
    official clients of the protocol. They read the API key from `BABELGATE_KEY`."""
    looks: Callable[[LookTarget], Sequence[Look]] = lambda target: ()
    """Requests with which anybody reads a run, at least one look for each version. It reads no clock and calls
    nothing."""
    webhooks: Mapping[str, Callable[[Webhook, Task, str], WebhookWriter]] = field(default_factory=dict[str, Any])
    """Factories of webhook writers, by dialect: (webhook, task, id of the thread in this protocol) → writer."""
    crons: Mapping[str, Callable[[Hub, Principal, Cron, str], Awaitable[object]]] = field(
        default_factory=dict[str, Any]
    )
    """Functions that submit a run of a cron, by the protocol of the cron: (hub, principal, cron, run id) → the result
    of the submission."""

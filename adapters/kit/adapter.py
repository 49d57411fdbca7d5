"""Plug-in interface of servers: the folder of a protocol exports one `Adapter` value to the gateway."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from litestar import Response
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.adapters.kit.server.rest import RestDescription
from babelgate.adapters.kit.server.rpc import RpcService
from babelgate.canonical import Carry, Cron, Fault, Feature, Hub, Principal, Record, Run, Task, Thread, Webhook
from babelgate.canonical.event import RunCreated
from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class Example:
    """One row of the table of URLs that the gateway shows: the URL of an agent in one protocol, and a command to
    paste."""

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
    """An HTTP request that reads from the gateway, and changes nothing."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    """Path and query below the gateway's base URL. It begins with a slash."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that the protocol needs. The caller adds its own credentials."""
    body: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One way to read a run in a protocol, or the reason why there is none. Either `request` or `why_not` is set."""

    version: str
    """Version of the protocol: a key of `Adapter.carries`."""
    title: str
    form: Literal["object", "list", "stream"] = "object"
    """Form of the response: `object` is the run in its present state, `list` all of its events until now, and `stream`
    its events as server-sent events. The stream begins with the first event, and ends when the run has stopped."""
    request: ReadRequest | None = None
    why_not: str = ""
    hidden: Mapping[Feature, str] = field(default_factory=dict[Feature, str])
    """Features that the protocol carries, but that this response does not show. The values are the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookTarget:
    """The run that a look reads. All ids are the gateway's, and every protocol accepts them."""

    task: Task
    run: Run
    thread: Thread
    created: RunCreated
    """Event that created the run. It contains the input of the run."""
    features: frozenset[Feature]
    """Features that the run has used until now."""


class WebhookWriter(Protocol):
    """Encoder that converts the records of a thread's log into the bodies that are posted to one webhook."""

    @property
    def scope(self) -> Literal["task", "thread"]:
        """Records that are passed to `write`, from the first one on: those of the webhook's task, or those of its whole
        thread."""
        ...

    @property
    def once(self) -> bool:
        """True if the webhook is called only once: with the first body that `write` returns."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every delivery, including the token or credentials of the webhook's owner."""
        ...

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        """Return the bodies to post for this record, mostly none or one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The server half of one protocol: its routes, its errors, and what the gateway must know about it."""

    name: str
    title: str
    versions: tuple[str, ...]
    prefixes: tuple[str, ...]
    """Path prefixes of the protocol. Faults below them are encoded by `encode_fault`, even if no route matches."""
    open_paths: tuple[str, ...] = ()
    """Paths served without an API key, such as public cards and pings. `{agent}` matches the name of any agent."""
    login_paths: tuple[str, ...] = ()
    """Paths of documents that tell clients where to get a token, such as `/.well-known/oauth-protected-resource`. If
    the gateway accepts tokens, they are served without a credential."""
    exposed_headers: tuple[str, ...] = ()
    """Response headers of the protocol that browser pages of other origins may read, besides those of all protocols."""
    checks_origin: bool = False
    """True if a browser page from a disallowed origin is refused even with a valid key, as the protocol requires."""
    routes: Callable[[Hub], Sequence[ControllerRouterHandler]]
    encode_fault: Callable[[Fault, AnyRequest], Response[Any]]
    """Function that returns the protocol's error response for a fault: (fault, request) → response."""
    carries: Mapping[str, Mapping[Feature, Carry]]
    """Carry of each feature (whole, with a loss, or dropped), by version and feature."""
    extended: Mapping[str, Mapping[Feature, Carry]] = field(default_factory=dict[str, Any])
    """Carry of each feature as in `carries`, but for callers that activate the Babelgate extension
    (`babelgate.adapters.kit.extension`). Versions without the extension are omitted."""
    examples: Callable[[str, str], Sequence[Example]]
    """Rows for the table of URLs: (base URL without a trailing slash, agent name) → examples."""
    rpc: Callable[[], RpcService] | None = None
    """Function that returns the service of the protocol for gRPC, if it has one. It is called only if the gateway
    serves gRPC, so it may import what only `babelgate[grpc]` has."""
    rest: RestDescription | None = None
    """Types of the bodies of the protocol's REST operations, for OpenAPI documents. None for a protocol without
    REST."""
    snippets: Callable[[str, str], Sequence[Snippet]] = lambda base_url, agent: ()
    """Programs to copy: (base URL without a trailing slash, agent name) → snippets. One uses curl, the others the
    official clients of the protocol. They read the API key from `BABELGATE_KEY`."""
    looks: Callable[[LookTarget], Sequence[Look]] = lambda target: ()
    """Function that returns the requests with which a caller can read a run in this protocol, at least one look for
    each version. It is pure: it reads no clock and sends nothing."""
    webhooks: Mapping[str, Callable[[Webhook, Task, str], WebhookWriter]] = field(default_factory=dict[str, Any])
    """Factories of webhook writers, by dialect: (webhook, task, id of the thread in this protocol) → writer."""
    crons: Mapping[str, Callable[[Hub, Principal, Cron, str], Awaitable[object]]] = field(
        default_factory=dict[str, Any]
    )
    """Functions that submit one run of a cron, by the protocol in which the cron was created: (hub, principal, cron, id
    for the new run) → the result of the submission."""

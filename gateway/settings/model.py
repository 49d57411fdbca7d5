"""Settings: one frozen model of babelgate.yaml. `babelgate.gateway.settings.load` fills it from flags, environment and
file.

The JSON schema of the file is generated from this model, so editors show its field docstrings.
"""

import ipaddress
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from babelgate.gateway.settings.access import AccessRule
from babelgate.gateway.settings.administration import AdminSettings
from babelgate.gateway.settings.agent_auth import AgentAuth, ConsentSettings, check_forwarded, check_sent_headers
from babelgate.gateway.settings.coding import CodingSettings
from babelgate.gateway.settings.console import ConsoleSetting, ConsoleSettings
from babelgate.gateway.settings.credentials import (
    ApiKey,
    ApiKeys,
    IssuerName,
    IssuerSettings,
    check_distinct,
    check_owners,
)
from babelgate.gateway.settings.fields import (
    AgentName,
    AgentUrl,
    HostName,
    HttpUrl,
    IPNetwork,
    Listen,
    Networks,
    Origin,
    Owner,
    Period,
    SettingsSection,
    Size,
    Window,
    parse_list,
    split_listen,
)
from babelgate.gateway.settings.grpc import GrpcSettings
from babelgate.gateway.settings.limits import BudgetSettings, ChainLimit, ConcurrencyLimit, PriceSettings, RateLimit
from babelgate.gateway.settings.references import FileReferences
from babelgate.gateway.settings.signing import CardSettings, SigningSettings
from babelgate.gateway.settings.tls import MTLS, AgentTls, TlsSettings
from babelgate.gateway.settings.traces import TraceProtocol

_PASSWORD: Final = re.compile(r"(?<=password=)[^&]*")
"""Pattern of the password in the query of a database URL."""


_KINDS: Final = ("python", "graph", "url", "urls")
"""Keys of an agent of which one is set, except for an agent that the gateway starts as a program."""


class Timeout(SettingsSection):
    """Timeouts of an agent, in seconds or as text such as `5m`. A single value sets `total`."""

    connect: Period = 5.0
    """Maximum time to open a connection to the agent's server, in seconds or as text such as `5s`."""
    read: Period | None = None
    """Maximum silence in the middle of a response, in seconds. By default a running agent may be silent without a
    limit."""
    total: Period | None = None
    """Maximum duration of one run, in seconds or as text such as `1h`. By default `limits.run` applies."""


def _timeout(value: object) -> object:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return {"total": value}
    return value


class _Protocols:
    """Validator of the name of an upstream protocol, for a Pydantic field.

    The protocols in `adapters.UPSTREAMS` are imported lazily: importing the web framework takes longer than the rest of
    `babelgate validate`."""

    @staticmethod
    def names() -> list[str]:
        from babelgate.adapters import UPSTREAMS

        return sorted(upstream.protocol for upstream in UPSTREAMS)

    @classmethod
    def check(cls, name: str) -> str:
        """Return the name unchanged if a protocol has it. Raises PydanticKnownError, with the names that exist, if none
        has it."""
        if name not in cls.names():
            raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, cls.names()))})
        return name

    @staticmethod
    def programs() -> list[str]:
        """Return the names of the protocols whose agents are programs that the gateway starts."""
        from babelgate.adapters import UPSTREAMS

        return sorted(upstream.protocol for upstream in UPSTREAMS if upstream.program is not None)

    @staticmethod
    def has_urls(name: str) -> bool:
        from babelgate.adapters import UPSTREAMS

        return any(upstream.has_urls for upstream in UPSTREAMS if upstream.protocol == name)

    @classmethod
    def require_one(cls, schema: dict[str, Any]) -> None:
        """Add to the JSON schema of an agent that it is of exactly one kind."""
        coding = [name for name in cls.programs() if not cls.has_urls(name)]
        kinds: list[Any] = [{"required": [kind]} for kind in _KINDS]
        programs = {"required": ["command", "cwd", "protocol"], "properties": {"protocol": {"enum": coding}}}
        tools = {"required": ["command", "tool"], "not": {"anyOf": kinds}}
        schema["oneOf"] = [*kinds, programs, tools]

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "enum": cls.names()}


class AgentSettings(SettingsSection):
    """One agent. It needs exactly one of these keys: `python` or `graph` for an agent in this process, `url` or `urls`
    for a server. For a program, which is a coding agent or an MCP server over stdio, it has `command` alone."""

    model_config = ConfigDict(json_schema_extra=_Protocols.require_one)

    python: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")] | None = None
    """`module:name` of a function, a generator, or an object with `run(call)`. The working directory is on the import
    path."""
    graph: Annotated[str, Field(pattern=r"^([A-Za-z_][\w.]*|[^:]+\.py):[A-Za-z_][\w.]*$")] | None = None
    """`module:name` or `./file.py:name` of a LangGraph graph, or of a function that returns a graph for each run."""
    url: AgentUrl | None = None
    """URL of the agent's server."""
    urls: tuple[AgentUrl, ...] = ()
    """URLs of several servers of the same agent. A thread stays with the server on which it began."""
    process: bool = False
    """True to run an agent of `python` or `graph` in a separate process. If that crashes or blocks, only the agent's
    runs fail, and the process is started again."""
    command: tuple[str, ...] = ()
    """Command that starts the agent's server at `url`, as a list of the program and its arguments. The gateway starts
    it, waits until it answers, starts it again when it ends, and stops it when the gateway itself stops. With
    `protocol: agent-client` and without `url`, the command of a coding agent, which the gateway starts for each
    thread. With `tool` and without `url`, the command of an MCP server that speaks over stdin and stdout."""
    env: dict[str, SecretStr] = {}
    """Environment variables of the command. In addition it receives `PATH`, `HOME`, the locale and a few others, and
    none of the gateway's secrets."""
    cwd: str | None = None
    """Working directory of the command. By default that of the gateway. A coding agent needs one; `{thread}` in it is
    replaced by the name of a new folder for each thread."""
    coding: CodingSettings = CodingSettings()
    start_timeout: Period = 60.0
    """Maximum time until a process of the agent is usable, in seconds or as text such as `2m`."""
    memory: Size | None = None
    """Maximum address space of a process of the agent, such as `2GiB`. By default there is no limit. Linux only."""
    protocol: Annotated[str, AfterValidator(_Protocols.check), _Protocols] | None = None
    """Protocol of the server. By default the gateway detects it."""
    options: dict[str, str] = {}
    """Options of the protocol's client. AIEF: `steps: ask` asks the caller before every step. OpenAI: `api: chat` uses
    Chat Completions instead of the Responses API."""
    agent: str | None = None
    """Name of the agent on its server, if the server has several agents."""
    tool: str | None = None
    """Name of a tool on an MCP server, whose endpoint is `url`, or which `command` starts. It is the same as `agent`
    with `protocol: mcp`."""
    headers: dict[str, SecretStr] = {}
    """Headers to send with every request to the server. `${VAR}` is replaced by the environment variable, and
    `${file:/run/secrets/name}` by the content of the file, here and in every other text."""
    forward: tuple[str, ...] = ()
    """Names of the caller's headers to forward to the server. An agent in this process reads them from
    `call.input.headers`, a graph from `configurable`. API keys of the gateway are never forwarded."""
    auth: AgentAuth | None = None
    """Identity that the gateway shows to the server: fixed or forwarded headers, a token of the gateway, or a token of
    the caller."""
    tls: AgentTls | None = None
    timeout: Annotated[Timeout, BeforeValidator(_timeout, json_schema_input_type=Period | Timeout)] = Timeout()
    """Maximum duration of one run, in seconds or as text such as `1h`, or `{connect, read, total}`."""
    card: CardSettings = CardSettings()
    concurrency: PositiveInt | None = None
    """Maximum number of active runs. By default there is no limit."""
    price: PriceSettings | None = None
    """Prices of the agent, for budgets."""
    continuable: bool = False
    """True if a finished ACP run accepts another message, as in early versions of ACP."""
    ai_sdk: Literal[5, 6, 7] | None = None
    """Major version of the Vercel AI SDK in the pages that call this agent, for requests that name none. By default
    6."""
    idempotent: bool = False
    """True if a run that a crash of the gateway interrupted may be started again."""
    replay: bool = True
    """True if a paused generator that was lost in a restart may run again from its beginning, with the recorded
    answers."""
    _networks: tuple[IPNetwork, ...] | None = PrivateAttr(None)

    @property
    def networks(self) -> tuple[IPNetwork, ...] | None:
        """Networks in which the addresses of the agent's servers must be. None means any, as for agents in the
        configuration file."""
        return self._networks

    def restrict(self, networks: Sequence[IPNetwork]) -> "AgentSettings":
        """Return a copy of the settings whose servers must be in these networks. Used for agents of the administration
        API."""
        restricted = self.model_copy()
        restricted._networks = tuple(networks)
        return restricted

    description: str | None = None
    """Description of the agent for callers. By default the agent's own description."""

    @model_validator(mode="before")
    @classmethod
    def _tool_is_agent(cls, values: Any) -> Any:
        """Set `protocol` and `agent` for an agent with `tool`."""
        if not isinstance(values, dict):
            return values
        members = cast("dict[str, Any]", values)
        tool = members.get("tool")
        if not isinstance(tool, str):
            return members
        if members.get("protocol", "mcp") != "mcp" or members.get("agent", tool) != tool:
            raise ValueError("tool is for agents with protocol: mcp, and replaces agent")
        return {**members, "protocol": "mcp", "agent": tool}

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_sent_headers(headers)
        return headers

    @field_validator("forward")
    @classmethod
    def _forwardable(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return check_forwarded(names)

    @model_validator(mode="after")
    def _one_kind(self) -> "AgentSettings":
        configured = [kind for kind in _KINDS if getattr(self, kind)]
        if self.protocol is not None and not _Protocols.has_urls(self.protocol):
            self._check_coding(configured)
            configured = ["command"]
        elif self.command and not configured and self.protocol is not None:
            self._check_tool(self.protocol)
            configured = ["command"]
        if len(configured) != 1:
            raise ValueError("an agent has one of python: module:name, graph: module:name and url: http://…")
        if self.target is not None:
            for name in ("tool", "protocol", "agent", "headers", "options", "auth", "tls"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for agents with a url, and this one has {configured[0]}")
        self._check_process()
        if self.card.is_checked and (self.target is not None or self.protocol not in (None, "a2a")):
            raise ValueError("card.verify is for agents with a url whose protocol is a2a: others have no signed card")
        if self.tls is not None and not all(url.startswith("https://") for url in self.servers):
            raise ValueError("tls is for agents whose URLs begin with https://")
        return self

    def _check_coding(self, configured: Sequence[str]) -> None:
        if not self.command or configured:
            raise ValueError(f"protocol: {self.protocol} needs command, and no {' or '.join(configured or _KINDS)}")
        if self.cwd is None:
            raise ValueError(f"protocol: {self.protocol} needs cwd: the folder in which the agent works")
        self._check_program("agent", "options")

    def _check_tool(self, protocol: str) -> None:
        if protocol not in _Protocols.programs():
            raise ValueError(f"protocol: {protocol} needs url: the address at which the command's server answers")
        if not self.agent:
            raise ValueError(f"protocol: {protocol} needs tool: the name of one tool of the server that command starts")
        if "{thread}" in (self.cwd or ""):
            raise ValueError("cwd: {thread} is for coding agents: all threads share the process of an MCP server")
        if self.coding != CodingSettings():
            raise ValueError("coding is for agents with protocol: agent-client")
        self._check_program()

    def _check_program(self, *more: str) -> None:
        for name in ("headers", "auth", "forward", *more):
            if getattr(self, name):
                raise ValueError(f"{name} is for agents with a url, and this one has a command alone")

    def _check_process(self) -> None:
        if self.coding != CodingSettings() and not self.is_program:
            raise ValueError("coding is for agents with a command and no url")
        if sys.platform == "win32" and (self.process or self.command):
            raise ValueError("process and command need Linux or macOS")
        if self.process and self.target is None:
            raise ValueError("process is for agents with python: module:name or graph: module:name")
        if self.command and self.url is None and not self.is_program:
            raise ValueError("command needs url: the address at which the server that it starts answers")
        for name in ("env", "cwd"):
            if getattr(self, name) and not self.command:
                raise ValueError(f"{name} is for agents with a command")
        if self.memory is not None and not (self.command or self.process):
            raise ValueError("memory is for agents with a command, and for those with process: true")

    @model_validator(mode="after")
    def _one_identity(self) -> "AgentSettings":
        if self.auth is None:
            return self
        for name in ("headers", "forward"):
            if getattr(self, name) and getattr(self.auth, name) is not None:
                raise ValueError(f"set either {name} or auth.{name}, not both")
        if self.auth.token_request is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers must not have Authorization, which auth sets")
        return self

    @property
    def sent_headers(self) -> dict[str, str]:
        """Fixed headers to send with every request to the agent's server, from `headers` or `auth.headers`."""
        secrets = self.headers if self.auth is None or self.auth.headers is None else self.auth.headers
        return {name: secret.get_secret_value() for name, secret in secrets.items()}

    @property
    def consent(self) -> ConsentSettings | None:
        """Settings of the user's consent in a browser; None if the agent needs no consent."""
        exchange = None if self.auth is None else self.auth.exchange
        return None if exchange is None else exchange.consent

    @property
    def forwarded_names(self) -> frozenset[str]:
        """Names of the caller's headers to forward to the server, in lower case."""
        return frozenset(self.forward if self.auth is None or self.auth.forward is None else self.auth.forward)

    @property
    def target(self) -> str | None:
        """Import path `module:name` of an agent in this process; None for an agent on a server."""
        return self.python or self.graph

    @property
    def is_program(self) -> bool:
        """True for an agent that the gateway starts as a program, without a URL."""
        return bool(self.command) and not any(getattr(self, kind) for kind in _KINDS) and self.protocol is not None

    @property
    def servers(self) -> tuple[str, ...]:
        return self.urls if self.url is None else (self.url,)


DEMO: Final = ("echo", "stream", "ask", "approve", "files", "steps", "json", "tools", "slow", "fail")
"""Names of the agents in `babelgate.gateway.demo`, which the gateway serves if no agents are configured."""


def _demo() -> dict[str, AgentSettings]:
    return {name: AgentSettings(python=f"babelgate.gateway.demo:{name}") for name in DEMO}


class Network(SettingsSection):
    allow: Networks = ()
    """Non-public addresses and networks that the gateway may call when a caller names a URL (webhooks, session
    messages)."""


class Queue(SettingsSection):
    """Maximum numbers of queued runs. Beyond them, a run is rejected with a time after which to retry."""

    agent: PositiveInt = 1000
    """Maximum number of queued runs of one agent. Beyond it, a run is rejected with a time after which to retry. Each
    owner with queued runs has an equal share, and may use it even if other owners have filled the queue."""
    thread: PositiveInt = 100
    """Maximum number of queued runs of one thread."""
    owner: PositiveInt = 5000
    """Maximum number of queued runs of one owner. Delayed runs, which start at a later time, are counted separately, up
    to the same limit."""


class Connections(SettingsSection):
    """Maximum numbers of open connections. Beyond them, a new connection replaces the oldest idle one, or is rejected
    if none is idle."""

    total: PositiveInt = 10_000
    """Maximum number of open connections; never more than half of the files that the process may have open."""
    address: PositiveInt = 1000
    """Maximum number of open connections of one address, or of one IPv6 /64; never more than half of the total.
    Connections from this machine and from `trusted_proxies` are not counted."""


class Limits(SettingsSection):
    """Limits. A size is a number of bytes, or text such as 64MB. A time is a number of seconds."""

    body: Size = 64 * 2**20
    """Maximum size of one request body, in bytes."""
    values: PositiveInt = 100_000
    """Maximum number of JSON values in one request: objects, lists, and everything in them."""
    artifact: Size = 256 * 2**20
    """Maximum size of one file, in bytes, uploaded or produced."""
    event: Size = 8 * 2**20
    """Maximum size of one text or data part of an agent, in bytes, whether it is sent whole or in pieces. A data part
    has at most 200,000 JSON values."""
    output: Size = 64 * 2**20
    """Maximum size of an agent's stored output in one run, in bytes. Files are not counted."""
    thread: Size = 128 * 2**20
    """Maximum size of a thread's log, in bytes, for operations that read all of it. These are the state of the thread,
    the steps of an AIEF task, and calls of an agent that needs the whole conversation. The single runs of a larger
    thread can still be read."""
    input: Size = 8 * 2**20
    """Maximum size of the text and data in one input of a caller, in bytes: the input of a run, an answer, a state, or
    an item of the store. Files are not counted."""
    metadata: Size = 2**20
    """Maximum size of a run's or a thread's metadata, in bytes. Every change stores the whole metadata again."""
    inline: Size = 2**20
    """Maximum size of a file that is sent inside a message, in bytes. Larger files are sent as a URL."""
    run: Period = 3600.0
    """Maximum duration of one run, in seconds or as text such as `1h`, if its agent has no `timeout.total`."""
    window: Window = 0.01
    """Maximum time for which tokens are collected, in seconds, so that they are stored and sent together. The first
    token, and any event that is not a token, is stored at once. 0 stores each token separately; tokens of graphs are
    always stored separately. In a cluster the default is 0.005."""
    attempts: PositiveInt = 3
    """Maximum number of starts of a run whose process ends each time without stopping the run first. The limit keeps a
    run that crashes the gateway from crashing it again and again. From the second start on, such runs start one
    after the other."""
    cancel_grace: Period = 5.0
    """Time that an agent has to end after a cancel, in seconds or as text such as `5s`."""
    ephemeral_ttl: Period = 60.0
    """Time after which the thread of a stateless run is erased, in seconds or as text such as `1m`. It starts when its
    task has ended and no client reads it. The erasure may be a second late, because it handles several threads at
    once."""
    input_ttl: Period = 604800.0
    """Time that a question of a stateless run waits for its answer, in seconds or as text such as `7d`."""
    head: Size = 64 * 2**10
    """Maximum size of a request's first line and headers, in bytes."""
    head_timeout: Period = 30.0
    """Time within which a request's first line and headers must arrive, in seconds or as text such as `30s`. It starts
    when the connection opens or with their first byte."""
    body_timeout: Period = 30.0
    """Time within which the next KiB of a request body, or its end, must arrive, in seconds or as text such as
    `30s`."""
    send_timeout: Period = 300.0
    """Time after which the connection of a client that reads nothing of its response is closed, in seconds or as text
    such as `5m`."""
    webhooks: PositiveInt = 16
    """Maximum number of webhooks per task."""
    connections: Connections = Connections()
    queue: Queue = Queue()
    rate: tuple[RateLimit, ...] = ()
    """Rates at which runs may start, by key, owner or agent. A run must be within all of them."""
    concurrency: ConcurrencyLimit = ConcurrencyLimit()
    chain: ChainLimit | None = None
    """Limits of agents that call each other: `{depth: 8, runs: 200}`. By default there are none."""


class Shutdown(SettingsSection):
    """Shutdown after SIGTERM or Ctrl-C."""

    grace: Period = 30.0
    """Maximum time until the process ends after SIGTERM, in seconds or as text such as `30s`. Meanwhile no run starts,
    and active runs may end. The last 10 seconds (or half of a shorter grace) are for stopping the remaining runs. A
    second SIGTERM ends the process within a second."""


class Recovery(SettingsSection):
    """Recovery of runs that were running when the gateway ended."""

    patience: Period = 60.0
    """Maximum time for which the gateway tries to reach the server of a run that was active when the gateway ended, in
    seconds or as text such as `60s`. Then the run fails, and the gateway cancels it on its server as soon as the
    server answers."""


class Retention(SettingsSection):
    """Retention of threads and webhooks. Without a value they are kept until a caller deletes them."""

    threads: Period | None = None
    """Time after the last event of a thread until it is erased, in seconds or as text such as `30d`. This erases its
    log, its artifacts, the files that no other thread uses, and the checkpoints of graphs. A thread with a task that
    has not ended is kept, unless `unfinished` is set."""
    unfinished: Period | None = None
    """Time after the last event until a thread with a task that has not ended is erased: its agent is running, or its
    question has no answer. In seconds or as text such as `90d`; at least `threads`."""
    webhooks: Period | None = None
    """Time until a webhook that has delivered everything is erased, in seconds or as text such as `30d`. It starts at
    the end of the webhook's task, or when its delivery was given up, if that is later."""

    audit: Annotated[Period, Field(ge=31 * 86_400)] = 400 * 86_400.0
    """Time until a record of the audit log is erased, in seconds or as text such as `400d`; at least `31d`."""
    tombstones: Period = 30 * 86_400.0
    """Time for which the id of an erased thread is not used again by accident, in seconds or as text such as `30d`.
    Each erased thread leaves one short row for this time, also those of stateless runs."""

    @model_validator(mode="after")
    def _in_order(self) -> "Retention":
        if self.unfinished is not None and (self.threads is None or self.unfinished < self.threads):
            raise ValueError("unfinished must be at least as long as threads, and needs threads to be set")
        return self


Periods = Annotated[tuple[Period, ...], NoDecode, BeforeValidator(parse_list)]


RETRY_JITTER: Final = 0.2
"""Maximum random extension of a webhook's retry delay, as a fraction of the delay. Chosen: deliveries that failed
together are not retried together."""


class Webhooks(SettingsSection):
    """Retries of webhook deliveries."""

    retries: Periods = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
    """Delays between the attempts to deliver a body, in seconds or as text such as `5m`. Each delay is randomly up to
    20 % longer, and `Retry-After` can only lengthen it. After the last attempt the webhook is given up, until it is
    registered again or `babelgate webhooks --retry` restarts it."""


class MetricsSettings(SettingsSection):
    """Metrics for Prometheus."""

    listen: Listen | None = None
    """Address and port of `/metrics`, such as `127.0.0.1:9464`; without it there are no metrics. Everyone who reaches
    the port can read them. They contain the names of agents, and no data of callers."""


class TelemetrySettings(SettingsSection):
    """Measurements of the gateway itself."""

    metrics: MetricsSettings = MetricsSettings()
    traces: TraceProtocol = None
    """Protocol by which the gateway sends traces: `otlp` over HTTP, as the variables of OpenTelemetry say
    (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`…). By default it sends none. Needs `babelgate[otel]`."""
    content: bool = False
    """True if traces contain messages and the data of tools, up to 8 KiB each. Questions that ask for credentials are
    never in traces."""


class Settings(BaseSettings):
    """Content of babelgate.yaml. Every key can also be set by an environment variable: `limits.body` is
    BABELGATE_LIMITS__BODY."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="BABELGATE_",
        env_nested_delimiter="__",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 selects a free port."""
    public_url: HttpUrl | None = None
    """URL at which callers reach the gateway. Every URL in its responses begins with it."""
    tls: TlsSettings | None = None
    database: Annotated[str, Field(pattern=r"^(sqlite:///.+|postgres(ql)?://.+)$")] = "sqlite:///babelgate.db"
    """URL of the database that stores everything but files: `sqlite:///` and a file, or `postgresql://user@host/name`."""
    pooler: Annotated[str, Field(pattern=r"^postgres(ql)?://.+$")] | None = None
    """URL of a PostgreSQL connection pooler in front of `database`, such as PgBouncer in transaction mode. The gateway
    reads through it. Connections that write or listen go to `database` directly."""
    durability: Literal["process", "power"] = "process"
    """Failure that a committed change survives in SQLite: `process` is a killed process, `power` is also a loss of
    power. PostgreSQL has its own setting."""
    standby: bool = False
    """True to wait while another gateway uses the database, and to take over its work when it has ended."""
    cluster: bool = False
    """True to share the database with other gateways, each a node of one cluster. Requires PostgreSQL."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of processes that serve the port together, each a node of one cluster. More than one requires PostgreSQL
    and Linux."""
    node: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of this node in logs. By default the host name and the process id."""
    blobs: Path | None = None
    """Folder for the files that callers and agents send. By default next to the SQLite file, or `babelgate.blobs`."""
    artifacts: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$")] | None = (
        None
    )
    """S3-compatible store for the files that callers and agents send, instead of a folder: `s3://bucket/prefix`. The
    address, region and keys of the store come from the usual variables: `AWS_ENDPOINT_URL`, `AWS_REGION`,
    `AWS_ACCESS_KEY_ID`…"""
    default_agent: AgentName | None = None
    """Name of the agent for requests that name none. By default the first agent."""
    keys: dict[Owner, ApiKeys] = {}
    """API keys, by owner. A value is a key, a record such as `{hash: "sha256:…", expires: 2027-03-01}`, or a list of
    both while you replace a key. Without `keys` and `issuers`, every caller is the owner `default`."""
    issuers: dict[IssuerName, IssuerSettings] = {}
    """Issuers of tokens (OpenID Connect, OAuth 2), by a name of your choice. A caller sends the token as a bearer."""
    access: tuple[AccessRule, ...] = ()
    """Rules that say which callers may do what. Without rules, every caller may do everything with its own data. With
    rules, a caller may do only what one of them allows and none denies."""
    allow_anonymous: bool = False
    """True to listen on an address that other machines can reach although no API keys are configured."""
    hosts: Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(parse_list)] = ()
    """Host names under which the gateway answers: `*.example.com` allows all subdomains, `*` allows any name. The names
    of this machine, the address in `host` and the name in `public_url` are always allowed. With `keys` or `issuers`,
    any name is allowed unless `hosts` is set."""
    network: Network = Network()
    signing: SigningSettings = SigningSettings()
    webhook_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Secret that signs requests to webhooks according to Standard Webhooks: `webhook-id`, `webhook-timestamp` and
    `webhook-signature`. After the prefix `whsec_` the secret is base64; without it, plain text."""
    webhooks: Webhooks = Webhooks()
    trusted_proxies: Networks = ()
    """Addresses and networks of proxies whose X-Forwarded-* headers are trusted."""
    cors: Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(parse_list)] = ()
    """Origins whose pages may call the gateway; `*` allows all. By default the origins of this machine."""
    limits: Limits = Limits()
    budgets: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")], BudgetSettings] = {}
    """Budgets by name. A run must be within all that count it."""
    retention: Retention = Retention()
    shutdown: Shutdown = Shutdown()
    recovery: Recovery = Recovery()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of log lines on stderr: `debug`, `info`, `warning` or `error`."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines on stderr: `text`, or `json` with one object per line."""
    telemetry: TelemetrySettings = TelemetrySettings()
    secrets_key: Annotated[SecretStr, Field(min_length=32)] | None = None
    """Key that encrypts the tokens to which users have agreed, at least 32 characters. With another key, users are
    asked again. All nodes of a cluster need the same key."""
    watch: bool = False
    """True to reload the configuration whenever its file changes, or a file that it names by `${file:…}` or `tls`."""
    drain: Period = 300.0
    """Maximum time for which runs continue whose agent a reload has removed or changed, in seconds or as text such as
    `5m`. Then they fail, and the connections to the agent are closed."""
    grpc: GrpcSettings = GrpcSettings()
    admin: AdminSettings = AdminSettings()
    console: ConsoleSetting = ConsoleSettings()
    agents: dict[AgentName, AgentSettings] = Field(default_factory=_demo)
    """Agents by name. Without agents, the gateway serves its ten demo agents."""
    _references: FileReferences = PrivateAttr(FileReferences())

    @property
    def references(self) -> FileReferences:
        """References to secret files in the configuration. The contents of these files are never shown."""
        return self._references

    def with_references(self, references: FileReferences) -> "Settings":
        """Return a copy of these settings with other references to secret files."""
        settings = self.model_copy()
        settings._references = references
        return settings

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the constructor's arguments as the only source: `babelgate.gateway.settings.load` reads the
        environment."""
        return (init_settings,)

    @field_validator("keys")
    @classmethod
    def _distinct_keys(cls, keys: dict[str, tuple[ApiKey, ...]]) -> dict[str, tuple[ApiKey, ...]]:
        check_distinct(keys)
        return keys

    @field_validator("issuers")
    @classmethod
    def _distinct_issuers(cls, issuers: dict[str, IssuerSettings]) -> dict[str, IssuerSettings]:
        names: dict[str, str] = {}
        for name, each in issuers.items():
            if each.issuer in names:
                raise ValueError(f"{names[each.issuer]} and {name} have the same issuer")
            names[each.issuer] = name
        return issuers

    @model_validator(mode="after")
    def _separate_owners(self) -> "Settings":
        check_owners(self.keys, self.issuers, reserved=(MTLS,) if self.has_client_certificates else ())
        return self

    @model_validator(mode="after")
    def _exchangeable(self) -> "Settings":
        for name, agent in self.agents.items():
            if (mistake := self.find_auth_mistake(agent)) is not None:
                raise ValueError(f"agents.{name}.{mistake}")
        return self

    def find_auth_mistake(self, agent: AgentSettings) -> str | None:
        """Return what `auth` of an agent needs and these settings do not have, or None."""
        if agent.auth is not None and agent.auth.exchange is not None and not self.issuers:
            return "auth: exchange needs issuers, whose tokens it exchanges"
        if agent.consent is not None and (self.public_url is None or self.secrets_key is None):
            return "auth.exchange.consent: needs public_url and secrets_key"
        return None

    @model_validator(mode="after")
    def _one_store(self) -> "Settings":
        if self.blobs is not None and self.artifacts is not None:
            raise ValueError("set either blobs (a folder) or artifacts (s3://…), not both")
        return self

    @model_validator(mode="after")
    def _poolable(self) -> "Settings":
        if self.pooler is not None and self.database.startswith("sqlite:"):
            raise ValueError("pooler needs PostgreSQL: set database to the URL of the server itself, postgresql://…")
        return self

    @model_validator(mode="after")
    def _shareable(self) -> "Settings":
        if self.workers > 1 and self.database.startswith("sqlite:"):
            raise ValueError(
                "several workers need PostgreSQL, as only one process can write to SQLite: set database to "
                "postgresql://host/name, or set workers: 1"
            )
        if self.workers > 1 and self.standby:
            raise ValueError(
                "standby cannot be combined with workers above 1: workers share the database, as nodes of a cluster"
            )
        if self.cluster and self.database.startswith("sqlite:"):
            raise ValueError("cluster needs PostgreSQL: set database to postgresql://host/name, or set cluster: false")
        if self.cluster and self.blobs is None and self.artifacts is None:
            raise ValueError(
                "cluster needs files where all nodes can reach them: set artifacts (s3://…), or blobs (a shared folder)"
            )
        if self.cluster and self.standby:
            raise ValueError("standby cannot be combined with cluster: the nodes of a cluster share the database")
        return self

    @property
    def has_credentials(self) -> bool:
        """True if callers need a credential: an API key, a token of an issuer, or a client certificate."""
        return bool(self.keys or self.issuers) or self.has_client_certificates

    @property
    def has_client_certificates(self) -> bool:
        """True if a client certificate is a credential."""
        return self.tls is not None and self.tls.has_client_certificates

    @property
    def is_local(self) -> bool:
        """True if only programs on this machine can reach the gateway, as far as the settings show."""
        public_host = urlsplit(self.public_url).hostname if self.public_url else "localhost"
        more = [split_listen(each)[0] for each in (self.admin.listen, self.grpc.listen) if each]
        hosts = [self.host, public_host or "", *more]
        return not self.trusted_proxies and all(map(_is_loopback, hosts))

    @property
    def is_shared(self) -> bool:
        """True if other gateways use the database at the same time."""
        return self.cluster or self.workers > 1

    @property
    def database_path(self) -> Path:
        """Path of the SQLite file. For PostgreSQL `babelgate.db`, from which the default folder of files is derived."""
        is_file = self.database.startswith("sqlite:")
        return Path(self.database.removeprefix("sqlite:///") if is_file else "babelgate.db")

    @property
    def has_demo_agents(self) -> bool:
        """True if no agents are configured, so that the demo agents are served."""
        return "agents" not in self.model_fields_set

    @property
    def database_shown(self) -> str:
        """URL of the database without its password."""
        return hide_password(self.database)

    @property
    def blobs_path(self) -> Path:
        return self.blobs or self.database_path.with_suffix(".blobs")


def _is_loopback(host: str) -> bool:
    """Return True for a loopback address and for the name `localhost`. Other names are not resolved."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hide_password(url: str) -> str:
    """Return a database URL with `***` instead of its password."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return url
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}{colon and ':***'}{at}{_PASSWORD.sub('***', place)}"


def schema() -> dict[str, Any]:
    """Return the JSON schema of babelgate.yaml."""
    result = Settings.model_json_schema()
    result["title"] = "babelgate.yaml"
    result["properties"]["agents"].pop("default", None)
    return cast("dict[str, Any]", {"$schema": "https://json-schema.org/draft/2020-12/schema", **result})

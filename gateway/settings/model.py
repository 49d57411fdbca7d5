"""Settings: one frozen model of babelgate.yaml. `babelgate.gateway.settings.load` fills it from flags, environment and
file.

The JSON schema of the file is generated from this model, so editors show its field docstrings.
"""

import json
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PositiveInt,
    SecretStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from babelgate.canonical.agent import AGENT_NAME

_UNITS: Final = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Token by RFC 9110, 5.6.2."""
_PASSWORD: Final = re.compile(r"(?<=password=)[^&]*")
"""Password in the query of a database URL."""
_NOT_FORWARDED: Final = frozenset(
    (
        "authorization",
        "x-api-key",
        "cookie",
        "host",
        "content-length",
        "content-type",
        "connection",
        "transfer-encoding",
    )
)
_HOST_NAME: Final = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+")
_PERIODS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PERIOD: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)")


def _size(value: object) -> object:
    """Convert a size such as 64MB to bytes. KB, MB and GB are powers of 1024, as are KiB, MiB and GiB."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip().upper().replace("IB", "B"))
    if match is None or match[2] not in _UNITS:
        raise ValueError("a size is a number of bytes, or a number with a unit, such as 64MB")
    return int(float(match[1]) * _UNITS[match[2]])


def _period(value: object) -> object:
    """Convert a period such as 30d to seconds."""
    if not isinstance(value, str):
        return value
    match = _PERIOD.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError("a period is a number of seconds, or a number with a unit (s, m, h, d, w), such as 30d")
    return float(match[1]) * _PERIODS[match[2]]


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Period = Annotated[
    float,
    BeforeValidator(_period),
    Field(gt=0, allow_inf_nan=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[smhdw]?$"},
            ]
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?B|B)?$"}]}
    ),
]


def _parse_list(value: object) -> object:
    """Split a list from a variable: JSON, or words separated by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('a list is JSON, such as ["a", "b"], or words with commas between') from None
    return [word.strip() for word in value.split(",") if word.strip()]


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ip_network(value, strict=False)
    except ValueError:
        raise ValueError("an address or a network, such as 10.0.0.0/8 or ::1") from None


IPNetwork = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string", "examples": ["10.0.0.0/8"]})
]
Networks = Annotated[tuple[IPNetwork, ...], NoDecode, BeforeValidator(_parse_list)]


def _http_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("an http:// or https:// URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL without a user and password; credentials go into headers")
    if parts.query or parts.fragment:
        raise ValueError("a URL without ? and #")
    return value.rstrip("/")


def _agent_url(value: str) -> str:
    """Check a URL and keep its trailing slash: a path that ends with a slash differs from the one without it (RFC 3986,
    section 6.2.3)."""
    plain = _http_url(value)
    return f"{plain}/" if value.endswith("/") and urlsplit(plain).path else plain


AgentUrl = Annotated[str, AfterValidator(_agent_url), Field(json_schema_extra={"format": "uri"})]
HttpUrl = Annotated[str, AfterValidator(_http_url), Field(json_schema_extra={"format": "uri"})]


def _origin(value: str) -> str:
    if value == "*":
        return value
    parts = urlsplit(_http_url(value))
    if parts.path:
        raise ValueError("an origin is scheme, host and port: https://app.example.com")
    return f"{parts.scheme}://{parts.netloc}".lower()


Origin = Annotated[str, AfterValidator(_origin)]


def _host_name(value: str) -> str:
    """Normalize a host name or address without a port. IPv6 addresses may have brackets."""
    name = value.strip().lower().removeprefix("[").removesuffix("]").removesuffix(".")
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("a host is a name or an address without a port: agents.example.com, *.example.com, or *")
    return name


HostName = Annotated[str, AfterValidator(_host_name)]


def _agent_name(value: str) -> str:
    if not AGENT_NAME.fullmatch(value):
        raise ValueError(
            "an agent's name is 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends"
        )
    return value


AgentName = Annotated[str, AfterValidator(_agent_name)]


def _owner(value: str) -> str:
    if not value or len(value) > 128 or not value.isprintable():
        raise ValueError("an owner's name is 1 to 128 printable characters")
    return value


Owner = Annotated[str, AfterValidator(_owner)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class Timeout(Section):
    """Seconds. A plain number is the total."""

    connect: Seconds = 5.0
    """Until the agent's server takes the connection."""
    read: Seconds | None = None
    """Of silence in the middle of an answer. Without it, an agent at work may be silent for as long as it likes."""
    total: Seconds | None = None
    """Of one run. Without it, `limits.run` holds."""


def _timeout(value: object) -> object:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return {"total": value}
    return value


class _Protocols:
    """Protocols by their names in `adapters.UPSTREAMS`. They are imported lazily: importing the web framework takes
    longer than the rest of `babelgate validate`."""

    @staticmethod
    def names() -> list[str]:
        from babelgate.adapters import UPSTREAMS

        return sorted(upstream.protocol for upstream in UPSTREAMS)

    @classmethod
    def check(cls, name: str) -> str:
        """Return the name if there is such a protocol. Raises PydanticKnownError."""
        if name not in cls.names():
            raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, cls.names()))})
        return name

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "enum": cls.names()}


class AgentSettings(Section):
    """One agent: `python` or `graph` for one in this process, `url` for one that is a server."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in ("python", "graph", "url", "urls")]}
    )

    python: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")] | None = None
    """`module:name` of a function, a generator, or an object with `run(call)`; the working directory is on the path."""
    graph: Annotated[str, Field(pattern=r"^([A-Za-z_][\w.]*|[^:]+\.py):[A-Za-z_][\w.]*$")] | None = None
    """The same of a LangGraph graph, or of a function that makes one for each run; also `./file.py:name`."""
    url: AgentUrl | None = None
    """Of the agent's own server."""
    urls: tuple[AgentUrl, ...] = ()
    """Of several servers that are the same agent: a conversation stays with the one that has it."""
    protocol: Annotated[str, AfterValidator(_Protocols.check), _Protocols] | None = None
    """What the server speaks; found out by asking if it is not given."""
    options: dict[str, str] = {}
    """Of the protocol's client: `steps: ask` of aief hands every step to the caller, `api: chat` of openai does without
    the Responses API."""
    agent: str | None = None
    """Which of the server's agents, by the server's own name for it."""
    headers: dict[str, SecretStr] = {}
    """Sent with every request to the server. `${VAR}` takes a value from the environment."""
    forward: tuple[str, ...] = ()
    """Names of headers of the caller's request that are sent on to the server; an agent in this process finds them in
    `call.input.headers`, a graph in `configurable`. API keys of the gateway are not."""
    timeout: Annotated[Timeout, BeforeValidator(_timeout, json_schema_input_type=Seconds | Timeout)] = Timeout()
    """Seconds of a run, or `{connect, read, total}`."""
    concurrency: PositiveInt | None = None
    """How many runs may be active at once; no limit without it."""
    continuable: bool = False
    """A finished ACP run takes another message, as in early ACP."""
    idempotent: bool = False
    """A run that a crash of the gateway cut off may be started again."""
    replay: bool = True
    """A paused generator that is gone after a restart may run again from its start with the recorded answers."""
    description: str | None = None
    """What callers are told of the agent; by default the agent's own words."""

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for number, (name, secret) in enumerate(headers.items(), 1):
            if not TOKEN.fullmatch(name):  # the name is not shown: `{Authorization:Bearer x}` lacks a space
                raise ValueError(f"the name of entry {number} is not the name of a header")
            value = secret.get_secret_value()
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"the value of {name} is not printable ASCII")
        return headers

    @field_validator("forward")
    @classmethod
    def _forwardable(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for number, name in enumerate(names, 1):
            if not TOKEN.fullmatch(name):
                raise ValueError(f"entry {number} is not the name of a header")
            if name.lower() in _NOT_FORWARDED:
                raise ValueError(f"{name} is the gateway's own: callers' keys, hosts and lengths are not sent on")
        return tuple(name.lower() for name in names)

    @model_validator(mode="after")
    def _one_kind(self) -> "AgentSettings":
        kinds = ("python", "graph", "url", "urls")
        configured = [kind for kind in kinds if getattr(self, kind)]
        if len(configured) != 1:
            raise ValueError("an agent has one of python: module:name, graph: module:name and url: http://…")
        if self.target is not None:
            for name in ("protocol", "agent", "headers", "options"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for agents with a url, and this one has {configured[0]}")
        return self

    @property
    def target(self) -> str | None:
        """Import target of an agent in this process."""
        return self.python or self.graph

    @property
    def servers(self) -> tuple[str, ...]:
        return self.urls if self.url is None else (self.url,)


DEMO: Final = ("echo", "stream", "ask", "approve", "files", "steps", "json", "tools", "slow", "fail")
"""Names of the agents in `babelgate.gateway.demo`, which are served if no agents are configured."""


def _demo() -> dict[str, AgentSettings]:
    return {name: AgentSettings(python=f"babelgate.gateway.demo:{name}") for name in DEMO}


class Network(Section):
    allow: Networks = ()
    """Non-public addresses that webhooks and session fetches may reach."""


class Queue(Section):
    """How many runs may wait. The next one is refused, and told to come back later."""

    agent: PositiveInt = 1000
    """Runs that may wait for one agent; the next is refused, and told to come back later. Each waiting owner has an
    equal share, and may use it even if other owners have filled the queue."""
    thread: PositiveInt = 100
    """The same of one conversation."""
    owner: PositiveInt = 5000
    """Runs of one owner that may wait. Delayed runs, which start at a later time, have a limit of the same size of
    their own."""


class Connections(Section):
    """How many may be open at once. One more takes the place of the oldest without a request, or is refused."""

    total: PositiveInt = 10_000
    """Connections in all; never more than half of the files that the process may have open."""
    address: PositiveInt = 1000
    """Connections of one address, or of one IPv6 /64; never more than half of all. Those of this machine and of
    `trusted_proxies` are not counted."""


class Limits(Section):
    """Sizes are bytes or text such as 64MB; times are seconds."""

    body: Size = 64 * 2**20
    """Of a request."""
    values: PositiveInt = 100_000
    """Objects, lists and what is in them, in the JSON of one request."""
    artifact: Size = 256 * 2**20
    """Of one file."""
    event: Size = 8 * 2**20
    """Of one text or data part that an agent says, whole or piece by piece; of data 200,000 values."""
    output: Size = 64 * 2**20
    """Of all that an agent says in one run, as it is stored. Files are not counted."""
    thread: Size = 128 * 2**20
    """Of all that was said on one thread, where all of it is needed at once: for the state of the thread, the steps of
    an AIEF task, and an agent that is told the conversation anew each time. Runs can still be looked at one by one."""
    input: Size = 8 * 2**20
    """Of the text and data that a caller says at once: the input of a run, an answer, a state, an item of the store.
    Files are not counted."""
    metadata: Size = 2**20
    """Of one run, and of one thread: they are stored anew with every change of it."""
    inline: Size = 2**20
    """Files up to this size travel inside messages, larger ones by URL."""
    run: Seconds = 3600.0
    """Of one run, if its agent has no timeout of its own."""
    window: Annotated[float, Field(ge=0, le=1)] = 0.01
    """For which the tokens of a run are gathered before they are stored and told together: the first goes at once, and
    whatever is no token takes those before it along. 0 = each by itself, as always of graphs. In a cluster 0.005, where
    nothing is said."""
    attempts: PositiveInt = 3
    """Times that a run is started when its process ends each time without stopping the run first: a run that kills its
    process must not kill the next one for ever. From the second time on such runs start one after the other."""
    cancel_grace: Seconds = 5.0
    """That an agent has to end after a cancel."""
    ephemeral_ttl: Seconds = 60.0
    """After which the thread of a stateless run is erased, once its task has ended and nobody reads it."""
    input_ttl: Seconds = 604800.0
    """That a question of a stateless run waits for its answer."""
    head: Size = 64 * 2**10
    """Of a request's first line and headers."""
    head_timeout: Seconds = 30.0
    """Within which they must have come, from the opening of the connection or their first byte."""
    body_timeout: Seconds = 30.0
    """Within which another kilobyte of a body must have come, or its end."""
    send_timeout: Seconds = 300.0
    """After which a caller who takes nothing of an answer is hung up on."""
    webhooks: PositiveInt = 16
    """Addresses that one task is pushed to."""
    connections: Connections = Connections()
    queue: Queue = Queue()


class Shutdown(Section):
    """Shutdown after SIGTERM or Ctrl-C."""

    grace: Period = 30.0
    """Time until the process ends after SIGTERM, such as `30s`. It starts no more runs, and running ones may end; the
    last 10 seconds (or half of a shorter grace) are for stopping the others. A second SIGTERM ends the process within a
    second."""


class Recovery(Section):
    """Recovery of runs that were running when the gateway ended."""

    patience: Period = 60.0
    """Time for which the gateway tries to reach the server of such a run again, such as `60s`. Then the run fails, and
    its server is told to cancel it as soon as it answers."""


class Retention(Section):
    """How long what was said is kept. Without a value for ever: only callers delete."""

    threads: Period | None = None
    """After which a thread on which nothing has happened is erased, such as `30d`: its log, its artifacts, the files
    that no other thread names, and what a graph keeps of it. Never one with a task that has not ended."""
    unfinished: Period | None = None
    """The same of threads whose agent is at work, or has asked and got no answer. Not shorter than `threads`."""
    webhooks: Period | None = None
    """After which webhooks go that have told everything, counted from the end of their task. For one that was given up
    it counts from that moment, if it is later."""

    @model_validator(mode="after")
    def _in_order(self) -> "Retention":
        if self.unfinished is not None and (self.threads is None or self.unfinished < self.threads):
            raise ValueError("unfinished must be at least as long as threads, and needs threads to be set")
        return self


Periods = Annotated[tuple[Period, ...], NoDecode, BeforeValidator(_parse_list)]


class Webhooks(Section):
    """Retries of webhook deliveries."""

    retries: Periods = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
    """Pauses between the tries to deliver a body, each up to 20 % longer. After the last one the webhook is given up,
    until it is registered again or `babelgate webhooks --retry` starts it. `Retry-After` can only lengthen a pause."""


class Settings(BaseSettings):
    """babelgate.yaml. Every key can also be a variable: limits.body is BABELGATE_LIMITS__BODY."""

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
    """Port to listen on; 0 takes a free one."""
    public_url: HttpUrl | None = None
    """Where callers reach the gateway: every URL that it hands out begins with this."""
    database: Annotated[str, Field(pattern=r"^(sqlite:///.+|postgres(ql)?://.+)$")] = "sqlite:///babelgate.db"
    """Where everything is kept: `sqlite:///` and a file, or `postgresql://user@host/name`."""
    pooler: Annotated[str, Field(pattern=r"^postgres(ql)?://.+$")] | None = None
    """A pooler of PostgreSQL in front of `database`, such as PgBouncer in transaction mode: the gateway reads by it.
    What writes and listens is connected to `database` directly."""
    durability: Literal["process", "power"] = "process"
    """What a committed change survives: a killed process, or also a loss of power. PostgreSQL decides by itself."""
    standby: bool = False
    """Where another gateway uses the database, wait until it is gone, and take over what it did."""
    cluster: bool = False
    """Share the database with other gateways, each a node of one cluster. PostgreSQL only."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that serve the port together, each a node of one cluster. With more than one, PostgreSQL on Linux."""
    node: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of this node in logs; by default host and process id."""
    blobs: Path | None = None
    """Folder of the files that callers and agents send; by default beside the database, or `babelgate.blobs`."""
    artifacts: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$")] | None = (
        None
    )
    """Where these files are instead of a folder: `s3://bucket/prefix`, in an S3-compatible store. Its address, region
    and keys are in the usual variables: `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`…"""
    default_agent: AgentName | None = None
    """Of calls that name no agent; by default the first one."""
    keys: dict[Owner, SecretStr] = {}
    """API keys by owner. Without any, every caller is the owner `default`."""
    allow_anonymous: bool = False
    """Listen on an address that others can reach, though there are no keys."""
    hosts: Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(_parse_list)] = ()
    """Names under which the gateway is called, `*.example.com` for all below one, `*` for any. Those of this machine,
    the address that it listens on, and the name in `public_url` go without saying. With `keys`, any name will do unless
    this is set."""
    network: Network = Network()
    webhook_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Signs what is posted to webhooks, as Standard Webhooks has it: `webhook-id`, `webhook-timestamp` and
    `webhook-signature`. A secret that begins with `whsec_` goes on in base64."""
    webhooks: Webhooks = Webhooks()
    trusted_proxies: Networks = ()
    """Addresses whose X-Forwarded-* headers are believed."""
    cors: Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_parse_list)] = ()
    """Origins whose pages may call the gateway, `*` for all; by default those of this machine."""
    limits: Limits = Limits()
    retention: Retention = Retention()
    shutdown: Shutdown = Shutdown()
    recovery: Recovery = Recovery()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is written to stderr: `debug`, `info`, `warning` or `error`."""
    agents: dict[AgentName, AgentSettings] = Field(default_factory=_demo)
    """By name. Without any, the ten demo agents."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only the arguments of the constructor: `babelgate.gateway.settings.load` reads the environment."""
        return (init_settings,)

    @field_validator("keys")
    @classmethod
    def _distinct(cls, keys: dict[str, SecretStr]) -> dict[str, SecretStr]:
        """Reject invalid and duplicate keys. Errors name entries by number: if key and owner are swapped, the owners'
        names are the keys."""
        entries: dict[str, int] = {}
        for number, secret in enumerate(keys.values(), 1):
            key = secret.get_secret_value()
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ValueError(f"the key of entry {number} is not printable ASCII without spaces")
            if key in entries:
                raise ValueError(f"entries {entries[key]} and {number} have the same key")
            entries[key] = number
        return keys

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
    def is_shared(self) -> bool:
        """True if other gateways use the database at the same time."""
        return self.cluster or self.workers > 1

    @property
    def database_path(self) -> Path:
        """Path of the SQLite file. For PostgreSQL a default from which other paths are derived."""
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


def hide_password(url: str) -> str:
    """Return the URL of a database without its password."""
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

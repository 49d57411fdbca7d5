"""The settings: one frozen model of babelgate.yaml, flags and BABELGATE_… variables, read once at start.

A flag goes before a variable, a variable before the file, the file before the default. `${NAME}` in the file is replaced
by that environment variable; one that is not set is an error that names it.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from canonical.agent import AGENT_NAME

__all__ = ("DEMO", "AgentSettings", "ConfigError", "Limits", "Settings", "Timeouts", "load", "schema")

DEMO: Final = ("echo", "stream", "ask", "approve", "files", "steps", "json", "tools", "slow", "fail")
"""The demo agents, served where no agent is configured."""

_UNITS: Final = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_SIZE: Final = re.compile(r"^\s*(\d+)\s*([KMG]?B?)\s*$", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ConfigError(Exception):
    """A mistake in the configuration, in one line."""


def _size(value: object) -> object:
    if isinstance(value, str):
        match = _SIZE.match(value)
        if match is None:
            raise ValueError("give a size such as 64MB, 512KB or a number of bytes")
        unit = match.group(2).upper()
        return int(match.group(1)) * _UNITS[unit if unit.endswith("B") or not unit else unit + "B"]
    return value


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value, strict=False))
    except ValueError:
        raise ValueError(f"{value} is not a network such as 10.0.0.0/8 or 127.0.0.1") from None


Size = Annotated[
    int,
    BeforeValidator(_size),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE.pattern}]}),
]
"""Bytes, as a number or as `64MB`."""
Seconds = Annotated[float, Field(gt=0)]
NetworkText = Annotated[str, AfterValidator(_network)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Network(_Section):
    allow: tuple[NetworkText, ...] = ()
    """Non-public addresses that webhooks and session fetches may reach."""


class Queue(_Section):
    """How many runs may wait."""

    agent: int = Field(default=1000, ge=0)
    thread: int = Field(default=100, ge=0)
    owner: int = Field(default=5000, ge=0)


class Limits(_Section):
    body: Size = 64 * 2**20
    """Of a request."""
    artifact: Size = 256 * 2**20
    """Of one stored file."""
    event: Size = 8 * 2**20
    """Of one event in the log."""
    inline: Size = 2**20
    """Files up to this size travel inside messages; larger ones by URL."""
    run: Seconds = 3600
    """How long a run may take, where its agent says nothing else."""
    ephemeral_ttl: Seconds = 60
    input_ttl: Seconds = 604800
    cancel_grace: Seconds = 5
    """How long a cancelled agent has before its run is ended without it."""
    queue: Queue = Queue()


class Timeouts(_Section):
    """Seconds, towards an upstream."""

    connect: Seconds = 5
    read: Seconds | None = None
    """Silence on a stream; none by default, because agents think."""
    total: Seconds | None = None
    """Of a run."""


class AgentSettings(_Section):
    python: str | None = None
    """`module:name` of a callable, a generator function or an Agent."""
    url: str | None = None
    protocol: Literal["acp"] | None = None
    agent: str | None = None
    """The upstream's own name of it, where a server has several."""
    headers: Mapping[str, SecretStr] = {}
    description: str | None = None
    timeout: Seconds | Timeouts | None = None
    """Of a run, or `{connect, read, total}`."""
    concurrency: int | None = Field(default=None, ge=1)
    continuable: bool = False
    """A terminal ACP run of it takes another message."""
    idempotent: bool = False
    """It may be started again after a crash."""
    replay: bool = True
    """A paused generator may run again from its start."""

    @model_validator(mode="after")
    def _one_source(self) -> "AgentSettings":
        if (self.python is None) == (self.url is None):
            raise ValueError("give either python: module:name or url: http://…")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: {self.url} does not begin with http:// or https://")
        if self.python is not None and ":" not in self.python:
            raise ValueError(f"python: {self.python} is not module:name")
        return self

    @property
    def timeouts(self) -> Timeouts:
        if isinstance(self.timeout, Timeouts):
            return self.timeout
        return Timeouts() if self.timeout is None else Timeouts(total=self.timeout)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="BABELGATE_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    public_url: str | None = None
    """What every URL that the gateway hands out begins with."""
    database: str = "sqlite:///babelgate.db"
    default_agent: str | None = None
    """The agent of calls that name none; the first one where nothing is said."""
    keys: Mapping[str, SecretStr] = {}
    """Owner → API key. Without keys there is one owner, `default`, and only loopback is served."""
    network: Network = Network()
    durability: Literal["process", "power"] = "process"
    """What an acknowledgement survives: a killed process, or power loss as well."""
    blobs: Path | None = None
    """The folder of stored files; beside the database by default."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Peers whose X-Forwarded-* headers are believed."""
    cors: tuple[str, ...] = ()
    """Origins of browsers; loopback ones by default."""
    limits: Limits = Limits()
    agents: Mapping[str, AgentSettings] = {}
    allow_anonymous: bool = False
    """Serve other addresses than loopback without keys."""

    @model_validator(mode="after")
    def _names(self) -> "Settings":
        for name in self.agents:
            if not AGENT_NAME.match(name):
                raise ValueError(
                    f"agents: {name} is not a name: use lower-case letters, digits, '-', '_' and '.', 63 at most"
                )
        if self.default_agent is not None and self.agents and self.default_agent not in self.agents:
            raise ValueError(f"default_agent: {self.default_agent} is not one of the agents: {', '.join(self.agents)}")
        keys = [key.get_secret_value() for key in self.keys.values()]
        if any(len(key) < 8 for key in keys):
            raise ValueError("keys: a key needs at least 8 characters")
        if len(set(keys)) < len(keys):
            raise ValueError("keys: two owners have the same key")
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            raise ValueError(f"public_url: {self.public_url} does not begin with http:// or https://")
        return self

    @property
    def blob_folder(self) -> Path:
        if self.blobs is not None:
            return self.blobs
        path = self.database.removeprefix("sqlite:///")
        return Path(path).with_suffix(".blobs") if path != self.database else Path("babelgate.blobs")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # `load` merges the sources itself, to say where a mistake is


def load(file: Path | None = None, environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Read the settings. `flags` are those that were given, by field name; None means not given.

    Raises:
        ConfigError: one line a mistake.
    """
    environ = os.environ if environ is None else environ
    merged = _merge(_from_file(file, environ), _from_environment(environ))
    merged = _merge(merged, {name: value for name, value in flags.items() if value is not None})
    try:
        return Settings(**merged)
    except ValidationError as error:
        where = f"{file}: " if file is not None else ""
        raise ConfigError("\n".join(where + line for line in _lines(error))) from None


def _from_file(file: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{file}: the top level must be keys and values")
    return _expand(loaded, environ, str(file))


def _expand(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """Replace `${NAME}` in every string."""
    if isinstance(value, dict):
        return {str(key): _expand(inner, environ, f"{where}: {key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner, environ, where) for inner in value]
    if not isinstance(value, str):
        return value

    def replaced(match: "re.Match[str]") -> str:
        if match.group(1) not in environ:
            raise ConfigError(f"{where}: the environment variable {match.group(1)} is not set")
        return environ[match.group(1)]

    return _VARIABLE.sub(replaced, value)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    class Source(EnvSettingsSource):
        def _load_env_vars(self) -> Mapping[str, str | None]:
            return {name.lower(): value for name, value in environ.items()}

    try:
        found = Source(Settings)()
    except ValueError as error:  # a variable that should hold JSON and does not
        raise ConfigError(f"BABELGATE_…: {error}") from None
    return found


def _merge(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        before = merged.get(key)
        merged[key] = _merge(before, value) if isinstance(before, dict) and isinstance(value, Mapping) else value
    return merged


def _lines(error: ValidationError) -> list[str]:
    lines: list[str] = []
    for mistake in error.errors(include_url=False, include_input=False):
        where = ".".join(str(step) for step in mistake["loc"])
        words = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            words = "there is no such setting"
        lines.append(f"{where}: {words}" if where else words)
    return lines


def schema() -> dict[str, Any]:
    """The JSON Schema of babelgate.yaml."""
    made = Settings.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "babelgate.yaml"}

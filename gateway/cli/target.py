"""Targets of the command line: the agents to serve, record or bench."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from babelgate.canonical.agent import AGENT_NAME
from babelgate.conformance.wire.credentials import credentials_header, hide_credentials, secrets_of
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.settings.fields import TOKEN
from babelgate.gateway.settings.load import FILE, ConfigError, load, read_file
from babelgate.gateway.settings.model import DEMO

_NAMED: Final = re.compile(r"([^=:/#]+)=(.+)", re.DOTALL)
"""Target with the user's name for it, such as `weather=http://127.0.0.1:8333`. A URL may contain `=`, but not before
its first `:` or `/`."""
_PYTHON: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Targets:
    agents: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Settings of agents by name, in the form of `agents` in the settings."""
    servers: tuple[str, ...] = ()
    """URLs of servers whose agents are all served, under their own names."""


def read_targets(texts: Iterable[str]) -> Targets:
    """Parse targets: `name=URL`, `URL`, `URL#agent`, `name=module:name`, `module:name`. Raises CliError for any other
    form, and for a name that occurs twice."""
    agents: dict[str, dict[str, Any]] = {}
    servers: list[str] = []
    for text in texts:
        named = _NAMED.fullmatch(text)
        name, source = (named[1], named[2]) if named else (None, text)
        if source.startswith(("http://", "https://")):
            url, _, agent = source.partition("#")
            if "@" in url.split("/")[2]:
                raise _wrong(text, "a URL without a user and password; credentials go into headers")
            if name is None and not agent:
                servers.append(url.rstrip("/"))
                continue
            entry = {"url": url, "agent": agent} if agent else {"url": url}
            name = name or agent.lower()
        elif _PYTHON.fullmatch(source):
            entry = {"python": source}
            name = name or source.rpartition(":")[2].rpartition(".")[2].lower().strip("_")
        else:
            raise _wrong(text, f"this is neither a URL nor module:name{_hint_for_file(source)}")
        if not AGENT_NAME.fullmatch(name):
            raise _wrong(
                text,
                f"{name or 'nothing'} is not a valid agent name (a-z, 0-9, - _ .): put one in front, as in my-agent=",
            )
        if name in agents:
            raise _wrong(text, f"there is another agent {name}: give one of them another name, as in {name}-2=")
        agents[name] = entry
    return Targets(agents, tuple(dict.fromkeys(servers)))


def _hint_for_file(text: str) -> str:
    """Return a hint how to name an agent in a Python file, if `text` is the path of such a file. Otherwise return an
    empty text."""
    path = Path(text)
    return f"; for an agent in that file, write {path.stem}:NAME" if path.suffix == ".py" and path.is_file() else ""


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """Target that is one agent, or a server with several agents."""

    text: str
    """Target as the user wrote it, without a user and password."""
    name: str | None
    """Name of the agent; None means all agents of the server."""
    entry: Mapping[str, Any]
    """Settings of the agent, in the form of an entry of `agents` in the settings."""
    secrets: Sequence[str] = ()
    """Secrets in the settings of the agent, such as values of headers, which no output may contain."""

    @property
    def url(self) -> str | None:
        return self.entry.get("url")

    @property
    def headers(self) -> Mapping[str, str]:
        return self.entry.get("headers") or {}


def configured_agents(config: Path | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of the agents that a name alone can select: those of the file `config` (None:
    ./babelgate.yaml, if it exists), and the demo agents. Raises CliError for an invalid file."""
    path = FILE if config is None and FILE.is_file() else config
    found: Mapping[str, Any] = {}
    try:
        if path is not None:
            load(path)  # errors in the file are reported before any agent is called
            found = read_file(path).get("agents") or {}
    except ConfigError as error:
        raise CliError(*error.problems, code=USAGE) from None
    return {**{name: {"python": f"babelgate.gateway.demo:{name}"} for name in DEMO}, **found}


def read_agent(
    text: str, configured: Mapping[str, Mapping[str, Any]], headers: Mapping[str, str] | None = None
) -> AgentTarget:
    """Parse a target in a form of `read_targets`, or the name of an agent in `configured`.

    `headers` are sent to the agent's server in addition to configured ones, and so are a user and password in the URL.
    Raises CliError for any other text.
    """
    source = _source_of(text)
    text, headers = hide_credentials(text), {**credentials_header(source), **(headers or {})}
    named = _NAMED.fullmatch(text)
    wanted = named[2] if named else text
    entry: Mapping[str, Any]
    if wanted in configured:
        name, entry = named[1] if named else text, configured[wanted]
        if not AGENT_NAME.fullmatch(name):
            raise _wrong(text, f"{name} is not a valid agent name (a-z, 0-9, - _ .)")
    elif not (wanted.startswith(("http://", "https://")) or _PYTHON.fullmatch(wanted)):
        raise _wrong(text, f"expected a URL, module:name or a configured agent; the agents are {', '.join(configured)}")
    else:
        read = read_targets([text])
        name, entry = next(iter(read.agents.items()), (None, {"url": next(iter(read.servers), "")}))
    if headers and "python" not in entry:
        configured_headers = cast("Mapping[str, str]", entry.get("headers") or {})
        entry = {**entry, "headers": {**configured_headers, **headers}}
    return AgentTarget(text, name, entry, secrets_of([source], [cast("Mapping[str, str]", entry.get("headers") or {})]))


def _source_of(text: str) -> str:
    named = _NAMED.fullmatch(text)
    return named[2] if named else text


def read_header(text: str) -> tuple[str, str]:
    """Parse the `Name: value` of an option `--header`, and return the name and the value. Raises CliError for any other
    form. The error does not quote the text, which may be only the secret value."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon:
        raise CliError("--header: give NAME: VALUE", code=USAGE)
    if not TOKEN.fullmatch(name) or not (value.isascii() and value.isprintable()):
        raise CliError("--header: the name must be one word, and the value printable ASCII", code=USAGE)
    return name, value


def _wrong(text: str, reason: str) -> CliError:
    return CliError(f"{hide_credentials(text)}: {reason}", code=USAGE)

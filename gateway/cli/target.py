"""What `babelgate serve` is told to front on the command line."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from canonical.agent import AGENT_NAME
from gateway.cli.refusal import USAGE, Refusal

__all__ = ("Targets", "read_targets")

_NAMED: Final = re.compile(r"([^=:/#]+)=(.+)", re.DOTALL)
"""A URL may hold `=`, but not before its first `:` or `/`."""
_PYTHON: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Targets:
    agents: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """As `agents` of the settings."""
    servers: tuple[str, ...] = ()
    """URLs of which every agent is served, under its own name."""


def read_targets(texts: Iterable[str]) -> Targets:
    """`name=URL`, `URL`, `URL#agent`, `name=module:name`, `module:name`. Raises Refusal."""
    agents: dict[str, dict[str, Any]] = {}
    servers: list[str] = []
    for text in texts:
        named = _NAMED.fullmatch(text)
        name, source = (named[1], named[2]) if named else (None, text)
        if source.startswith(("http://", "https://")):
            url, _, agent = source.partition("#")
            if name is None and not agent:
                servers.append(url.rstrip("/"))
                continue
            entry = {"url": url, "agent": agent} if agent else {"url": url}
            name = name or agent.lower()
        elif _PYTHON.fullmatch(source):
            entry = {"python": source}
            name = name or source.rpartition(":")[2].rpartition(".")[2].lower().strip("_")
        else:
            raise _wrong(text, "this is neither a URL nor module:name")
        if not AGENT_NAME.fullmatch(name):
            raise _wrong(
                text,
                f"{name or 'nothing'} is no name for an agent (a-z, 0-9, - _ .): put one before it, as in my-agent=",
            )
        if name in agents:
            raise _wrong(text, f"there is another agent {name}: give one of them another name, as in {name}-2=")
        agents[name] = entry
    return Targets(agents, tuple(dict.fromkeys(servers)))


def _wrong(text: str, reason: str) -> Refusal:
    return Refusal(f"{text}: {reason}", code=USAGE)

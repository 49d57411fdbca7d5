"""Routes of the gateway, with the protocol of each and the format of its errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal, cast

from litestar.routes import HTTPRoute

from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.http.app import create_app
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.observe import NO_OBSERVER
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.auditor import NO_AUDITOR
from tests.gateway.knowledge import prefixed

Protocol = Literal["acp", "a2a", "aief", "langchain", "runtime", "mcp", "openai", "ag-ui", "own"] | str
"""Name of a built-in protocol, or of one of another package."""
Words = (
    Literal[
        "acp",
        "rpc",
        "rest",
        "rest-0.3",
        "aief",
        "langgraph",
        "langgraph-command",
        "agent-protocol",
        "agent-protocol-command",
        "runtime",
        "mcp",
        "openai",
        "ag-ui",
        "own",
    ]
    | str
)
"""Format of error bodies:

- of A2A: `rpc` for JSON-RPC, `rest` for REST 1.0 and `rest-0.3`
- of commands of LangGraph and of the Agent Protocol: `langgraph-command` and `agent-protocol-command`
- of the gateway itself: `own`
- of any other protocol: its name
"""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
AGENT_SLOT: Final = frozenset({"agent", "name", "agent_id", "model"})
"""Parameters of paths that hold the name or the id of an agent."""
FREE_SLOT: Final = frozenset({"namespace", "labels", "key", "any_chat"})
"""Parameters of paths for which every value is valid: no namespace has subgraphs, an item may have any key, and nothing
runs in an unknown chat."""
ADMIN_SLOT: Final = frozenset({"key_id", "job_id"})
"""Parameters of paths that name things of the gateway, which belong to no owner."""


CHANGES: Final = "/console/api/v1/changes"
"""Path of a stream that never ends."""
PAGE_PATHS: Final = frozenset({"/console", "/console/{file}"})
"""Paths of the static files of the console, which need no credential and are the same for everyone."""
PAGE_SLOT: Final = "file"
"""Parameter of the path of a static file, which belongs to no owner."""
PAGE: Final = "0123456789abcdef/main.js"
"""Value of the parameter `PAGE_SLOT` that has the form of a file's path, but names no existing file."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    """Path with its parameters as `{name}`."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def slots(self) -> Sequence[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def words(self) -> Words:
        return words_of(self.method, self.path)

    @property
    def protocol(self) -> Protocol:
        return protocol_of(self.path)

    @property
    def again(self) -> bool:
        """True if the route serves the Agent Protocol's dialect. The same handler serves LangGraph's route."""
        return self.words in ("agent-protocol", "agent-protocol-command")

    @property
    def waits(self) -> bool:
        """True if the route streams the events of a thread. The stream waits for the thread and ends with it."""
        return is_waiting(self.method, self.path)

    def at(self, slots: Mapping[str, str]) -> str:
        """Return the path with these percent-encoded values as its parameters."""
        return re.sub(r"{(\w+)}", lambda match: slots[match[1]], self.path)


def _bare(path: str) -> str:
    """Return the path without the prefix `/agent/NAME`."""
    return re.sub(r"^/agent/[^/]+(?=/)", "", path)


def protocol_of(path: str) -> Protocol:
    """Return the protocol of a path, by the layout of paths that the protocols' documents define.

    The gateway adds a prefix only to ACP. LangGraph is at the root.
    """
    path = _bare(path)
    if re.match(r"/acp(/|$)", path):
        return "acp"
    if re.match(r"/a2a(/|$)|/\.well-known/agent(-card)?\.json$", path):
        return "a2a"
    if re.match(r"/ap(/|$)", path):
        return "aief"
    if re.match(r"/(agent-protocol|agents|assistants|info|ok|runs|store|threads)(/|$)", path):
        return "langchain"
    if re.match(r"/v1/(threads|runs)(/|$)", path):
        return "runtime"
    if re.match(r"/v1/messages(/|$)", path):
        return "anthropic"
    if re.match(r"/v1(/|$)", path):
        return "openai"
    if re.match(r"/mcp(/|$)", path):
        return "mcp"
    if re.match(r"/ag-ui(/|$)", path):
        return "ag-ui"
    return prefixed(path) or "own"


def words_of(method: str, path: str) -> Words:
    """Return the format of the errors of a route.

    The agent's URL itself is A2A's JSON-RPC. REST 1.0 is directly below it, REST 0.3 below `/v1`, and the extended card
    of 0.2 below `/agent`. The Agent Protocol's dialect is below `/agent-protocol`.
    """
    path = _bare(path)
    match protocol_of(path):
        case "langchain":
            command = method == "POST" and re.fullmatch(r"(/agent-protocol)?/threads/[^/]+/commands", path)
            if re.match(r"/agent-protocol(/|$)", path):
                return "agent-protocol-command" if command else "agent-protocol"
            return "langgraph-command" if command else "langgraph"
        case "a2a" if method == "POST" and re.match(r"/a2a/[^/]+$", path):
            return "rpc"
        case "a2a":
            return "rest-0.3" if re.match(r"/a2a/[^/]+/(v1|agent)(/|$)", path) else "rest"
        case protocol:
            return protocol


def is_waiting(method: str, path: str) -> bool:
    """Return True if the method and path are those of a route that `waits`."""
    streams = re.fullmatch(r"(/agent-protocol)?/threads/[^/]+/stream(/events)?", _bare(path))
    return method == "POST" and streams is not None


UNOPENED_HUB: Final = cast("Any", SimpleNamespace(observer=NO_OBSERVER, auditor=NO_AUDITOR))
"""Hub for an application whose routes are only listed."""


def _table() -> tuple[Route, ...]:
    """Return the routes of the app.

    Litestar cannot register a segment such as `{task_id}:cancel`. The adapter parses such segments itself, so those
    routes are added here by hand.
    """
    app = create_app(Generations(Settings(), Registry([])), UNOPENED_HUB).app
    found: set[Route] = set()
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        path = re.sub(r"{(\w+):\w+}", r"{\1}", route.path)
        methods = set(route.methods) - {"OPTIONS", "HEAD"}
        if path.endswith("/tasks/{rest}"):
            task = path.replace("{rest}", "{task_id}")
            found |= {Route("GET", task), Route("POST", f"{task}:cancel")}
            found |= {Route(method, f"{task}:subscribe") for method in ("GET", "POST")}
            continue
        found |= {Route(method, path) for method in methods}
    return tuple(sorted(found, key=str))


ROUTES: Final = _table()


def paths() -> Sequence[str]:
    return sorted({route.path for route in ROUTES})


def allowed(path: str) -> set[str]:
    """Return the methods of a path: those of its routes, HEAD if there is GET, and OPTIONS."""
    methods = {route.method for route in ROUTES if route.path == path}
    return methods | ({"HEAD"} if "GET" in methods else set[str]()) | {"OPTIONS"}

"""The gateway's routes as data: what a request can be sent to, and which protocol's words an error there is in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from litestar.routes import HTTPRoute

from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.http.app import create_app
from babelgate.gateway.settings.model import Settings
from tests.gateway.knowledge import prefixed

Protocol = Literal["acp", "a2a", "aief", "langchain", "runtime", "mcp", "openai", "own"] | str
"""Or the name of one that another package offers."""
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
        "own",
    ]
    | str
)
"""Whose error body: ACP's, A2A's in JSON-RPC, in REST 1.0 and in REST 0.3, AIEF's, LangGraph's, the Agent Protocol's,
that of a command in either of these, the minimal runtime's, MCP's, OpenAI's, or the gateway's own; or, by its name,
those of a protocol of another package."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
AGENT_SLOT: Final = frozenset({"agent", "name", "agent_id", "model"})
"""Parameters that hold the name of an agent, or its id."""
FREE_SLOT: Final = frozenset({"namespace", "labels", "key"})
"""Parameters that every value is right for: there are no subgraphs, in whatever namespace, and a value may be kept
under any key."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    """With its parameters as `{name}`."""

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
        """Whether it is a route of the root, in the Agent Protocol's own dialect: the handler is the same."""
        return self.words in ("agent-protocol", "agent-protocol-command")

    @property
    def waits(self) -> bool:
        """Whether it streams the events of a thread: silent until there is one, and then for as long as there is."""
        return is_waiting(self.method, self.path)

    def at(self, slots: Mapping[str, str]) -> str:
        """The path with these values, already percent-encoded, in its slots."""
        return re.sub(r"{(\w+)}", lambda match: slots[match[1]], self.path)


def _bare(path: str) -> str:
    """Of an agent that is alone behind a path of its own, the path below that."""
    return re.sub(r"^/agent/[^/]+(?=/)", "", path)


def protocol_of(path: str) -> Protocol:
    """By the layout of paths that the protocols' documents give: ACP has a prefix here, AIEF, OpenAI and the minimal
    runtime have ones of their own, and LangGraph is at the root."""
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
    if re.match(r"/v1(/|$)", path):
        return "openai"
    if re.match(r"/mcp(/|$)", path):
        return "mcp"
    return prefixed(path) or "own"


def words_of(method: str, path: str) -> Words:
    """A2A's JSON-RPC is the agent's URL itself, its REST 1.0 is right below it, REST 0.3 below `/v1`, and 0.2's
    extended card beside. The Agent Protocol has its own dialect below `/agent-protocol`."""
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
    """Whether there is such a route that `waits`."""
    streams = re.fullmatch(r"(/agent-protocol)?/threads/[^/]+/stream(/events)?", _bare(path))
    return method == "POST" and streams is not None


def _table() -> tuple[Route, ...]:
    """What the app has registered. A segment such as `{task_id}:cancel` cannot be registered, so the adapter takes it
    apart itself: those routes stand here by hand."""
    app = create_app(cast("Any", None), Registry([]), Settings()).app
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
    """The methods of a path: those of its routes, HEAD wherever there is GET, and OPTIONS everywhere."""
    methods = {route.method for route in ROUTES if route.path == path}
    return methods | ({"HEAD"} if "GET" in methods else set[str]()) | {"OPTIONS"}

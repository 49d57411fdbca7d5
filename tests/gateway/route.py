"""The gateway's routes as data: what a request can be sent to, and which protocol's words an error there is in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from litestar.routes import HTTPRoute

from gateway.app import create_app
from gateway.config import Settings
from gateway.registry import Registry

__all__ = ("AGENT_SLOT", "METHODS", "ROUTES", "Route", "Words", "allowed", "paths", "words_of")

Words = Literal["acp", "rpc", "rest", "rest-0.3", "own"]
"""Whose error body: ACP's, A2A's in JSON-RPC, in REST 1.0 and in REST 0.3, or the gateway's own."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
AGENT_SLOT: Final = frozenset({"agent", "name"})
"""Parameters that hold the name of an agent."""


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

    def at(self, slots: Mapping[str, str]) -> str:
        """The path with these values, already percent-encoded, in its slots."""
        return re.sub(r"{(\w+)}", lambda match: slots[match[1]], self.path)


def words_of(method: str, path: str) -> Words:
    """By the layout of paths that the protocols' documents give: ACP has a prefix here, A2A's JSON-RPC is the agent's
    URL itself, its REST 1.0 is right below it, REST 0.3 below `/v1`, and 0.2's extended card beside."""
    path = re.sub(r"^/agent/[^/]+(?=/)", "", path)
    if re.match(r"/acp(/|$)", path):
        return "acp"
    if re.match(r"/\.well-known/agent(-card)?\.json$", path):
        return "rest"
    if not re.match(r"/a2a(/|$)", path):
        return "own"
    if method == "POST" and re.match(r"/a2a/[^/]+$", path):
        return "rpc"
    return "rest-0.3" if re.match(r"/a2a/[^/]+/(v1|agent)(/|$)", path) else "rest"


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

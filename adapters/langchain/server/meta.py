"""Routes for health and version (`/ok`, `/info`), which clients request before they use a server."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.langchain.server.answers import answer
from babelgate.adapters.langchain.server.parameters import flag
from babelgate.canonical import Hub, Principal
from babelgate.canonical.value import JsonObject


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    @get("/ok")
    async def ok(request: AnyRequest) -> Response[Any]:
        """Respond that the gateway is healthy. With `check_db` it reads from the database first, and a failure becomes
        an error response. `/readyz` checks more."""
        if flag(request, "check_db"):
            await hub.store.get(Principal.of_owner(""), ("ok",), "ok", refresh=False)
        # The response of langgraph-api 0.16.7.
        return answer({"ok": True, "services": {}})

    @get("/info")
    async def info() -> Response[Any]:
        """Return the version of the gateway, and flags of the features that clients may show. The version is not one of
        LangGraph, which the gateway does not contain. The flags allow assistants and crons, but no traces at
        LangSmith."""
        body: JsonObject = {
            "version": version("babelgate"),
            "flags": {"assistants": True, "crons": True, "langsmith": False},
            "host": {"kind": "self-hosted"},
        }
        return answer(body)

    return [ok, info]

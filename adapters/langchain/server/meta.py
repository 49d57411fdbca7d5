"""Health and version (`/ok`, `/info`): what clients ask of a server before they use it."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from babelgate.adapters.langchain.server.answers import answer
from babelgate.adapters.langchain.server.parameters import AnyRequest, flag
from babelgate.canonical import Hub
from babelgate.canonical.value import JsonObject


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    @get("/ok")
    async def ok(request: AnyRequest) -> Response[Any]:
        """With `check_db`, only if the database can be read: what cannot be read is raised. (`/readyz` says more.)"""
        if flag(request, "check_db"):
            await hub.store.get("", ("ok",), "ok", refresh=False)
        # As langgraph-api 0.16.7 answers.
        return answer({"ok": True, "services": {}})

    @get("/info")
    async def info() -> Response[Any]:
        """The version is the gateway's own, and no version of LangGraph is named: there is none inside. The flags say
        what a client may show: assistants to choose from, crons, no traces at LangSmith."""
        found: JsonObject = {
            "version": version("babelgate"),
            "flags": {"assistants": True, "crons": True, "langsmith": False},
            "host": {"kind": "self-hosted"},
        }
        return answer(found)

    return [ok, info]

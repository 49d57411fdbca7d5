"""Drives an agent on a LangGraph server, or on one that speaks the Agent Protocol: a streamed run, its answers, its
cancel, the rest of a stream that broke."""

from collections.abc import Sequence
from typing import Literal, Unpack
from urllib.parse import quote

from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import ReattachableClient, UpstreamRun
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.client.discovery import describe, discover
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.run import Run
from babelgate.adapters.langchain.client.server import Server
from babelgate.adapters.langchain.client.thread import update_state
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.canonical.event import StateSaved
from babelgate.canonical.value import JsonObject

__all__ = ("Client", "describe", "discover")


class Client(ReattachableClient[HttpClient]):
    """`agent` is the server's own name of it: a graph's or an assistant's id, or the `agent_id`. `dialect` = which one
    the server speaks, None = LangGraph if it has assistants. `extension` = whether the Babelgate extension is activated
    where the server has it."""

    def __init__(
        self,
        url: str,
        agent: str,
        *,
        dialect: Dialect | None = None,
        extension: Literal["on", "off"] = "on",
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(HttpClient(url, **connection))
        self._server = Server(self._http, agent, dialect, extension=extension == "on")

    async def aclose(self) -> None:
        await self._server.aclose()
        await super().aclose()

    def start(self, call: Invocation) -> UpstreamRun:
        return Run(self._server, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        return Run(self._server, call, is_attached=True)

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """The port of agents with a state of their own (`babelgate.canonical.agent.Stateful`). Raises unsupported."""
        if await self._server.detect_dialect() != "langgraph":
            raise FaultError(FaultCode.UNSUPPORTED, "The agent's server has no API for the states of threads.")
        return await update_state(self._http, call, removed_ids, as_node)

    # The port of agents that are graphs (`babelgate.canonical.agent.Introspectable`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        shown = f"?xray={json_text(depth)}" if depth else ""
        drawn = await self._server.of_assistant(f"graph{shown}")
        return drawn if drawn is not None and "nodes" in drawn and "edges" in drawn else None

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        below = "" if namespace is None else f"/{quote(namespace, safe='')}"
        return await self._server.of_assistant(f"subgraphs{below}{'?recurse=true' if recurse else ''}")

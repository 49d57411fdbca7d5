"""Client for an agent on a LangGraph server or on a server of the Agent Protocol. It streams runs, answers their
questions, cancels them, and resumes streams that broke."""

from collections.abc import Sequence
from typing import Literal, Unpack
from urllib.parse import quote

from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import ReattachableClient, UpstreamRun
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.client.discovery import describe, discover
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.run import LangGraphRun
from babelgate.adapters.langchain.client.server import UpstreamServer
from babelgate.adapters.langchain.client.thread import update_state
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.canonical.event import StateSaved
from babelgate.canonical.value import JsonObject

__all__ = ("Client", "describe", "discover")


class Client(ReattachableClient[HttpClient]):
    """Client for one agent of a server.

    - `agent`: the server's name of the agent: the id of a graph or an assistant, or the `agent_id`.
    - `dialect`: the server's dialect. None: LangGraph if the server has assistants, else the Agent Protocol.
    - `extension`: `on` activates the Babelgate extension on servers that have it.
    """

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
        self._server = UpstreamServer(self._http, agent, dialect, extension=extension == "on")

    async def aclose(self) -> None:
        await self._server.aclose()
        await super().aclose()

    def start(self, call: Invocation) -> UpstreamRun:
        return LangGraphRun(self._server, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        return LangGraphRun(self._server, call, is_attached=True)

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Change the state of a thread on the server (`babelgate.canonical.agent.Stateful`). The change counts as the
        output of the node `as_node`; the server chooses the node if it is None. Raises unsupported if the server speaks
        the Agent Protocol."""
        if await self._server.detect_dialect() != "langgraph":
            raise FaultError(FaultCode.UNSUPPORTED, "The agent's server has no API for the states of threads.")
        return await update_state(self._http, call, removed_ids, as_node)

    # The port of agents that can describe their graph (`babelgate.canonical.agent.Introspectable`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        query = f"?xray={json_text(depth)}" if depth else ""
        graph = await self._server.get_from_assistant(f"graph{query}")
        return graph if graph is not None and "nodes" in graph and "edges" in graph else None

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        suffix = "" if namespace is None else f"/{quote(namespace, safe='')}"
        return await self._server.get_from_assistant(f"subgraphs{suffix}{'?recurse=true' if recurse else ''}")

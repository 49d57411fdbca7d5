"""LangChain's Agent Protocol 0.1.6: runs of an agent, with messages beside the state and not in it."""

from collections.abc import Sequence
from typing import Any, ClassVar

from babelgate.conformance.across.langgraph import Threads, message_of
from babelgate.conformance.across.model import Handle, Input
from babelgate.conformance.wire.exchange import Exchange, as_list, dig


class AgentProtocol(Threads):
    """By its OpenAPI document, in which runs are not below threads."""

    name: ClassVar = "agent-protocol"
    title: ClassVar = "Agent Protocol"
    agent_key: ClassVar = "agent_id"
    speaker: ClassVar = ("role", ("assistant",))
    modes: ClassVar = ("values", "messages", "custom")
    path_of_end: ClassVar = "wait"

    def _runs(self, handle: Handle, *way: str) -> str:
        return self._url("runs", *way)

    def _run(self, handle: Handle, *way: str) -> str:
        return self._url("runs", handle.run, *way)

    async def _list_runs(self, thread: str) -> Exchange:
        return await self._ask("POST", self._url("runs", "search"), {"thread_id": thread, "limit": 100})

    def _body(self, handle: Handle, said: Input) -> dict[str, Any]:
        asked = {"input": said.data} if said.data is not None else {"messages": [message_of(said)]}
        # Who hangs up ends the run otherwise: on_disconnect is "cancel" where nothing is said.
        return {**self._agent_member(handle.agent), **asked, "thread_id": handle.thread, "on_disconnect": "continue"}

    def _values(self, ending: Any) -> tuple[Any, Sequence[Any]]:
        return dig(ending, "values"), as_list(dig(ending, "messages"))

"""Driver for LangChain's Agent Protocol 0.1.6. A run of an agent is on a thread, whose messages are separate from its
values."""

from collections.abc import Sequence
from typing import Any, ClassVar

from babelgate.conformance.across.langgraph import LangChainDriver, message_of
from babelgate.conformance.across.model import CallerInput, Handle
from babelgate.conformance.wire.exchange import Exchange, as_list, dig


class AgentProtocol(LangChainDriver):
    """Driver of a server of LangChain's Agent Protocol, with the paths of its OpenAPI document (`/runs`, not
    `/threads/{id}/runs`)."""

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

    def _body(self, handle: Handle, caller_input: CallerInput) -> dict[str, Any]:
        run_input = (
            {"input": caller_input.data} if caller_input.data is not None else {"messages": [message_of(caller_input)]}
        )
        # By default, `on_disconnect` is "cancel": a disconnected client would end the run.
        return {
            **self._agent_member(handle.agent),
            **run_input,
            "thread_id": handle.thread,
            "on_disconnect": "continue",
        }

    def _values(self, ending: Any) -> tuple[Any, Sequence[Any]]:
        return dig(ending, "values"), as_list(dig(ending, "messages"))

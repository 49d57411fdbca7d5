"""Agent of the Agent Client Protocol SDK for Python 0.12, over stdio: it echoes, and does what some texts say."""

import asyncio
from typing import Any
from uuid import uuid4

import acp
from acp.schema import AgentCapabilities, Implementation, InitializeResponse, NewSessionResponse, PromptResponse


class EchoAgent(acp.Agent):
    """Agent as in the SDK's documentation, with a long task, a failure and a permission."""

    def __init__(self) -> None:
        self._sessions: set[str] = set()
        self._turns: dict[str, asyncio.Event] = {}
        """Events that cancel the active turns, by session id."""

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="echo", version="1"),
        )

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        session_id = uuid4().hex
        self._sessions.add(session_id)
        return NewSessionResponse(session_id=session_id)

    async def prompt(self, prompt: list[Any], session_id: str, **kwargs: Any) -> PromptResponse:
        if session_id not in self._sessions:
            raise acp.RequestError.resource_not_found(session_id)
        cancelled = self._turns[session_id] = asyncio.Event()
        try:
            reason = await self._act(session_id, " ".join(getattr(block, "text", None) or "" for block in prompt))
        finally:
            del self._turns[session_id]
        return PromptResponse(stop_reason="cancelled" if cancelled.is_set() else reason)

    async def _act(self, session_id: str, text: str) -> Any:
        if text.startswith("fail"):
            raise acp.RequestError.internal_error()
        if text.startswith("wait"):
            await self._turns[session_id].wait()
        if text.startswith("may I"):
            options = [{"optionId": each, "name": each, "kind": f"{each}_once"} for each in ("allow", "reject")]
            call = {"toolCallId": uuid4().hex, "title": "write"}
            answer = await self._client.request_permission(session_id=session_id, tool_call=call, options=options)
            if answer.outcome.outcome == "cancelled":
                return "cancelled"
        for word in text.split(" "):
            await self._client.session_update(session_id=session_id, update=acp.update_agent_message_text(f"{word} "))
        return "end_turn"

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if session_id in self._turns:
            self._turns[session_id].set()


if __name__ == "__main__":
    asyncio.run(acp.run_agent(EchoAgent()))

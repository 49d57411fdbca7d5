"""Client of the Agent Client Protocol SDK for Python, 0.12 and 1.0, driven by JSON lines (see `lines`)."""

import os
from contextlib import AsyncExitStack
from typing import Any

import acp
from acp.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
    TextContentBlock,
)
from acp.ws.client import create_websocket_stream
from lines import answer_calls
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Recorder(acp.Client):
    """Client that selects the first option, and fills in every form."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self._content = content

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(dump(update))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.asked.append([each.option_id for each in options])
        outcome = {"outcome": "selected", "optionId": options[0].option_id}
        return RequestPermissionResponse.model_validate({"outcome": outcome})

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        self.asked.append(dump(mode))
        return {"action": "accept", "content": self._content}


async def converse(
    texts: list[str], url: str = "", command: list[str] | None = None, content: dict[str, Any] | None = None
) -> Any:
    """Send prompts in a new session, over a WebSocket or to a command, and load the session in the end."""
    recorder = Recorder(content or {})
    async with AsyncExitStack() as stack:
        # The SDK answers elicitations only as a part of the unstable protocol.
        if command is None:
            agent = acp.connect_to_agent(recorder, await create_websocket_stream(url), use_unstable_protocol=True)
            stack.push_async_callback(agent.close)
        else:
            running = acp.spawn_agent_process(recorder, *command, env=dict(os.environ), use_unstable_protocol=True)
            agent, _ = await stack.enter_async_context(running)
        forms = ElicitationCapabilities(form=ElicitationFormCapabilities()) if content is not None else None
        started = await agent.initialize(1, client_capabilities=ClientCapabilities(elicitation=forms))
        session = await agent.new_session(cwd="/work", mcp_servers=[])
        results: list[Any] = []
        for text in texts:
            prompt = [TextContentBlock(type="text", text=text)]
            results.append(dump(await agent.prompt(session_id=session.session_id, prompt=prompt)))
        updates, recorder.updates = recorder.updates, []
        await agent.load_session(cwd="/work", session_id=session.session_id, mcp_servers=[])
        listed = await agent.list_sessions(cwd="/work")
        return {
            "initialized": dump(started),
            "results": results,
            "updates": updates,
            "asked": recorder.asked,
            "loaded": recorder.updates,
            "sessions": [each.session_id for each in listed.sessions].count(session.session_id),
        }


if __name__ == "__main__":
    import asyncio

    asyncio.run(answer_calls({"converse": converse}, lambda error: getattr(error, "data", None)))

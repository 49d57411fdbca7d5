"""Coding agent built with the Agent Client Protocol SDK for Python, on stdin and stdout.

The first word of a prompt selects what it does. Its sessions are files in its folder.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import acp
from acp.helpers import text_block, update_agent_message, update_agent_thought
from acp.schema import (
    AgentCapabilities,
    Implementation,
    PermissionOption,
    PlanEntry,
    PromptCapabilities,
    ToolCallUpdate,
)

OPTIONS = [
    PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
]


def read(session_id: str) -> list[str]:
    """Return the prompts of a session."""
    path = Path(session_id)
    return json.loads(path.read_text()) if path.exists() else []


def write(session_id: str, texts: list[str]) -> None:
    Path(session_id).write_text(json.dumps(texts))


class CodingAgent(acp.Agent):
    client: Any

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=1,
            agent_capabilities=AgentCapabilities(
                load_session=True, prompt_capabilities=PromptCapabilities(image=True, embedded_context=True)
            ),
            agent_info=Implementation(name="sdk-agent", version="1"),
        )

    async def new_session(self, cwd: str, **kwargs: Any) -> acp.NewSessionResponse:
        session_id = str(uuid4())
        write(session_id, [])
        return acp.NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **kwargs: Any) -> acp.LoadSessionResponse:
        for text in read(session_id):
            await self.client.session_update(session_id, update_agent_message(text_block(f"replayed {text}")))
        return acp.LoadSessionResponse()

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> acp.PromptResponse:
        self.cancelled.clear()
        text = prompt[-1].text
        write(session_id, [*read(session_id), text])
        act = getattr(self, f"do_{text.split()[0]}", self.do_echo)
        stop = await act(session_id, text)
        return acp.PromptResponse(stop_reason=stop or "end_turn")

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, update_agent_message(text_block(text)))

    async def do_echo(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, update_agent_thought(text_block("Hm.")))
        plan = [PlanEntry(content="answer", priority="high", status="completed")]
        await self.client.session_update(session_id, acp.update_plan(plan))
        for piece in text.partition(" "):
            await self.say(session_id, piece)

    async def do_prompts(self, session_id: str, text: str) -> None:
        await self.say(session_id, json.dumps(read(session_id)))

    async def do_write(self, session_id: str, text: str) -> None:
        """Ask for a permission to write a file, and let the client write it."""
        path = str(Path.cwd() / "a.py")
        diff = acp.tool_diff_content(path=path, new_text="two\n", old_text="one\n")
        call = acp.start_tool_call("c1", "Write a.py", kind="edit", status="pending", content=[diff])
        await self.client.session_update(session_id, call)
        wanted = ToolCallUpdate(tool_call_id="c1", title="Write a.py", content=[diff])
        answer = await self.client.request_permission(session_id=session_id, tool_call=wanted, options=OPTIONS)
        chosen = getattr(answer.outcome, "option_id", "cancelled")
        if chosen in ("allow", "always"):
            await self.client.write_text_file(content="two\n", path=path, session_id=session_id)
        status = "completed" if chosen in ("allow", "always") else "failed"
        await self.client.session_update(session_id, acp.update_tool_call("c1", status=status))
        await self.say(session_id, f"chosen {chosen}")

    async def do_slow(self, session_id: str, text: str) -> str:
        await self.say(session_id, "working")
        await self.cancelled.wait()
        write("cancelled", [text])
        return "cancelled"

    async def do_crash(self, session_id: str, text: str) -> None:
        await self.say(session_id, "working")
        os._exit(7)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(CodingAgent()))

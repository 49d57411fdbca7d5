"""A2A client of google-adk: a remote agent that runs like a local one."""

import asyncio
from typing import Any

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from lines import answer_calls


async def ask(card: str, text: str, use_legacy: bool) -> list[Any]:
    """Return the parts that the agent has added to the session."""
    agent = RemoteA2aAgent(name="remote", agent_card=card, use_legacy=use_legacy)
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        pass
    stored = await runner.session_service.get_session(app_name="app", user_id="u", session_id=session.id)
    assert stored
    events = [event for event in stored.events if event.author != "user" and event.content]
    return [
        part.model_dump(mode="json", exclude_none=True)
        for event in events
        for part in (event.content.parts if event.content and event.content.parts else [])
    ]


asyncio.run(answer_calls({"ask": ask}, lambda error: None))

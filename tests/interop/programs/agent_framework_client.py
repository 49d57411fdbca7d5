"""The A2A client of Microsoft's Agent Framework: a remote agent, run as any agent of its own."""

import asyncio
from typing import Any

from a2a.client import A2ACardResolver
from agent_framework_a2a import A2AAgent
from httpx import AsyncClient
from lines import answer_calls


async def ask(base_url: str, texts: list[str], stream: bool) -> list[Any]:
    """What a user is shown after each text of one conversation, and whether it asks."""
    shown: list[Any] = []
    async with AsyncClient() as http:
        card = await A2ACardResolver(http, base_url).get_agent_card()
    async with A2AAgent(agent_card=card, url=base_url) as agent:
        session = agent.create_session()
        for text in texts:
            if stream:
                streamed = agent.run(text, session=session, stream=True)
                updates = [update.text async for update in streamed]
                answer = await streamed.get_final_response()
            else:
                updates, answer = [], await agent.run(text, session=session)
            asks = [content.text for content in answer.user_input_requests]
            shown.append({"text": answer.text, "updates": updates, "asks": asks})
    return shown


asyncio.run(answer_calls({"ask": ask}, lambda error: None))

"""A2A client of Microsoft's Agent Framework: a remote agent that runs like a local one."""

import asyncio
from typing import Any

from a2a.client import A2ACardResolver
from agent_framework_a2a import A2AAgent
from httpx import AsyncClient
from lines import answer_calls


async def ask(base_url: str, texts: list[str], stream: bool) -> list[Any]:
    """Return the answer to each text of one conversation: text, updates and questions."""
    answers: list[Any] = []
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
            answers.append({"text": answer.text, "updates": updates, "asks": asks})
    return answers


asyncio.run(answer_calls({"ask": ask}, lambda error: None))

"""A2A client of Strands: a remote agent that runs like a local one."""

import asyncio
from typing import Any

from lines import answer_calls
from strands.agent.a2a_agent import A2AAgent


async def ask(base_url: str, text: str) -> Any:
    """Return the texts of the answer, and the stop reason."""
    result = await A2AAgent(base_url).invoke_async(text)
    return {"texts": [part["text"] for part in result.message["content"]], "stop": result.stop_reason}


asyncio.run(answer_calls({"ask": ask}, lambda error: None))

"""Graph of the campaign: two nodes, in each of which a model emits half of the words."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

from tests.crash.agents import PACE, words
from tests.words import Words


def _say_half(half: int) -> Callable[[str], AsyncIterator[str]]:
    """Return the model's function that yields its half of the words, one by one."""

    async def say(text: str) -> AsyncIterator[str]:
        all_words = words(text)
        middle = len(all_words) // 2
        for word in all_words[:middle] if half == 0 else all_words[middle:]:
            yield word
            await asyncio.sleep(PACE)

    return say


def _halves() -> Any:
    builder: Any = StateGraph(MessagesState)
    for half in (0, 1):
        model = Words(say=_say_half(half))

        async def node(state: MessagesState, model: Words = model) -> Any:
            return {"messages": [await model.ainvoke(state["messages"][:1])]}

        builder.add_node(f"half-{half}", node)
    builder.add_edge(START, "half-0")
    builder.add_edge("half-0", "half-1")
    return builder.compile()


graph = _halves()

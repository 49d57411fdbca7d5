"""Graph of the campaign: two nodes, in each of which a model emits half of the words."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

from tests.crash.agents import PACE, words


class _Model(BaseChatModel):
    """A model that emits its half of the words, one by one."""

    half: int

    @property
    def _llm_type(self) -> str:
        return "halves"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        all_words = words(str(messages[0].content))
        middle = len(all_words) // 2
        for word in all_words[:middle] if self.half == 0 else all_words[middle:]:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager is not None:
                await run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
            await asyncio.sleep(PACE)


def _halves() -> Any:
    builder: Any = StateGraph(MessagesState)
    for half in (0, 1):
        model = _Model(half=half)

        async def node(state: MessagesState, model: _Model = model) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        builder.add_node(f"half-{half}", node)
    builder.add_edge(START, "half-0")
    builder.add_edge("half-0", "half-1")
    return builder.compile()


graph = _halves()

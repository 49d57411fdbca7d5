"""Graphs of one node that repeats the last message: `echo` as a whole, `stream` word by word, as a chat model does."""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph


class Model(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[-1].content))])

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for index, word in enumerate(str(messages[-1].content).split()):
            yield ChatGenerationChunk(message=AIMessageChunk(f" {word}" if index else word))


_model = Model()


async def say(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(state["messages"][-1].content)]}


async def say_words(state: MessagesState) -> dict[str, Any]:
    # The output of a model is streamed to callers that request messages.
    return {"messages": [await _model.ainvoke(state["messages"])]}


def _graph(node: Any) -> StateGraph[Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("say", node)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph


echo = _graph(say).compile(name="echo")
stream = _graph(say_words).compile(name="stream")

"""Graphs of LangGraph that GraphServe serves as models of OpenAI's protocols, one for each behavior."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from graphserve import GraphRegistry, create_openai_router
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from serving import Gate, listen, serve

gate = Gate()


async def echo(state: MessagesState) -> dict[str, Any]:
    """Answer with a model, because GraphServe streams only the output of models."""
    content: Any = state["messages"][-1].content
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    model = GenericFakeChatModel(messages=iter([AIMessage(f"You said: {text}")]))
    return {"messages": [await model.ainvoke(state["messages"])]}


async def fail(state: MessagesState) -> dict[str, Any]:
    raise RuntimeError("as it was told to")


def graph(node: Callable[[MessagesState], Awaitable[dict[str, Any]]]) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", node)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    return builder.compile(checkpointer=InMemorySaver())


async def main() -> None:
    logging.disable(logging.CRITICAL)
    registry = GraphRegistry()
    registry.register("echo", graph(echo))
    registry.register("fail", graph(fail))
    app = FastAPI()
    app.include_router(create_openai_router(registry), prefix="/v1")
    await serve(app, listen(), gate)


if __name__ == "__main__":
    asyncio.run(main())

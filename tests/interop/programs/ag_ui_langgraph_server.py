"""Graphs of LangGraph behind ag-ui-langgraph: with and without a model, with a question in each of its forms, with a
tool of the front end, and with a state."""

import asyncio
import logging
from typing import Any

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from serving import Gate, listen, serve


class State(MessagesState):
    theme: str
    tools: list[Any]


async def echo(state: State) -> dict[str, Any]:
    model = GenericFakeChatModel(messages=iter([AIMessage(f"You said: {state['messages'][-1].text}")]))
    return {"messages": [await model.ainvoke(state["messages"])]}


async def plain(state: State) -> dict[str, Any]:
    """Answer without a model, so that no event streams the text."""
    return {"messages": [AIMessage(f"{len(state['messages'])} messages, theme {state.get('theme')}")], "theme": "light"}


async def ask(state: State) -> dict[str, Any]:
    name = interrupt("What is your name?")
    return {"messages": [AIMessage(f"Hello, {name}.")]}


async def call(state: State) -> dict[str, Any]:
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"It gave {last.content}")]}
    tool_call = {"id": f"call-{last.id}", "name": "weather", "args": {"city": "Rome"}}
    return {"messages": [AIMessage("", tool_calls=[tool_call])]}


async def fail(state: State) -> dict[str, Any]:
    raise RuntimeError("on purpose")


def graph(node: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("agent", node)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    return builder.compile(checkpointer=InMemorySaver())


async def main() -> None:
    logging.disable(logging.CRITICAL)
    app = FastAPI()
    for node in (echo, plain, ask, call, fail):
        agent = LangGraphAgent(name=node.__name__, graph=graph(node))
        add_langgraph_fastapi_endpoint(app, agent, f"/{node.__name__}")
    outcome = LangGraphAgent(name="outcome", graph=graph(ask), emit_interrupt_outcome=True)
    add_langgraph_fastapi_endpoint(app, outcome, "/outcome")
    bare = LangGraphAgent(name="bare", graph=graph(ask), emit_raw_events=False)
    add_langgraph_fastapi_endpoint(app, bare, "/bare")
    await serve(app, listen(), Gate())


if __name__ == "__main__":
    asyncio.run(main())

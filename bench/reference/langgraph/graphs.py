"""A graph of one node, which says the last message."""

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


async def say(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(state["messages"][-1].content)]}


_graph = StateGraph(MessagesState)
_graph.add_node("say", say)
_graph.add_edge(START, "say")
_graph.add_edge("say", END)
echo = _graph.compile(name="echo")

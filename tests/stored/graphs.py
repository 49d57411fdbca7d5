"""Graph behind the stored conversations, for releases that run graphs."""

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt

graph_class: Any = StateGraph


class State(MessagesState):
    count: int


async def think(state: State) -> Any:
    return {"messages": [AIMessage(f"Thought {state.get('count', 0)}.")], "count": state.get("count", 0) + 1}


async def ask(_: State) -> Any:
    return {"messages": [AIMessage(f"You said {interrupt({'question': 'Go on?'})!r}.")]}


graph: Any = graph_class(State)
graph.add_node("think", think)
graph.add_node("ask", ask)
graph.add_edge(START, "think")
graph.add_edge("think", "ask")

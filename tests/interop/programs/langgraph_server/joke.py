"""A graph that does not converse: it takes a topic, and gives a joke."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict  # with Python's own, before 3.12, the server tells no schemas


class Input(TypedDict):
    topic: str


class Output(TypedDict):
    joke: str


class Both(Input, Output):
    pass


async def tell(state: Any) -> Any:
    return {"joke": f"Why {state['topic']}?"}


_joke = StateGraph(Both, input_schema=Input, output_schema=Output)
_joke.add_node("tell", tell)
_joke.add_edge(START, "tell")
_joke.add_edge("tell", END)
joke = _joke.compile(name="joke")

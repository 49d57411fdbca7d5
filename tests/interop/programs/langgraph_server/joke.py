"""A graph without messages: its input is a topic, and its output a joke."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict  # with typing.TypedDict before Python 3.12, the server publishes no schemas


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

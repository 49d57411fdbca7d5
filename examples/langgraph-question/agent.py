"""Books a table, and asks the caller for the time."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class Request(TypedDict):
    restaurant: str


class Confirmation(TypedDict):
    text: str


class Booking(Request, Confirmation):
    time: str


def ask_for_time(state: Booking) -> dict[str, str]:
    return {"time": interrupt(f"At what time do you want to eat at {state['restaurant']}?")}


def confirm(state: Booking) -> dict[str, str]:
    return {"text": f"Booked: {state['restaurant']} at {state['time']}."}


builder = StateGraph(Booking, input_schema=Request, output_schema=Confirmation)
builder.add_node("ask_for_time", ask_for_time)
builder.add_node("confirm", confirm)
builder.add_edge(START, "ask_for_time")
builder.add_edge("ask_for_time", "confirm")
builder.add_edge("confirm", END)
graph = builder.compile()

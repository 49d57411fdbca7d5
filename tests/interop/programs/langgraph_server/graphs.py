"""Graphs with the behavior of the demo agents, and with features that only graphs have."""

import asyncio
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class State(MessagesState):
    note: str


def text_of(state: Any) -> str:
    return next((str(each.content) for each in reversed(state["messages"]) if each.type == "human"), "")


def only(name: str, node: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    graph.add_edge(name, END)
    return graph.compile(name=name)


async def say(state: State) -> Any:
    return {"messages": [AIMessage(text_of(state))]}


async def say_in_pieces(state: State) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage(text_of(state))]))
    get_stream_writer()({"note": "begins"})
    return {"messages": [await model.ainvoke(state["messages"])]}


async def ask_for_a_name(state: State) -> Any:
    return {"messages": [AIMessage(f"Hello, {interrupt('What is your name?')}.")]}


async def ask_twice(state: State) -> Any:
    first, last = interrupt("First name?"), interrupt("Last name?")
    return {"messages": [AIMessage(f"Hello, {first} {last}.")]}


def approval(action: str) -> Any:
    async def ask_for_it(state: State) -> Any:
        answer = interrupt({"question": f"May I {action}?", "action": action})
        return {"messages": [AIMessage(f"{action}: {answer['approved']}")]}

    return ask_for_it


async def raise_it(state: State) -> Any:
    raise ValueError(text_of(state))


async def wait_permanently(state: State) -> Any:
    get_stream_writer()("begun")
    await asyncio.sleep(3600)


async def look_it_up(state: State) -> Any:
    call = {"id": "c1", "name": "weather", "args": {"city": "Rome"}}
    call_message = AIMessage([{"type": "reasoning", "reasoning": "I should look."}], tool_calls=[call])
    result_message = ToolMessage("21 degrees, sunny", tool_call_id="c1", name="weather")
    return {"messages": [call_message, result_message, AIMessage("It gave 21 degrees")]}


async def repeat_it_all(state: State) -> Any:
    return {"messages": [AIMessage(" | ".join(f"{each.type}: {each.content}" for each in state["messages"]))]}


async def make_a_note(state: State) -> Any:
    return {"note": "done"}


echo = only("echo", say)
stream = only("stream", say_in_pieces)
ask = only("ask", ask_for_a_name)
twice = only("twice", ask_twice)
fail = only("fail", raise_it)
slow = only("slow", wait_permanently)
history = only("history", repeat_it_all)
tools = only("tools", look_it_up)

_approve = StateGraph(State)
for _action in ("write", "send"):
    _approve.add_node(_action, approval(_action))
    _approve.add_edge(START, _action)
    _approve.add_edge(_action, END)
approve = _approve.compile(name="approve")

_nested = StateGraph(State)
_nested.add_node("outer", only("inner", say_in_pieces))
_nested.add_node("last", make_a_note)
_nested.add_edge(START, "outer")
_nested.add_edge("outer", "last")
_nested.add_edge("last", END)
nested = _nested.compile(name="nested")

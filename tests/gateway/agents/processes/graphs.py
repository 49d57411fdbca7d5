"""Graph for the tests of processes: it streams, stores, has a subgraph, asks, and ends badly if its input says so."""

import operator
import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import BaseMessage
from langgraph.config import get_store, get_stream_writer
from langgraph.graph import MessagesState  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt

from tests.gateway.graphs import Model, builder, words, writes


class Talk(MessagesState):
    items: Annotated[list[str], operator.add]


def _text(state: Talk) -> str:
    last: BaseMessage = state["messages"][-1]
    return str(last.content)


def talk() -> Any:
    """Return a graph whose nodes speak, store an item, run a subgraph and act as the caller's text says."""
    model = Model(answers=[words("Hello", " big", " world")])

    async def speak(state: Talk) -> Any:
        get_stream_writer()({"process": "busy"})
        await get_store().aput(("notes",), "last", {"text": _text(state)[:4]})
        return {"messages": [await model.ainvoke(state["messages"])], "items": [_text(state)[:4]]}

    def recall(state: Talk) -> Any:
        found = get_store().get(("notes",), "last")
        return {"items": ["nothing" if found is None else found.value["text"]]}

    async def act(state: Talk) -> Any:
        match state["items"][-1]:
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise ValueError("a failure of the graph")
            case "bloc":
                threading.Event().wait()
            case "ask ":
                return {"items": [interrupt("Who?")]}
            case _:
                return {"items": [str(os.getpid())]}

    inner = builder(Talk, {"recall": recall}).compile()
    return builder(Talk, {"speak": speak, "inner": inner, "act": act})


def patient() -> Any:
    """Return a graph whose second node waits until another process has opened the pipe that the input names."""

    def wait(state: Talk) -> Any:
        return {"items": [Path(str(state["messages"][0].content)).read_text()]}

    return builder(Talk, {"first": writes({"items": ["first"]}), "wait": wait})

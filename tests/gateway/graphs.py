"""Graphs as authors write them. Each shows one thing that a graph can do."""

import asyncio
import dataclasses
import datetime
import itertools
import operator
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel


class Model(BaseChatModel):
    """Chat model that repeats a fixed sequence of answers. Each answer is a list of chunks."""

    answers: list[list[AIMessageChunk]]
    upcoming: Iterator[list[AIMessageChunk]] | None = None

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _pieces(self) -> Iterator[ChatGenerationChunk]:
        if self.upcoming is None:
            self.upcoming = itertools.cycle(self.answers)
        for piece in next(self.upcoming):
            yield ChatGenerationChunk(message=piece.model_copy(deep=True))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        pieces = [piece.message for piece in self._pieces()]
        whole = pieces[0]
        for piece in pieces[1:]:
            whole = whole + piece  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
        return ChatResult(generations=[ChatGeneration(message=AIMessage.model_validate(whole.model_dump()))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in self._pieces():
            if run_manager is not None:
                run_manager.on_llm_new_token(str(piece.message.content), chunk=piece)
            yield piece

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self._pieces():
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(piece.message.content), chunk=piece)
            yield piece


def words(*pieces: str) -> list[AIMessageChunk]:
    used = {"input_tokens": 3, "output_tokens": len(pieces), "total_tokens": 3 + len(pieces)}
    chunks = [AIMessageChunk(content=piece) for piece in pieces]
    return [*chunks, AIMessageChunk(content="", usage_metadata=used)]  # pyright: ignore[reportArgumentType]


new: Any = StateGraph
command: Any = Command
written: Any = entrypoint
"""Untyped aliases: the parameters of LangGraph's own functions have no complete types."""


class State(MessagesState):
    count: int


def builder(state: type[Any], nodes: dict[str, Any]) -> Any:
    """Return a graph that runs the nodes one after the other."""
    graph = new(state)
    for each, node in nodes.items():
        graph.add_node(each, node)
    for before, after in itertools.pairwise((START, *nodes)):
        graph.add_edge(before, after)
    return graph


def writes(update: Any) -> Any:
    """Return a node that only returns this update."""

    def node(_: Any) -> Any:
        return update

    return node


def again(_: Any) -> str:
    return "again"


# A conversation


def chat() -> Any:
    model = Model(answers=[words("Hello", " big", " world")])

    async def answer(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])], "count": state.get("count", 0) + 1}

    return builder(State, {"answer": answer})


def tools() -> Any:
    """Return a graph whose model calls a tool and then reports the result."""
    pieces: list[Any] = [
        {"name": "weather", "args": "", "id": "call_1", "index": 0, "type": "tool_call_chunk"},
        {"name": None, "args": '{"city": ', "id": None, "index": 0, "type": "tool_call_chunk"},
        {"name": None, "args": '"Rome"}', "id": None, "index": 0, "type": "tool_call_chunk"},
    ]
    calls = [AIMessageChunk(content="Let me see.")]
    calls += [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in pieces]
    model = Model(answers=[calls, words("It is", " sunny.")])

    def think(state: State) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def work(state: State) -> Any:
        last: Any = state["messages"][-1]
        return {"messages": [ToolMessage("sunny", tool_call_id=last.tool_calls[0]["id"], name="weather", id="t1")]}

    return builder(State, {"think": think, "work": work, "tell": think})


def blocks() -> Any:
    """Return a graph whose model streams reasoning and text as content blocks."""
    pieces = [
        AIMessageChunk(content=[{"type": "reasoning", "reasoning": "Hm", "index": 0}]),
        AIMessageChunk(content=[{"type": "reasoning", "reasoning": "m.", "index": 0}]),
        AIMessageChunk(content=[{"type": "text", "text": "Yes", "index": 1}]),
        AIMessageChunk(content=[{"type": "text", "text": "!", "index": 1}]),
    ]
    model = Model(answers=[pieces])

    async def answer(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return builder(State, {"answer": answer})


def cites() -> Any:
    """Return a graph whose model streams a text with a citation, and then a refusal."""
    cited = {"type": "citation", "url": "https://example.com/rain", "title": "Rain", "start_index": 0, "end_index": 7}
    pieces = [
        AIMessageChunk(content=[{"type": "text", "text": "It ", "index": 0}]),
        AIMessageChunk(content=[{"type": "text", "text": "rains", "index": 0}]),
        AIMessageChunk(content=[{"type": "text", "text": "", "annotations": [cited], "index": 0}]),
        *[AIMessageChunk(content=[{"type": "refusal", "refusal": each, "index": 1}]) for each in ("No ", "more", ".")],
    ]
    model = Model(answers=[pieces])

    async def answer(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return builder(State, {"answer": answer})


# Questions


def asks(question: Any, **options: Any) -> Any:
    def node(state: Any) -> Any:
        return {"messages": [AIMessage(f"You said {interrupt(question, **options)!r}.")]}

    return node


def ask() -> Any:
    schema = {"type": "string", "minLength": 1}
    question = {"question": "What is your name?"}
    return builder(State, {"before": writes({"count": 1}), "ask": asks(question, response_schema=schema)})


def twice() -> Any:
    """Return a graph whose node asks two questions, one after the other."""

    def node(_: State) -> Any:
        first = interrupt("First?")
        return {"messages": [AIMessage(f"{first} and {interrupt('Second?')}")]}

    return builder(State, {"node": node})


def several() -> Any:
    """Return a graph with three parallel nodes: one asks, one asks in a subgraph, and one does not ask."""
    graph = new(State)
    graph.add_node("left", asks("Left?"))
    graph.add_node("right", builder(State, {"inner": asks({"message": "Right?", "options": [1, 2]})}).compile())
    graph.add_node("quiet", writes({"count": 7}))
    for name in ("left", "right", "quiet"):
        graph.add_edge(START, name)
    return graph


def turns() -> Any:
    """Return a graph with two parallel nodes that ask. The node that is first in the graph asks last."""
    second_asks = asyncio.Event()

    async def first(state: State) -> Any:
        await second_asks.wait()
        return asks("First?")(state)

    async def second(state: State) -> Any:
        second_asks.set()
        return asks("Second?")(state)

    graph = new(State)
    for node in (first, second):
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    return graph


# States of all kinds


class Colour(BaseModel):
    name: str
    date: datetime.date


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Anything(TypedDict, total=False):
    topic: str
    values: dict[str, Any]


def structured() -> Any:
    """Return a graph that writes values into its state that JSON cannot represent."""

    def node(_: Anything) -> Any:
        return {
            "values": {
                "colour": Colour(name="red", date=datetime.date(2026, 1, 2)),
                "point": Point(1, 0.5),
                "id": uuid.UUID(int=7),
                "set": {3, 1, 2},
                "bytes": b"\x00\x01",
                "nothing": None,
                "infinite": float("inf"),
                "when": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            }
        }

    return builder(Anything, {"node": node})


class Topic(TypedDict):
    topic: str


class Joke(TypedDict):
    joke: str


def joke() -> Any:
    """Return a graph whose input is a topic and whose output is a joke. Its state has no messages."""

    class Both(Topic, Joke):
        pass

    graph = new(Both, input_schema=Topic, output_schema=Joke)

    def tell(state: Topic) -> Any:
        return {"joke": f"Two {state['topic']} walk into a bar."}

    graph.add_node("tell", tell)
    graph.add_edge(START, "tell")
    return graph


class Listed(TypedDict):
    items: Annotated[list[str], operator.add]


def fan() -> Any:
    """Return a graph that reports progress, and whose first node starts another node several times in one step."""

    def spread(state: Listed) -> Any:
        get_stream_writer()({"spreading": len(state["items"])})
        return command(goto=[Send("each", item) for item in state["items"]])

    def each(item: str) -> Any:
        return {"items": [item.upper()]}

    graph = new(Listed)
    graph.add_node("spread", spread)
    graph.add_node("each", each)
    graph.add_edge(START, "spread")
    return graph


def within() -> Any:
    """Return a graph with a subgraph whose node is a plain function that invokes a third graph."""
    deepest = builder(Listed, {"deepest": writes({"items": ["c"]})}).compile()

    def middle(state: Listed) -> Any:
        return {"items": deepest.invoke({"items": []})["items"]}

    inner = builder(Listed, {"middle": middle}).compile()
    return builder(Listed, {"first": writes({"items": ["a"]}), "inner": inner})


def report() -> Any:
    """Return a graph that writes named progress events, streams its model's answer, and adds a tool call by hand."""
    model = Model(answers=[words("Hello", " big", " world")])

    async def tell(state: State) -> Any:
        get_stream_writer()({"name": "progress", "step": "tell"})
        return {"messages": [await model.ainvoke(state["messages"])]}

    def look(_: State) -> Any:
        get_stream_writer()({"name": "progress", "step": "look"})
        get_stream_writer()("not named")
        call = {"id": "call_1", "name": "search", "args": {"q": "v3"}}
        return {"messages": [AIMessage("", tool_calls=[call], id="a1"), ToolMessage("found", tool_call_id="call_1")]}

    return builder(State, {"tell": tell, "look": look, "close": writes({"messages": [AIMessage("Bye.", id="a2")]})})


def hire() -> Any:
    """Return a graph that calls a named agent as a tool, with a node after it."""
    model = Model(answers=[words("Found", " it.")])

    async def research(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    agent = builder(State, {"model": research}).compile().with_config(metadata={"lc_agent_name": "researcher"})

    def choose(_: State) -> Any:
        return command(goto=Send("work", {"tool_call": {"id": "call_1", "name": "task", "args": {}}}))

    async def work(_: Any) -> Any:
        return {"messages": (await agent.ainvoke({"messages": [HumanMessage("Look.")]}))["messages"][-1:]}

    graph = new(State)
    for name, node in (("choose", choose), ("work", work), ("after", writes({"count": 1}))):
        graph.add_node(name, node)
    graph.add_edge(START, "choose")
    graph.add_edge("work", "after")
    return graph


# The functional API


@task
async def shout(text: str) -> str:
    return text.upper()


def flow() -> Any:
    """Return an entrypoint function with a task and a question. It has an input and an output, but no nodes."""

    async def shouted(text: str) -> str:
        return f"{await shout(text)}, {interrupt('Sure?')}"

    return written()(shouted)


# Failures


def fail() -> Any:
    def node(_: Listed) -> Any:
        raise ValueError("no \ud800 more")

    return builder(Listed, {"before": writes({"items": ["b"]}), "node": node})


def endless() -> Any:
    graph = new(Listed)
    graph.add_node("again", writes({"items": ["x"]}))
    graph.add_edge(START, "again")
    graph.add_conditional_edges("again", again, {"again": "again", "end": END})
    return graph


def steps() -> Any:
    """Return a graph of three steps."""
    return builder(Listed, {name: writes({"items": [name]}) for name in ("one", "two", "three")})


class Counted(TypedDict, total=False):
    n: Any


def truth() -> Any:
    """Return a graph that replaces a value by others that are equal in Python but differ in JSON."""
    return builder(Counted, {"one": writes({"n": 1}), "yes": writes({"n": True}), "real": writes({"n": 1.0})})


GRAPHS: dict[str, Any] = {
    "ask": ask,
    "blocks": blocks,
    "chat": chat,
    "cites": cites,
    "endless": endless,
    "fail": fail,
    "fan": fan,
    "flow": flow,
    "hire": hire,
    "joke": joke,
    "report": report,
    "several": several,
    "steps": steps,
    "structured": structured,
    "tools": tools,
    "truth": truth,
    "turns": turns,
    "twice": twice,
    "within": within,
}

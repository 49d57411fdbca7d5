"""The cast as LangGraph graphs, written as their author would write them."""

import operator
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Final, TypedDict, cast

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt

from tests.pairs.cast import APPROVAL, STEP, Cast
from tests.words import Words

Node = Callable[..., Any]

REMEMBER: Final = "remember"
"""Name of the graph `remember`, which second gateways have in addition to the cast."""

new: Any = StateGraph
"""StateGraph without its types, which do not declare its parameters."""


def text_of(messages: Sequence[BaseMessage]) -> str:
    return str(messages[-1].text)


def blocks_of(messages: Sequence[BaseMessage], kind: str) -> list[dict[str, Any]]:
    content: Any = messages[-1].content
    blocks = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return [block for block in blocks if block["type"] == kind]


def one(state: type[Any], node: Node) -> Any:
    builder = new(state)
    builder.add_node(STEP, node)
    builder.add_edge(START, STEP)
    return builder.compile()


def says(content: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(content)]}


def model(say: Callable[[str], AsyncIterator[str]]) -> Any:
    words = Words(say=say)

    async def node(state: MessagesState) -> Any:
        return {"messages": [await words.ainvoke(state["messages"])]}

    return one(MessagesState, node)


class Noted(MessagesState):
    note: dict[str, Any]


def echo(state: Noted) -> Any:
    return says(text_of(state["messages"]))


def ask(state: MessagesState) -> Any:
    return says(f"Hello, {interrupt('What is your name?')}.")


def login(state: MessagesState) -> Any:
    return says(f"In as {interrupt('Who are you?')}.")


class Approval(MessagesState):
    name: str
    approved: bool


def approve() -> Any:
    """Return a graph in which two nodes ask at the same time."""

    def begin(state: Approval) -> Any:
        return says("Two questions. ")

    def name(state: Approval) -> Any:
        return {"name": interrupt("What is your name?")}

    def approval(state: Approval) -> Any:
        return {"approved": interrupt("May I write?", response_schema=APPROVAL)["approved"]}

    def end(state: Approval) -> Any:
        return says(f"{state['name']} said {'yes' if state['approved'] else 'no'}.")

    builder = new(Approval)
    first, *asking, last = (f"{STEP} {number}" for number in range(4))
    for each, node in zip((first, *asking, last), (begin, name, approval, end), strict=True):
        builder.add_node(each, node)
    builder.add_edge(START, first)
    for each in asking:
        builder.add_edge(first, each)
    builder.add_edge(asking, last)
    return builder.compile()


def files(state: MessagesState) -> Any:
    report = b64encode(text_of(state["messages"]).encode()).decode()
    about = {"mime_type": "text/plain", "extras": {"filename": "report.txt"}}
    return says([*blocks_of(state["messages"], "file"), {"type": "file", "base64": report, **about}])


class DataState(MessagesState):
    list: list[Any]
    nested: dict[str, Any]


def data(state: DataState) -> Any:
    """Return the data of the message or, if it has none, of the state."""
    blocks = [block["json"] for block in blocks_of(state["messages"], "json")] if state.get("messages") else []
    values = blocks or [{name: state[name] for name in ("list", "nested")}]
    return says([{"type": "json", "json": {"given": value}} for value in values])


class Text(TypedDict):
    text: str


class Count(Text):
    words: int


def count() -> Any:
    """Return a graph without messages, whose output is the answer."""
    builder = new(Count, input_schema=Text, output_schema=Count)

    def node(state: Text) -> Any:
        return {"words": len(state["text"].split())}

    builder.add_node(STEP, node)
    builder.add_edge(START, STEP)
    return builder.compile()


def fail(say: Any) -> Any:
    words = Words(say=say)

    async def node(state: MessagesState) -> Any:
        await words.ainvoke(state["messages"])
        raise RuntimeError(text_of(state["messages"]))

    return one(MessagesState, node)


def history(state: MessagesState) -> Any:
    return says(f"{len(state['messages']) - 1} before: {text_of(state['messages'])}")


def recall(state: MessagesState) -> Any:
    return says(" ".join(str(message.text) for message in state["messages"]))


class Remembering(MessagesState):
    inputs: Annotated[list[str], operator.add]
    note: str


def remember(state: Remembering) -> Any:
    """Return the number of messages, and two members of the state that no message holds: earlier inputs and a note."""
    messages, earlier = state["messages"], ",".join(state.get("inputs", ()))
    return {**says(f"{len(messages)} messages, {earlier}, {state.get('note', '')}"), "inputs": [text_of(messages)]}


def progress(state: MessagesState) -> Any:
    return {"messages": [SystemMessage("Half way."), AIMessage("Done.")]}


def metadata(state: MessagesState) -> Any:
    get_stream_writer()({"progress": 0.5})
    call = {"type": "server_tool_call", "id": "call", "name": "word_count", "args": {"text": "two words"}}
    result = {"type": "server_tool_result", "tool_call_id": "call", "status": "success", "output": {"words": 2}}
    cited = {"type": "citation", "url": "https://example.com/source", "title": "A source", "start_index": 0}
    text = {"type": "text", "text": "As cited.", "annotations": [{**cited, "end_index": 8}]}
    return says([{"type": "reasoning", "reasoning": "Thinking about it."}, call, result, text])


def noted(state: MessagesState, config: RunnableConfig) -> Any:
    return says(str(config.get("metadata", {}).get("ticket", "nothing")))


def outside(state: MessagesState, config: RunnableConfig) -> Any:
    """Call a headless tool, which is a tool of the caller."""
    offered = [tool["function"]["name"] for tool in config.get("configurable", {}).get("tools", ())]
    call = {"id": "call", "name": "weather", "args": {"city": "Paris"}}
    result: Any = interrupt({"type": "tool", "tool_call": call})
    return says(f"{offered}: {result['call']}")


def varied() -> Any:
    """Return a graph with the cast's values, except an artifact in pieces, which graphs do not have."""

    def node(state: MessagesState) -> Any:
        about = {"mime_type": "text/html", "extras": {"filename": "page.html"}}
        page = {"type": "file", "url": "https://example.com/far-away.html", **about}
        refusal = {"type": "refusal", "refusal": "cannot-say-that"}
        usage: Any = {"input_tokens": 11037, "output_tokens": 2, "total_tokens": 11039}
        return {"messages": [AIMessage([{"type": "text", "text": "Content."}, page, refusal], usage_metadata=usage)]}

    builder = new(MessagesState)
    builder.add_node("step-by-step", node)
    builder.add_edge(START, "step-by-step")
    return builder.compile()


def graphs(players: Cast) -> dict[str, Any]:
    async def stream(text: str) -> AsyncIterator[str]:
        async for word in players.stream(text):
            yield word

    async def slow(text: str) -> AsyncIterator[str]:
        async for word in players.slow(text):
            yield word

    async def before(text: str) -> AsyncIterator[str]:
        yield "Before the fault."

    plain = {
        node.__name__: one(MessagesState, node)
        for node in (ask, login, files, history, recall, progress, metadata, noted, outside)
    }
    streams = {"stream": model(stream), "slow": model(slow), "fail": fail(before)}
    return {
        **plain,
        **streams,
        "echo": one(Noted, echo),
        "approve": approve(),
        "data": one(DataState, data),
        "count": count(),
        "varied": varied(),
    }

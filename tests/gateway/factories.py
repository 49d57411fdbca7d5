"""Graph factories as authors write them. Each takes different parameters, and its graph answers with their values."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import interrupt

if TYPE_CHECKING:
    from langgraph_sdk.runtime import ServerRuntime

LOG: list[str] = []
"""Actions of the factories, oldest first."""

new: Any = StateGraph


class Taste(TypedDict, total=False):
    flavour: str


def says(words: Any, **schemas: Any) -> Any:
    """Return a graph with one node that answers these words, or `words(state)` if they are callable."""

    def say(state: MessagesState) -> Any:
        content: Any = words(state) if callable(words) else words
        return {"messages": [AIMessage(content)]}

    graph = new(MessagesState, **schemas)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    return graph


def flavour_of(config: RunnableConfig) -> Any:
    return config.get("configurable", {}).get("flavour")


def nothing() -> Any:
    return says("nothing").compile()


def annotated() -> "CompiledStateGraph[Any, Any, Any, Any]":
    return says("annotated").compile()


def config(config: RunnableConfig) -> Any:
    return says(f"config {flavour_of(config)}")


def unannotated(config):  # pyright: ignore
    config["configurable"]["flavour"] = "changed"  # each call has its own copy
    return says("unannotated").compile()


async def asynchronous(*, config: RunnableConfig) -> Any:
    await asyncio.sleep(0)
    return says(f"asynchronous {flavour_of(config)}").compile()


async def runtime(runtime: "ServerRuntime[Taste]") -> Any:
    assert isinstance(runtime.store, BaseStore)
    executes = runtime.execution_runtime
    LOG.append(runtime.access_context)
    user = None if runtime.user is None else runtime.user.identity
    return says(f"runtime {runtime.access_context} {user} {None if executes is None else executes.context}").compile()


async def both(runtime: "ServerRuntime[Taste]", config: "RunnableConfig", spare: int = 1) -> Any:
    return says(f"both {flavour_of(config)} {runtime.access_context}").compile()


def plain(config: dict[str, Any], runtime: "ServerRuntime[Taste]") -> Any:
    return says(f"plain {config['configurable'].get('flavour')} {runtime.access_context}").compile()


@contextmanager
def blocking(config: RunnableConfig) -> Generator[Any]:
    LOG.append(f"in {threading.current_thread() is threading.main_thread()}")
    try:
        yield says(f"blocking {flavour_of(config)}").compile()
    except ValueError as error:
        LOG.append(f"failed {error}")
    finally:
        LOG.append("out")


@asynccontextmanager
async def entered() -> "AsyncGenerator[CompiledStateGraph[Any, Any, Any, Any]]":
    LOG.append("in")
    try:
        yield says("entered").compile()
    finally:
        LOG.append("out")


@contextmanager
def failing(config: RunnableConfig) -> Generator[Any]:
    def fail(_: MessagesState) -> Any:
        raise ValueError("no more")

    with blocking(config):
        yield says(fail).compile()


@asynccontextmanager
async def waiting(config: RunnableConfig) -> AsyncGenerator[Any]:
    async def wait(_: MessagesState) -> Any:
        LOG.append("waits")
        await asyncio.Event().wait()

    graph = new(MessagesState)
    graph.add_node("wait", wait)
    graph.add_edge(START, "wait")
    try:
        yield graph.compile()
    finally:
        LOG.append("out")


def asking(config: RunnableConfig) -> Any:
    def ask(_: MessagesState) -> str:
        return f"{flavour_of(config)}: {interrupt('Name?')}"

    return says(ask).compile()


def contextual(config: RunnableConfig) -> Any:
    def say(_: MessagesState, runtime: Runtime[Taste]) -> Any:
        return {"messages": [AIMessage(f"context {runtime.context}")]}

    graph = new(MessagesState, context_schema=Taste)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    return graph.compile()


def needy(config: RunnableConfig) -> Any:
    settings: Any = config
    return says(f"needy {settings['configurable']['flavour']}").compile()


def wrong(config: RunnableConfig) -> Any:
    return 5


def odd(config: RunnableConfig, other: str) -> Any:
    return says("odd").compile()


class Called:
    def __call__(self, config: RunnableConfig) -> Any:
        return says("called").compile()


called = Called()


async def remember(state: MessagesState) -> Any:
    store: Any = get_store()
    found = await store.aget(("notes",), "count")
    count = 1 if found is None else found.value["n"] + 1
    await store.aput(("notes",), "count", {"n": count})
    listed = [item.key for item in await store.asearch(("notes",), filter={"n": {"$gte": 1}})]
    return {"messages": [AIMessage(f"{count} {listed} {await store.alist_namespaces()}")]}


def remember_in_a_thread(state: MessagesState) -> Any:
    store: Any = get_store()
    store.put(("notes", "deep"), "k", {"v": 1}, ttl=5)
    store.put(("notes", "deep"), "gone", {"v": 2})
    store.delete(("notes", "deep"), "gone")
    names = store.list_namespaces(prefix=("notes",), suffix=("deep",))
    return {"messages": [AIMessage(f"{[item.key for item in store.search(('notes',))]} {names}")]}


def memory() -> Any:
    graph = new(MessagesState)
    graph.add_node("remember", remember)
    graph.add_node("thread", remember_in_a_thread)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "thread")
    return graph.compile()

"""Makers of graphs: for a graph that exists already, and for a function that creates a graph for each call.

The function is called with the same arguments as by LangGraph's servers.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, cast

from langgraph.graph import StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.store.base import BaseStore
from langgraph_sdk.runtime import _ExecutionRuntime, _ReadRuntime  # pyright: ignore[reportPrivateUsage]

from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.langgraph.signature import wanted_arguments
from babelgate.gateway.agents.python.threads import Worker, Workers

Access = Literal["threads.create_run", "threads.update", "assistants.read"]
"""Purpose for which a graph is created, as named by `langgraph_sdk.runtime`."""

_ANONYMOUS: Final = "default"
"""Owner of all calls if there are no API keys. A graph factory then sees no user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAccess:
    """Purpose for which a graph is created, and the values that its factory may ask for."""

    access: Access
    store: BaseStore
    config: JsonObject = field(default_factory=lambda: {"configurable": {}})
    """`RunnableConfig` of LangChain with which the graph will run."""
    context: JsonObject | None = None
    owner: str | None = None


class Maker(Protocol):
    def make_graph(self, occasion: GraphAccess) -> Any:
        """Return an asynchronous context manager that yields the graph. The graph can be used until the context
        ends."""
        ...


class NoGraphError(TypeError):
    """Value that is not a graph, or cannot be compiled. The message is for the agent's author."""


def compile_graph(target: Any) -> Any:
    """Return a compiled graph. Raises NoGraphError if the value is not a graph, or cannot be compiled."""
    if isinstance(target, StateGraph):
        try:
            target = cast("Any", target).compile()
        except ValueError as error:
            raise NoGraphError(f"the graph cannot be compiled: {error}") from error
    if not isinstance(target, Pregel):
        raise NoGraphError(f"a value of type {type(target).__name__} is not a graph")
    return cast("Any", target)


class Ready:
    """Maker that always yields the same graph, which exists already."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    @asynccontextmanager
    async def make_graph(self, occasion: GraphAccess) -> AsyncGenerator[Any]:
        yield self.graph


class Factory:
    """Maker that calls the author's function. The function returns a graph, or a context manager that yields one.

    Both can be asynchronous. A synchronous function runs in a thread, so that it does not block the gateway.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Create a maker. `name` is the agent's name. Raises TypeError, with a message for the agent's author, for
        unknown parameters."""
        self._function = function
        self._wanted = wanted_arguments(function)
        self._workers = Workers(f"graph {name}")

    @asynccontextmanager
    async def make_graph(self, occasion: GraphAccess) -> AsyncGenerator[Any]:
        worker = self._workers.worker()
        try:
            async with AsyncExitStack() as stack:
                yield compile_graph(await self._call(occasion, worker, stack))
        finally:
            worker.stop()

    async def _call(self, occasion: GraphAccess, worker: Worker, stack: AsyncExitStack) -> Any:
        arguments = self._arguments(occasion)
        if inspect.iscoroutinefunction(self._function) or _is_async_manager(self._function):
            result: Any = self._function(**arguments)
        else:
            result = await worker.do(lambda: self._function(**arguments))
        if inspect.isawaitable(result):
            result = await result
        if hasattr(result, "__aenter__"):
            return await stack.enter_async_context(result)
        if hasattr(result, "__enter__"):
            return await stack.enter_async_context(_InThread(result, worker))
        return result

    def _arguments(self, occasion: GraphAccess) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, kind in self._wanted.items():
            arguments[name] = _config(occasion) if kind == "config" else _runtime(occasion)
        return arguments


def _is_async_manager(function: Callable[..., Any]) -> bool:
    """Return True for a function decorated with `@asynccontextmanager`.

    The call itself does not block, and its body runs in the gateway's loop.
    """
    return inspect.isasyncgenfunction(inspect.unwrap(function))


class _InThread:
    """Asynchronous wrapper of a synchronous context manager, which is entered and exited in the thread of its call."""

    def __init__(self, manager: Any, worker: Worker) -> None:
        self._manager = manager
        self._worker = worker

    async def __aenter__(self) -> Any:
        return await self._worker.do(self._manager.__enter__)

    async def __aexit__(self, *raised: object) -> Any:
        return await self._worker.do(self._manager.__exit__, *raised)


def _config(occasion: GraphAccess) -> JsonObject:
    """Return a copy of the `RunnableConfig`, because a factory may change it."""
    return {**occasion.config, "configurable": dict(occasion.config["configurable"])}


def _runtime(occasion: GraphAccess) -> Any:
    """Return the `ServerRuntime` of LangGraph's SDK for a factory, with the caller's user, the store and the
    context."""
    user: Any = None if occasion.owner in (None, _ANONYMOUS) else _User(occasion.owner)
    if occasion.access == "threads.create_run":
        return _ExecutionRuntime(
            access_context=occasion.access, user=user, store=occasion.store, context=occasion.context
        )
    return cast("Any", _ReadRuntime)(access_context=occasion.access, user=user, store=occasion.store)


@dataclass(frozen=True, slots=True)
class _User:
    """Owner of the caller's API key, in the form of a `langgraph_sdk.auth.types.BaseUser`, which graph factories
    read."""

    identity: str
    is_authenticated: bool = True
    permissions: Sequence[str] = ()

    @property
    def display_name(self) -> str:
        return self.identity

    def __getitem__(self, key: str) -> Any:
        return self._members()[key]

    def __contains__(self, key: str) -> bool:
        return key in self._members()

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def _members(self) -> dict[str, Any]:
        return {"identity": self.identity, "display_name": self.display_name, "permissions": self.permissions}

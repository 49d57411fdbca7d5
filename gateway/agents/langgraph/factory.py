"""Graph factories: graphs that exist already, and graphs that a function makes for each call, which is called as
LangGraph's servers call it."""

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
"""What a graph is wanted for, in the words of `langgraph_sdk.runtime`."""

_NOBODY: Final = "default"
"""The owner where there are no keys: no user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAccess:
    """What a graph is made for, and with what."""

    access: Access
    store: BaseStore
    config: JsonObject = field(default_factory=lambda: {"configurable": {}})
    """`RunnableConfig`."""
    context: JsonObject | None = None
    owner: str | None = None


class Maker(Protocol):
    def make_graph(self, occasion: GraphAccess) -> Any:
        """An asynchronous context manager: the graph is used within it."""
        ...


class NoGraphError(TypeError):
    """In words for the author."""


def compile_graph(target: Any) -> Any:
    """Raises NoGraphError if it is no graph, or cannot be compiled."""
    if isinstance(target, StateGraph):
        try:
            target = cast("Any", target).compile()
        except ValueError as error:
            raise NoGraphError(f"the graph cannot be compiled: {error}") from error
    if not isinstance(target, Pregel):
        raise NoGraphError(f"a value of type {type(target).__name__} is no graph")
    return cast("Any", target)


class Ready:
    """A graph that is there."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    @asynccontextmanager
    async def make_graph(self, occasion: GraphAccess) -> AsyncGenerator[Any]:
        yield self.graph


class Factory:
    """A function that returns a graph, or a context manager around one; asynchronous or not. What is not asynchronous
    runs in a thread, so that it does not hold up the gateway."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Raises TypeError, in words for the author, if it asks for what it cannot be given."""
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
            made: Any = self._function(**arguments)
        else:
            made = await worker.do(lambda: self._function(**arguments))
        if inspect.isawaitable(made):
            made = await made
        if hasattr(made, "__aenter__"):
            return await stack.enter_async_context(made)
        if hasattr(made, "__enter__"):
            return await stack.enter_async_context(_InThread(made, worker))
        return made

    def _arguments(self, occasion: GraphAccess) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, what in self._wanted.items():
            given[name] = _config(occasion) if what == "config" else _runtime(occasion)
        return given


def _is_async_manager(function: Callable[..., Any]) -> bool:
    """A function under `@asynccontextmanager`: to call it is nothing, and it is entered in the gateway's loop."""
    return inspect.isasyncgenfunction(inspect.unwrap(function))


class _InThread:
    """A blocking context manager: entered and left in the thread of its call."""

    def __init__(self, manager: Any, worker: Worker) -> None:
        self._manager = manager
        self._worker = worker

    async def __aenter__(self) -> Any:
        return await self._worker.do(self._manager.__enter__)

    async def __aexit__(self, *raised: object) -> Any:
        return await self._worker.do(self._manager.__exit__, *raised)


def _config(occasion: GraphAccess) -> JsonObject:
    """Its own: what a factory changes in it changes nothing else."""
    return {**occasion.config, "configurable": dict(occasion.config["configurable"])}


def _runtime(occasion: GraphAccess) -> Any:
    """`ServerRuntime`."""
    user: Any = None if occasion.owner in (None, _NOBODY) else _User(occasion.owner)
    if occasion.access == "threads.create_run":
        return _ExecutionRuntime(
            access_context=occasion.access, user=user, store=occasion.store, context=occasion.context
        )
    return cast("Any", _ReadRuntime)(access_context=occasion.access, user=user, store=occasion.store)


@dataclass(frozen=True, slots=True)
class _User:
    """`langgraph_sdk.auth.types.BaseUser`: the owner of the caller's API key."""

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

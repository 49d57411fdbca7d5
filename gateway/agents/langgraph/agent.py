"""Graphs in process: what LangGraph compiles, as an Agent with a state of its own.

The gateway is the graph's checkpointer, so that a thread goes on after a restart, a question waits as long as it must,
and callers look at the state, change it, and start from an earlier one. Its memory is the graph's store.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.store.base import BaseStore
from pydantic import TypeAdapter, create_model

from babelgate.adapters.langchain.codec.caller_tools import encode_tool_message
from babelgate.adapters.langchain.codec.stream_modes import has_events_mode
from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import AgentInfo, DataPart, Event, FaultCode, FaultError, Invocation, Part, TextPart
from babelgate.canonical.event import (
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunEnded,
    RunStarted,
    StateSaved,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.store import Store
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.agents.langgraph.checkpointer import Saver
from babelgate.gateway.agents.langgraph.factory import (
    Access,
    Factory,
    GraphAccess,
    Maker,
    NoGraphError,
    Ready,
    compile_graph,
)
from babelgate.gateway.agents.langgraph.frames import MODES, GraphStreamReader, PendingWrites, ResumedRun, read_events
from babelgate.gateway.agents.langgraph.inputs import (
    InputSchema,
    command_of,
    configurable_of,
    configuration,
    options,
    removal,
    resume_command,
    to_base_message,
)
from babelgate.gateway.agents.langgraph.jsonable import ROOT, plain, plain_object, plain_text
from babelgate.gateway.agents.langgraph.store import Items
from babelgate.gateway.agents.python.signature import readable
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.checkpoints import Stored
from babelgate.gateway.storage.journal import Journal

log = logging.getLogger("babelgate.agent")

_MAX_WORDS: Final = 10_000
"""Characters of an exception's message that callers are told."""
_STRUCTURED: Final = "structured_response"
"""Where LangChain's own agents put their structured output."""
_LOOK: Final = 30.0
"""Seconds for which a factory may take to make the graph that is looked at when the gateway starts."""


def wrap_graph(target: Any, name: str, about: str = "") -> tuple[AgentInfo, "Graph"]:
    """The agent behind a graph, compiled or not, and what is known of it.

    Raises:
        TypeError: in words for the author, if it is something else of LangGraph's, or cannot be compiled.
    """
    graph = compile_graph(target)
    agent = Graph(Ready(graph), name, about, graph)
    return agent.info, agent


async def wrap_factory(function: Any, name: str, about: str = "") -> tuple[AgentInfo, "Graph"]:
    """The same, of a function that makes graphs. It is called once, with an empty config, so that callers can be told
    the graph's schemas; where it fails without a config, they are not told.

    Raises:
        TypeError: in words for the author, if it asks for what no factory is given, or makes no graph.
    """
    factory = Factory(function, name)
    looked = GraphAccess(access="assistants.read", store=Items(None, None))
    try:
        async with asyncio.timeout(_LOOK), factory.make_graph(looked) as graph:
            agent = Graph(factory, name, about, graph)
    except NoGraphError:
        raise
    except Exception:
        log.warning("%s: no graph is made with an empty config, so its schemas are not available", name, exc_info=True)
        agent = Graph(factory, name, about)
    return agent.info, agent


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a graph."""

    graph: Any
    shape: InputSchema
    context: frozenset[str]
    """The members of its context."""
    outputs: frozenset[str]


def _inspect_graph(graph: Any, schemas: Mapping[str, JsonObject]) -> _Known:
    outputs: str | Sequence[str] = graph.output_channels
    context: JsonObject = schemas.get("config", {}).get("properties", {})
    return _Known(
        graph,
        InputSchema(schemas.get("input", {})),
        frozenset(context),
        frozenset((ROOT,) if isinstance(outputs, str) else outputs),
    )


class Graph:
    def __init__(self, maker: Maker, name: str, about: str = "", graph: Any = None) -> None:
        """`graph` = the one that the maker always has, or one of those that it makes, for what is told of it."""
        self._maker = maker
        self._journal: Journal | None = None
        self._store: Store | None = None
        schemas: Mapping[str, JsonObject] = {} if graph is None else _schemas(graph)
        self._last = None if graph is None else _inspect_graph(graph, schemas)
        takes_all = self._last is None or self._last.shape.has_messages
        words = about or ("" if graph is None else _own_words(graph))
        self.info = AgentInfo(
            name=name,
            description=" ".join(words.split()),
            input_types=("text/plain", "*/*") if takes_all else ("text/plain", "application/json"),
            output_types=("text/plain",) if takes_all else ("application/json",),
            schemas=schemas,
            metadata={"framework": "langgraph"},
            remembers=True,
            stateful=True,
        )

    def attach(self, journal: Journal, store: Store) -> None:
        self._journal, self._store = journal, store

    @asynccontextmanager
    async def _make_graph(self, occasion: GraphAccess) -> AsyncGenerator[_Known]:
        async with self._maker.make_graph(occasion) as graph:
            if self._last is None or self._last.graph is not graph:
                self._last = _inspect_graph(graph, _schemas(graph, only=("input", "config")))
            yield self._last

    def _graph_access(self, access: Access, call: Invocation, config: JsonObject) -> GraphAccess:
        store = Items(self._store, call.owner)
        return GraphAccess(access=access, store=store, config=config, context=configurable_of(call), owner=call.owner)

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Raises agent_failed, with the type and the words of the graph's exception."""
        saver = self._saver(call)
        base = await self._base(call)
        config = configuration(call, None if call.cause == "answer" else call.input.checkpoint or None)
        occasion = self._graph_access("threads.create_run", call, config)
        failed: Exception | None = None
        try:
            async with (
                self._make_graph(occasion) as known,
                aclosing(self._run(known, call, base, saver, occasion)) as events,
            ):
                try:
                    async for event in events:
                        yield event
                except Exception as error:  # also where the author's context manager keeps it to itself
                    failed = error
                    raise
        except Exception as error:
            failed = failed or error
        if failed is not None:
            raise _translate_error(failed, self.info.name)

    async def _run(
        self, known: _Known, call: Invocation, base: Stored | None, saver: Saver, occasion: GraphAccess
    ) -> AsyncGenerator[Event]:
        resumed: ResumedRun | None = None
        log = await call.states()
        if base is not None and _has_begun(call, base):
            pending = PendingWrites.of(saver.pending_writes(base))
            resumed = ResumedRun.of(await call.past(), call.run_id, base.checkpoint_id, pending, log)
            yield RunStarted(attempt=call.attempt, void=resumed.void)
        telling = GraphStreamReader(
            saver.loaded,
            base=call.input.checkpoint if base is None else None,
            keeps_last=call.config.get("durability") == "exit",
            resumed=resumed,
            log=log,
            tools=frozenset(tool.name for tool in call.tools),
        )
        stream = _stream(
            _attach_stores(known.graph, saver, occasion.store),
            self._input(known.shape, call, base, await _find_asked(call)),
            occasion.config,
            has_events=has_events_mode(call.input),
            **options(call, known.context),
        )
        for event in telling.read_unsaid():
            yield event
        failed: Exception | None = None
        try:
            async with aclosing(stream):
                async for ns, mode, data in stream:
                    for event in telling.read(ns, mode, data):
                        yield event
        except Exception as error:
            failed = error
        for event in telling.reader.close():
            yield event
        if failed is not None:
            raise failed
        for event in (*telling.reader.questions(), *self._end(known, telling.reader)):
            yield event

    def _saver(self, call: Invocation) -> Saver:
        if self._journal is None:
            raise FaultError(FaultCode.INTERNAL, f"The graph {self.info.name} has no database: no hub was started")
        return Saver(self._journal, call)

    async def _base(self, call: Invocation) -> Stored | None:
        """The checkpoint that the call starts from. None = the graph knows nothing of the thread, or not of the
        revision that the caller starts from."""
        assert self._journal is not None
        return await self._journal.query(
            checkpoints.find,
            call.owner,
            call.thread_id,
            ns="",
            checkpoint_id=None if call.cause == "answer" else call.input.checkpoint,
        )

    def _input(self, shape: InputSchema, call: Invocation, base: Stored | None, asked: Mapping[str, JsonObject]) -> Any:
        if _has_begun(call, base):
            return None  # what the caller said is part of the state by now
        command = command_of(call)
        if call.cause == "answer":
            if results := _tool_messages(call, asked):
                return {"messages": results}
            return resume_command(call.answers, command, asked)
        given = shape.input(call, call.history if base is None else ())
        return resume_command((), command) if given is None else given

    def _end(self, known: _Known, reader: EventReader) -> Sequence[Event]:
        """What callers of other protocols are told at the end: the output of a graph that does not converse is its
        answer."""
        values = {name: value for name, value in reader.values.items() if name in known.outputs}
        output: Json = values.get(_STRUCTURED) if known.shape.has_messages else values or None
        usage = reader.messages.usage
        if reader.has_questions or output is None:
            return (*reader.calls(), RunEnded(usage=usage))
        if reader.messages.has_answer:
            return (RunEnded(output=output, usage=usage),)
        # It is in the graph's state, and no message there: LangGraph's readers are not told of it again.
        started = MessageStarted(extra={"langgraph": {"derived": True}})
        part = _answer(output)
        ended = RunEnded(output=output if isinstance(part, DataPart) else None, usage=usage)
        return (started, PartAdded(part=part), MessageEnded(), ended)

    # The port of agents with a state of their own (`babelgate.canonical.agent.Stateful`)

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Raises invalid for what the graph refuses, and agent_failed."""
        config = configuration(call, call.input.checkpoint)
        occasion = self._graph_access("threads.update", call, config)
        values: Any = call.data
        if call.messages or removed_ids:
            messages = [
                *(removal(message_id) for message_id in removed_ids),
                *(to_base_message(each) for each in call.messages),
            ]
            values = {**as_object(values), "messages": messages}
        try:
            async with self._make_graph(occasion) as known:
                graph = _attach_stores(known.graph, self._saver(call), occasion.store)
                made = await graph.aupdate_state(config, values, as_node=as_node)
                state = await graph.aget_state(made)
        except (InvalidUpdateError, EmptyInputError) as error:
            raise FaultError(FaultCode.INVALID, plain_text(f"{type(error).__name__}: {error}")) from error
        except Exception as error:
            raise _translate_error(error, self.info.name) from error
        parent = state.parent_config
        return StateSaved(
            checkpoint_id=state.config["configurable"]["checkpoint_id"],
            parent_id=None if parent is None else parent["configurable"]["checkpoint_id"],
            source=state.metadata["source"],
            step=state.metadata["step"],
            as_node=as_node,
            values=plain_object(state.values),
            next=tuple(state.next),
        )

    # The port of agents that are graphs (`babelgate.canonical.agent.Introspectable`)

    def _make_for_reading(self) -> Any:
        return self._make_graph(GraphAccess(access="assistants.read", store=Items(None, None)))

    async def draw(self, depth: int | bool) -> JsonObject | None:
        """Raises agent_failed."""
        try:
            async with self._make_for_reading() as known:
                drawn: Any = (await known.graph.aget_graph(xray=depth)).to_json()
        except NotImplementedError:
            return None
        except Exception as error:
            raise _translate_error(error, self.info.name) from error
        for node in drawn["nodes"]:  # an id is the path of a class in the author's code
            if isinstance(node.get("data"), dict):
                node["data"].pop("id", None)
        return plain_object(drawn)

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        """Raises agent_failed."""
        try:
            async with self._make_for_reading() as known:
                found = [each async for each in known.graph.aget_subgraphs(namespace=namespace, recurse=recurse)]
        except NotImplementedError:
            return None
        except Exception as error:
            raise _translate_error(error, self.info.name) from error
        return {namespace: _encode_schemas(_schemas(graph)) for namespace, graph in found}


def _attach_stores(graph: Any, saver: Saver, store: BaseStore) -> Any:
    """The graph with what it keeps kept here. A store that its author gave it stays."""
    return graph.copy(update={"checkpointer": saver, "store": store if graph.store is None else graph.store})


def _stream(graph: Any, given: Any, config: JsonObject, *, has_events: bool, **options: Any) -> Any:
    options = {"stream_mode": list(MODES), "subgraphs": True, **options}
    if has_events:
        # langgraph-api 0.16.7 gives a graph without a name that of its agent.
        config = config if _own_words(graph) else {**config, "run_name": config["configurable"]["graph_id"]}
        return read_events(graph.astream_events(given, config, version="v2", **options))
    return graph.astream(given, config, **options)


def _has_begun(call: Invocation, base: Stored | None) -> bool:
    """Whether the graph goes on with the run from what it kept of it."""
    return call.attempt > 1 and base is not None and base.run_id == call.run_id


def _answer(output: Json) -> Part:
    """Text, if that is all there is."""
    only = next(iter(output.values())) if isinstance(output, dict) and len(output) == 1 else output
    if isinstance(only, str):
        return TextPart(text=only)
    return DataPart(data=only if isinstance(output, dict) and ROOT in output else output)


def _translate_error(error: Exception, name: str) -> FaultError:
    """What callers are told of an exception: its type and words, as LangGraph's server tells them."""
    if isinstance(error, FaultError):
        return error
    log.warning("Graph %s failed", name, exc_info=error)
    kind = type(error).__name__
    words = plain_text(str(error)[:_MAX_WORDS])
    told = FaultError(FaultCode.AGENT_FAILED, f"{kind}: {words}" if words else kind, langchain={"error": kind})
    told.__cause__ = error
    return told


async def _find_asked(call: Invocation) -> Mapping[str, JsonObject]:
    """By question: what is kept of it."""
    found: dict[str, JsonObject] = {}
    for record in await call.past() if call.answers else ():
        if isinstance(record.event, InterruptRaised):
            found[record.event.interrupt_id or ""] = as_object(record.event.extra.get("langchain"))
    return found


def _tool_messages(call: Invocation, asked: Mapping[str, JsonObject]) -> Sequence[ToolMessage]:
    """The results of the calls that the graph ended on."""
    found = ((asked.get(answer.interrupt_id, {}), answer) for answer in call.answers)
    return [ToolMessage(**encode_tool_message(own, answer)) for own, answer in found if own.get("ended")]


# What is known of a graph


def _own_words(graph: Any) -> str:
    name = str(graph.name)
    return "" if name == "LangGraph" else name


_ALL: Final = ("input", "output", "state", "config")


def _schemas(graph: Any, only: Sequence[str] = _ALL) -> Mapping[str, JsonObject]:
    """Those that can be had: a type need not have a JSON Schema."""
    made: dict[str, JsonObject] = {}
    for name, ask, own in (
        ("input", graph.get_input_jsonschema, "input_schema"),
        ("output", graph.get_output_jsonschema, "output_schema"),
        ("state", partial(_state_schema, graph), "state_schema"),
        ("config", graph.get_context_jsonschema, "context_schema"),
    ):
        if name not in only:
            continue
        typed: Any = getattr(getattr(graph, "builder", None), own, None)
        schema = _schema(ask) or (None if typed is None else _schema(partial(_schema_of, typed)))
        if schema is not None:
            made[name] = schema
    return made


def _encode_schemas(schemas: Mapping[str, JsonObject]) -> JsonObject:
    """As LangGraph's API names them."""
    return {f"{name}_schema": schemas.get(name) for name in ("input", "output", "state", "config", "context")}


def _schema(ask: Callable[[], Any]) -> JsonObject | None:
    try:
        schema = plain(ask())
    except Exception:
        log.debug("a schema could not be made", exc_info=True)
        return None
    return schema if isinstance(schema, dict) else None


def _schema_of(typed: Any) -> JsonObject:
    return TypeAdapter(readable(typed)).json_schema()


def _state_schema(graph: Any) -> JsonObject:
    channels: Mapping[str, Any] = graph.channels
    members: dict[str, Any] = {name: (channels[name].ValueType, None) for name in graph.stream_channels_list}
    return TypeAdapter(create_model("State", **members)).json_schema()

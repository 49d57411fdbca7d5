"""Graphs in process: what LangGraph compiles, as an Agent with a state of its own.

The gateway is the graph's checkpointer, so that a thread goes on after a restart, a question waits as long as it must,
and callers look at the state, change it, and start from an earlier one.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from pydantic import TypeAdapter, create_model

from adapters.langchain.content import members_of
from canonical import AgentInfo, DataPart, Event, FaultCode, FaultError, Invocation, Part, TextPart
from canonical.event import MessageEnded, MessageStarted, PartAdded, RunEnded, StateSaved
from canonical.value import Json, JsonObject
from gateway import checkpoint
from gateway.checkpoint import Stored
from gateway.graph_input import Shape, answered, command_of, configuration, options, removal, said
from gateway.graph_saver import Saver
from gateway.graph_stream import MODES, Telling
from gateway.graph_value import ROOT, plain, plain_object, plain_text
from gateway.journal import Journal
from gateway.signature import readable

__all__ = ("Graph", "front")

log = logging.getLogger(__name__)

_MAX_WORDS: Final = 10_000
"""Characters of an exception's message that callers are told."""
_STRUCTURED: Final = "structured_response"
"""Where LangChain's own agents put their structured output."""


def front(target: Any, name: str, about: str = "") -> tuple[AgentInfo, "Graph"]:
    """The agent behind a graph, compiled or not, and what is known of it.

    Raises:
        TypeError: in words for the author, if it is something else of LangGraph's, or cannot be compiled.
    """
    if isinstance(target, StateGraph):
        try:
            target = cast("Any", target).compile()
        except ValueError as error:
            raise TypeError(f"the graph cannot be compiled: {error}") from error
    if not isinstance(target, Pregel):
        raise TypeError(f"a value of type {type(target).__name__} is no graph")
    graph = Graph(target, name, about)
    return graph.info, graph


class Graph:
    def __init__(self, graph: Any, name: str, about: str = "") -> None:
        self._graph: Any = graph
        self._journal: Journal | None = None
        schemas = _schemas(graph)
        self._shape = Shape(schemas.get("input", {}))
        self._context = frozenset(schemas.get("config", {}).get("properties", {}))
        outputs: str | Sequence[str] = graph.output_channels
        self._outputs = frozenset((ROOT,) if isinstance(outputs, str) else outputs)
        takes_all = self._shape.has_messages
        self.info = AgentInfo(
            name=name,
            description=" ".join((about or _own_words(graph)).split()),
            input_types=("text/plain", "*/*") if takes_all else ("text/plain", "application/json"),
            output_types=("text/plain",) if takes_all else ("application/json",),
            schemas=schemas,
            metadata={"framework": "langgraph"},
            remembers=True,
            stateful=True,
        )

    def attach(self, journal: Journal) -> None:
        self._journal = journal

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        saver = self._saver(call)
        base = await self._base(call)
        telling = Telling(
            saver.loaded,
            base=call.checkpoint if base is None else None,
            keeps_last=call.config.get("durability") == "exit",
        )
        graph = self._graph.copy(update={"checkpointer": saver})
        stream = graph.astream(
            self._input(call, base),
            configuration(call, call.checkpoint if call.checkpoint and call.cause != "answer" else None),
            stream_mode=list(MODES),
            subgraphs=True,
            **options(call, self._context),
        )
        failed: FaultError | None = None
        try:
            async with aclosing(stream):
                async for ns, mode, data in stream:
                    for event in telling.tell(ns, mode, data):
                        yield event
        except Exception as error:
            failed = _told(error, self.info.name)
        for event in telling.close(failed=failed is not None):
            yield event
        if failed is not None:
            raise failed
        for event in self._end(telling):
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
            partial(
                checkpoint.find,
                owner=call.owner,
                thread_id=call.thread_id,
                ns="",
                checkpoint_id=None if call.cause == "answer" else call.checkpoint,
            )
        )

    def _input(self, call: Invocation, base: Stored | None) -> Any:
        if call.attempt > 1 and base is not None and base.run_id == call.run_id:
            return None  # what the caller said is part of the state by now
        command = command_of(call)
        if call.cause == "answer":
            return answered(call.answers, command)
        given = self._shape.input(call, call.history if base is None else ())
        return answered((), command) if given is None else given

    def _end(self, telling: Telling) -> Sequence[Event]:
        """What callers of other protocols are told at the end: the output of a graph that does not converse is its
        answer."""
        values = {name: value for name, value in telling.values.items() if name in self._outputs}
        output: Json = values.get(_STRUCTURED) if self._shape.has_messages else values or None
        usage = telling.speech.usage
        if telling.paused or output is None:
            return (RunEnded(usage=usage),)
        if telling.speech.answered:
            return (RunEnded(output=output, usage=usage),)
        # It is in the graph's state, and no message there: LangGraph's readers are not told of it again.
        started = MessageStarted(extra={"langgraph": {"derived": True}})
        part = _answer(output)
        ended = RunEnded(output=output if isinstance(part, DataPart) else None, usage=usage)
        return (started, PartAdded(part=part), MessageEnded(), ended)

    # The port of agents with a state of their own (`canonical.agent.Stateful`)

    async def update_state(
        self, call: Invocation, *, forgets: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        graph = self._graph.copy(update={"checkpointer": self._saver(call)})
        values: Any = call.data
        if call.messages or forgets:
            messages = [*(removal(message_id) for message_id in forgets), *(said(each) for each in call.messages)]
            values = {**members_of(values), "messages": messages}
        try:
            made = await graph.aupdate_state(configuration(call, call.checkpoint), values, as_node=as_node)
            state = await graph.aget_state(made)
        except (InvalidUpdateError, EmptyInputError) as error:
            raise FaultError(FaultCode.INVALID, plain_text(f"{type(error).__name__}: {error}")) from error
        except Exception as error:
            raise _told(error, self.info.name) from error
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

    # The port of agents that are graphs (`canonical.agent.Drawn`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        try:
            drawn: Any = (await self._graph.aget_graph(xray=depth)).to_json()
        except NotImplementedError:
            return None
        except Exception as error:
            raise _told(error, self.info.name) from error
        for node in drawn["nodes"]:  # an id is the path of a class in the author's code
            if isinstance(node.get("data"), dict):
                node["data"].pop("id", None)
        return plain_object(drawn)

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        try:
            found = [each async for each in self._graph.aget_subgraphs(namespace=namespace, recurse=recurse)]
        except NotImplementedError:
            return None
        except Exception as error:
            raise _told(error, self.info.name) from error
        return {namespace: _told_schemas(_schemas(graph)) for namespace, graph in found}


def _answer(output: Json) -> Part:
    """Text, if that is all there is."""
    only = next(iter(output.values())) if isinstance(output, dict) and len(output) == 1 else output
    if isinstance(only, str):
        return TextPart(text=only)
    return DataPart(data=only if isinstance(output, dict) and ROOT in output else output)


def _told(error: Exception, name: str) -> FaultError:
    """What callers are told of an exception: its type and words, as LangGraph's server tells them."""
    if isinstance(error, FaultError):
        return error
    log.warning("Graph %s failed", name, exc_info=error)
    kind = type(error).__name__
    words = plain_text(str(error)[:_MAX_WORDS])
    told = FaultError(FaultCode.AGENT_FAILED, f"{kind}: {words}" if words else kind, langchain={"error": kind})
    told.__cause__ = error
    return told


# What is known of a graph


def _own_words(graph: Any) -> str:
    name = str(graph.name)
    return "" if name == "LangGraph" else name


def _schemas(graph: Any) -> Mapping[str, JsonObject]:
    """Those that can be had: a type need not have a JSON Schema."""
    made: dict[str, JsonObject] = {}
    for name, ask, own in (
        ("input", graph.get_input_jsonschema, "input_schema"),
        ("output", graph.get_output_jsonschema, "output_schema"),
        ("state", partial(_state_schema, graph), "state_schema"),
        ("config", graph.get_context_jsonschema, "context_schema"),
    ):
        typed: Any = getattr(getattr(graph, "builder", None), own, None)
        schema = _schema(ask) or (None if typed is None else _schema(partial(_schema_of, typed)))
        if schema is not None:
            made[name] = schema
    return made


def _told_schemas(schemas: Mapping[str, JsonObject]) -> JsonObject:
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

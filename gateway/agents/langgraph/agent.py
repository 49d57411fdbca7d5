"""Graphs in process: compiled graphs of LangGraph as stateful agents.

The gateway is the graph's checkpointer. So a thread continues after a restart, and a question can wait as long as the
thread exists. Callers can read the state, change it, and start from an earlier one. The gateway's store is the graph's
store.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from copy import copy
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
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.agents.call_data import GraphData
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
    GraphInputSchema,
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
from babelgate.gateway.storage.stored_checkpoint import StoredCheckpoint

log = logging.getLogger("babelgate.agent")

_MAX_MESSAGE: Final = 10_000
"""Maximum length of an exception's message in a fault, in characters. Chosen."""
_STRUCTURED: Final = "structured_response"
"""Channel in which LangChain's own agents store their structured output."""
_INSPECTION_TIMEOUT: Final = 30.0
"""Seconds within which a graph factory must create the graph that is inspected when the gateway starts. Chosen."""


def wrap_graph(target: Any, name: str, about: str = "") -> tuple[AgentInfo, "Graph"]:
    """Return the description of a graph, and an agent that runs it. The graph is compiled if necessary. `about`
    describes the agent for callers; if it is empty, the name of the graph does.

    Raises:
        TypeError: The target is no graph, or cannot be compiled. The message is for the agent's author.
    """
    graph = compile_graph(target)
    agent = Graph(Ready(graph), name, about, graph)
    return agent.info, agent


async def wrap_factory(function: Any, name: str, about: str = "") -> tuple[AgentInfo, "Graph"]:
    """Return the description of a function that creates graphs, and an agent that runs them.

    The function is called once, with an empty config, to read the graph's schemas. If it fails without a config, the
    schemas are not available to callers.

    Raises:
        TypeError: The function has unknown parameters, or returns no graph. The message is for the agent's author.
    """
    factory = Factory(function, name)
    access = GraphAccess(access="assistants.read", store=Items(None))
    try:
        async with asyncio.timeout(_INSPECTION_TIMEOUT), factory.make_graph(access) as graph:
            agent = Graph(factory, name, about, graph)
    except NoGraphError:
        raise
    except Exception:
        log.warning(
            "graph schemas not available: the factory failed with an empty config agent=%s", name, exc_info=True
        )
        agent = Graph(factory, name, about)
    return agent.info, agent


@dataclass(frozen=True, slots=True)
class _Inspected:
    """Graph, with the parts of its schemas that a run needs."""

    graph: Any
    shape: GraphInputSchema
    context: frozenset[str]
    """Names of the members of the graph's context schema."""
    outputs: frozenset[str]
    """Names of the graph's output channels."""


def _inspect_graph(graph: Any, schemas: Mapping[str, JsonObject]) -> _Inspected:
    outputs: str | Sequence[str] = graph.output_channels
    context: JsonObject = schemas.get("config", {}).get("properties", {})
    return _Inspected(
        graph,
        GraphInputSchema(schemas.get("input", {})),
        frozenset(context),
        frozenset((ROOT,) if isinstance(outputs, str) else outputs),
    )


class Graph:
    """Agent that runs a LangGraph graph in this process."""

    def __init__(self, maker: Maker, name: str, about: str = "", graph: Any = None) -> None:
        """Create an agent. `about` describes it for callers; if it is empty, the name of the graph does.

        `graph` was created by `maker`, and its name and schemas are read. If it is None, they are unknown until the
        first run.
        """
        self._maker = maker
        self._data: GraphData | None = None
        """Access to the gateway's database; None until `attach` or `with_data`."""
        schemas: Mapping[str, JsonObject] = {} if graph is None else _schemas(graph)
        self._last = None if graph is None else _inspect_graph(graph, schemas)
        takes_all = self._last is None or self._last.shape.has_messages
        description = about or ("" if graph is None else _graph_name(graph))
        self.info = AgentInfo(
            name=name,
            description=" ".join(description.split()),
            input_types=("text/plain", "*/*") if takes_all else ("text/plain", "application/json"),
            output_types=("text/plain",) if takes_all else ("application/json",),
            schemas=schemas,
            metadata={"framework": "langgraph"},
            remembers=True,
            stateful=True,
        )

    def attach(self, data: GraphData) -> None:
        self._data = data

    def with_data(self, data: GraphData) -> "Graph":
        """Return a copy of the agent that stores its checkpoints and items by `data`."""
        graph = copy(self)
        graph._data = data
        return graph

    @asynccontextmanager
    async def _make_graph(self, occasion: GraphAccess) -> AsyncGenerator[_Inspected]:
        async with self._maker.make_graph(occasion) as graph:
            if self._last is None or self._last.graph is not graph:
                self._last = _inspect_graph(graph, _schemas(graph, only=("input", "config")))
            yield self._last

    def _graph_access(self, access: Access, call: Invocation, config: JsonObject) -> GraphAccess:
        store = Items(None if self._data is None else self._data.items(call))
        return GraphAccess(access=access, store=store, config=config, context=configurable_of(call), owner=call.owner)

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of a run. Raises agent_failed, with the type and the message of the graph's exception."""
        saver = self._saver(call)
        base = await self._base(call)
        config = configuration(call, None if call.cause == "answer" else call.input.checkpoint or None)
        occasion = self._graph_access("threads.create_run", call, config)
        failed: Exception | None = None
        try:
            async with (
                self._make_graph(occasion) as inspected,
                aclosing(self._run(inspected, call, base, saver, occasion)) as events,
            ):
                try:
                    async for event in events:
                        yield event
                except Exception as error:  # also if the author's context manager suppresses it
                    failed = error
                    raise
        except Exception as error:
            failed = failed or error
        if failed is not None:
            raise _translate_error(failed, self.info.name)

    async def _run(
        self,
        inspected: _Inspected,
        call: Invocation,
        base: StoredCheckpoint | None,
        saver: Saver,
        occasion: GraphAccess,
    ) -> AsyncGenerator[Event]:
        resumed: ResumedRun | None = None
        log = await call.states()
        if base is not None and _has_begun(call, base):
            pending = PendingWrites.of(saver.pending_writes(base))
            resumed = ResumedRun.of(await call.past(), call.run_id, base.checkpoint_id, pending, log)
            yield RunStarted(attempt=call.attempt, void=resumed.void)
        stream_reader = GraphStreamReader(
            saver.loaded,
            base=call.input.checkpoint if base is None else None,
            keeps_last=call.config.get("durability") == "exit",
            resumed=resumed,
            log=log,
            tools=frozenset(tool.name for tool in call.tools),
        )
        stream = _stream(
            _attach_stores(inspected.graph, saver, occasion.store),
            self._input(inspected.shape, call, base, await _find_questions(call)),
            occasion.config,
            has_events=has_events_mode(call.input),
            **options(call, inspected.context),
        )
        for event in stream_reader.read_unsaid():
            yield event
        failed: Exception | None = None
        try:
            async with aclosing(stream):
                async for ns, mode, data in stream:
                    for event in stream_reader.read(ns, mode, data):
                        yield event
        except Exception as error:
            failed = error
        for event in stream_reader.reader.close():
            yield event
        if failed is not None:
            raise failed
        for event in (*stream_reader.reader.questions(), *self._end(inspected, stream_reader.reader)):
            yield event

    def _need_data(self) -> GraphData:
        if self._data is None:
            raise FaultError(FaultCode.INTERNAL, f"The graph {self.info.name} has no database: no hub was started")
        return self._data

    def _saver(self, call: Invocation) -> Saver:
        return Saver(self._need_data().checkpoints(call), call)

    async def _base(self, call: Invocation) -> StoredCheckpoint | None:
        """Return the checkpoint that the call starts from: the one that its input names, or else the thread's newest
        one. An answer always continues from the newest one.

        Return None if the graph has stored no such checkpoint.
        """
        checkpoint_id = None if call.cause == "answer" else call.input.checkpoint
        return await self._need_data().checkpoints(call).find("", checkpoint_id)

    def _input(
        self,
        shape: GraphInputSchema,
        call: Invocation,
        base: StoredCheckpoint | None,
        questions: Mapping[str, JsonObject],
    ) -> Any:
        """Return the input of the graph: the caller's messages and data, a LangGraph `Command`, or None to continue
        from the checkpoint.

        `base` is the checkpoint that the run starts from; None at the start of a thread. `questions` has the stored
        LangChain data of the task's questions, by id.
        """
        if _has_begun(call, base):
            return None  # the caller's input is already part of the state
        command = command_of(call)
        if call.cause == "answer":
            if results := _tool_messages(call, questions):
                return {"messages": results}
            return resume_command(call.answers, command, questions)
        graph_input = shape.input(call, call.history if base is None else ())
        return resume_command((), command) if graph_input is None else graph_input

    def _end(self, inspected: _Inspected, reader: EventReader) -> Sequence[Event]:
        """Return the last events of a run: a `RunEnded` with the output and usage, or the tool calls for the caller.

        The output of a graph without messages becomes a message, too, because some protocols show only messages.
        """
        values = {name: value for name, value in reader.values.items() if name in inspected.outputs}
        output: Json = values.get(_STRUCTURED) if inspected.shape.has_messages else values or None
        usage = reader.messages.usage
        if reader.has_questions or output is None:
            return (*reader.calls(), RunEnded(usage=usage))
        if reader.messages.has_answer:
            return (RunEnded(output=output, usage=usage),)
        # The output is already part of the graph's state, so readers of the LangGraph API do not get this message.
        started = MessageStarted(extra={"langgraph": {"derived": True}})
        part = _answer(output)
        ended = RunEnded(output=output if isinstance(part, DataPart) else None, usage=usage)
        return (started, PartAdded(part=part), MessageEnded(), ended)

    # Interface of stateful agents (`babelgate.canonical.agent.Stateful`)

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Change the graph's state in the name of the node `as_node`, and return the new revision. If `as_node` is
        None, LangGraph chooses the node. The messages whose ids are in `removed_ids` are removed.

        Raises invalid if the graph refuses the change, and agent_failed.
        """
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
            async with self._make_graph(occasion) as inspected:
                graph = _attach_stores(inspected.graph, self._saver(call), occasion.store)
                new_config = await graph.aupdate_state(config, values, as_node=as_node)
                state = await graph.aget_state(new_config)
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

    # Interface of agents that are graphs (`babelgate.canonical.agent.Introspectable`)

    def _make_for_reading(self) -> Any:
        return self._make_graph(GraphAccess(access="assistants.read", store=Items(None)))

    async def draw(self, depth: int | bool) -> JsonObject | None:
        """Return the nodes and edges of the graph, or None if it cannot be drawn. `depth` is the number of subgraph
        levels to include. Raises agent_failed if the agent's code fails."""
        try:
            async with self._make_for_reading() as inspected:
                drawn: Any = (await inspected.graph.aget_graph(xray=depth)).to_json()
        except NotImplementedError:
            return None
        except Exception as error:
            raise _translate_error(error, self.info.name) from error
        for node in drawn["nodes"]:  # an id is the path of a class in the author's code
            if isinstance(node.get("data"), dict):
                node["data"].pop("id", None)
        return plain_object(drawn)

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        """Return the schemas of the subgraphs by namespace, or None if the graph cannot list them.

        `namespace` selects one subgraph, and None all. With `recurse`, subgraphs of subgraphs are included. Raises
        agent_failed if the agent's code fails.
        """
        try:
            async with self._make_for_reading() as inspected:
                graphs = [each async for each in inspected.graph.aget_subgraphs(namespace=namespace, recurse=recurse)]
        except NotImplementedError:
            return None
        except Exception as error:
            raise _translate_error(error, self.info.name) from error
        return {namespace: _encode_schemas(_schemas(graph)) for namespace, graph in graphs}


def _attach_stores(graph: Any, saver: Saver, store: BaseStore) -> Any:
    """Return a copy of a graph with the gateway's checkpointer and store. A store that the graph's author has set is
    kept."""
    return graph.copy(update={"checkpointer": saver, "store": store if graph.store is None else graph.store})


def _stream(graph: Any, graph_input: Any, config: JsonObject, *, has_events: bool, **options: Any) -> Any:
    options = {"stream_mode": list(MODES), "subgraphs": True, **options}
    if has_events:
        # langgraph-api 0.16.7 uses the agent's name for a graph without a name.
        config = config if _graph_name(graph) else {**config, "run_name": config["configurable"]["graph_id"]}
        return read_events(graph.astream_events(graph_input, config, version="v2", **options))
    return graph.astream(graph_input, config, **options)


def _has_begun(call: Invocation, base: StoredCheckpoint | None) -> bool:
    """Return True if the graph continues the run from a checkpoint of an earlier attempt. `base` is the thread's newest
    checkpoint, if it has one."""
    return call.attempt > 1 and base is not None and base.run_id == call.run_id


def _answer(output: Json) -> Part:
    """Return a graph's output as a part: a text part if the output has a single text, otherwise a data part."""
    only = next(iter(output.values())) if isinstance(output, dict) and len(output) == 1 else output
    if isinstance(only, str):
        return TextPart(text=only)
    return DataPart(data=only if isinstance(output, dict) and ROOT in output else output)


def _translate_error(error: Exception, name: str) -> FaultError:
    """Return the fault of a graph's exception, with its type and message, as LangGraph's server reports them."""
    if isinstance(error, FaultError):
        return error
    log.warning("graph failed agent=%s", name, exc_info=error)
    kind = type(error).__name__
    message = plain_text(str(error)[:_MAX_MESSAGE])
    fault = FaultError(FaultCode.AGENT_FAILED, f"{kind}: {message}" if message else kind, langchain={"error": kind})
    fault.__cause__ = error
    return fault


async def _find_questions(call: Invocation) -> Mapping[str, JsonObject]:
    """Return the LangChain data that the log has of the task's questions, by question id. It is empty if the call has
    no answers."""
    questions: dict[str, JsonObject] = {}
    for record in await call.past() if call.answers else ():
        if isinstance(record.event, InterruptRaised):
            questions[record.event.interrupt_id or ""] = as_object(record.event.extra.get("langchain"))
    return questions


def _tool_messages(call: Invocation, questions: Mapping[str, JsonObject]) -> Sequence[ToolMessage]:
    """Return the caller's answers as tool messages, if the questions were tool calls with which the graph had ended its
    run."""
    pairs = ((questions.get(answer.interrupt_id, {}), answer) for answer in call.answers)
    return [ToolMessage(**encode_tool_message(question, answer)) for question, answer in pairs if question.get("ended")]


# Inspection


def _graph_name(graph: Any) -> str:
    """Return the name that the author gave the graph, or an empty text."""
    name = str(graph.name)
    return "" if name == "LangGraph" else name


_ALL: Final = ("input", "output", "state", "config")


def _schemas(graph: Any, only: Sequence[str] = _ALL) -> Mapping[str, JsonObject]:
    """Return the JSON Schemas of a graph by name: those of `input`, `output`, `state` and `config` that are in `only`.
    A schema that cannot be generated is left out."""
    schemas: dict[str, JsonObject] = {}
    for name, create, attribute in (
        ("input", graph.get_input_jsonschema, "input_schema"),
        ("output", graph.get_output_jsonschema, "output_schema"),
        ("state", partial(_state_schema, graph), "state_schema"),
        ("config", graph.get_context_jsonschema, "context_schema"),
    ):
        if name not in only:
            continue
        typed: Any = getattr(getattr(graph, "builder", None), attribute, None)
        schema = _schema(create) or (None if typed is None else _schema(partial(_schema_of, typed)))
        if schema is not None:
            schemas[name] = schema
    return schemas


def _encode_schemas(schemas: Mapping[str, JsonObject]) -> JsonObject:
    """Return schemas under the names of LangGraph's API, such as `input_schema`."""
    return {f"{name}_schema": schemas.get(name) for name in ("input", "output", "state", "config", "context")}


def _schema(create: Callable[[], Any]) -> JsonObject | None:
    try:
        schema = plain(create())
    except Exception:
        log.debug("graph schema not generated", exc_info=True)
        return None
    return schema if isinstance(schema, dict) else None


def _schema_of(typed: Any) -> JsonObject:
    return TypeAdapter(readable(typed)).json_schema()


def _state_schema(graph: Any) -> JsonObject:
    channels: Mapping[str, Any] = graph.channels
    members: dict[str, Any] = {name: (channels[name].ValueType, None) for name in graph.stream_channels_list}
    return TypeAdapter(create_model("State", **members)).json_schema()

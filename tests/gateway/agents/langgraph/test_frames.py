"""Tests of the stream of a graph, which in every mode is the same with and without the gateway."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessageChunk, HumanMessage, message_chunk_to_message
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import AnnotationPart, Event, Part, RefusalPart, TextPart
from babelgate.canonical.event import Custom, InterruptRaised, MessageStarted, Native, Record, StateSaved, StepStarted
from babelgate.canonical.fold import Fold
from babelgate.canonical.hub import Scope
from babelgate.gateway.agents.langgraph.frames import GraphStreamReader, ResumedRun
from babelgate.gateway.agents.langgraph.jsonable import plain
from tests.gateway.graphs import GRAPHS
from tests.gateway.platform import Caller, Frame, begin

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = ("values", "updates", "messages", "custom", "tasks", "checkpoints")
INPUT = {"messages": [{"role": "user", "content": "Hi", "id": "h1"}]}
INPUTS: dict[str, Any] = {
    "blocks": INPUT,
    "chat": INPUT,
    "fan": {"items": ["a", "b"]},
    "joke": {"topic": "cats"},
    "structured": {"topic": "all"},
    "tools": INPUT,
    "within": {"items": []},
}
QUESTIONS: dict[str, Any] = {"ask": "Ann", "twice": "one"}


class Alone:
    """Graph that runs without a gateway, for comparison."""

    def __init__(self, name: str) -> None:
        self._graph: Any = GRAPHS[name]().compile(checkpointer=InMemorySaver())
        self._config = {"configurable": {"thread_id": "t"}}

    async def stream(self, graph_input: Any) -> list[Frame]:
        if isinstance(graph_input, dict) and "messages" in graph_input:
            graph_input = {"messages": [HumanMessage("Hi", id="h1")]}
        stream = self._graph.astream(graph_input, self._config, stream_mode=list(MODES), subgraphs=True)
        return [(mode, ns, data) async for ns, mode, data in stream]


class Names:
    """Replacement of ids, which differ from run to run, by the order of their first occurrence."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"id-{len(self._names)}")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self(key): self(member) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list | tuple):
            return [self(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
        return (
            re.sub(r"(lc_run--)?[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", self._name, value)
            if isinstance(value, str)
            else value
        )


def data_of(frames: list[Frame], mode: str) -> list[Any]:
    """Return the data of a mode, in a form in which both streams can be compared."""
    named = Names()
    return [named((list(ns), _comparable(mode, data))) for each, ns, data in frames if each == mode]


def _comparable(mode: str, data: Any) -> Any:
    if mode == "checkpoints":
        parent: Any = data["parent_config"] or {}
        metadata: Any = {name: data["metadata"][name] for name in ("source", "step")}
        return {
            "id": data["config"]["configurable"]["checkpoint_id"],
            "parent": parent.get("configurable", {}).get("checkpoint_id"),
            "values": plain(data["values"]),
            "next": data["next"],
            "metadata": metadata,
            "tasks": [task["name"] for task in data["tasks"]],
        }
    encoded: Any = plain(data)
    if "__interrupt__" in encoded:
        encoded["__interrupt__"] = [{"value": q["value"], "id": q["id"]} for q in encoded["__interrupt__"]]
    if mode == "tasks":
        encoded.pop("metadata", None)  # the gateway adds the id of the run
        encoded.pop("triggers", None) if "result" in encoded else None
        if isinstance(encoded.get("error"), dict):
            encoded["error"] = plain(data["error"])
    return encoded


def messages_of(frames: list[Frame]) -> list[Any]:
    """Return the messages of a stream: the sum of their chunks, and the node that produced them."""
    named, whole, where = Names(), dict[str, Any](), dict[str, Any]()
    for mode, ns, data in frames:
        if mode != "messages":
            continue
        piece, about = data
        keys = ("langgraph_node", "langgraph_step", "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns")
        where.setdefault(piece["id"], [list(ns), {name: about[name] for name in keys}])
        whole.setdefault(piece["id"], []).append(piece)
    return [named([_sum(pieces), *where[key]]) for key, pieces in whole.items()]


def _sum(pieces: list[Any]) -> Any:
    if pieces[0]["type"] != "AIMessageChunk":  # without a gateway, a whole message of a node is a single frame
        return pieces[0]
    total: Any = AIMessageChunk.model_validate(pieces[0])
    for piece in pieces[1:]:
        total = total + AIMessageChunk.model_validate(piece)
    assert isinstance(total, BaseMessageChunk)
    return plain(message_chunk_to_message(total))


def both(alone: list[Frame], behind: list[Frame]) -> None:
    for mode in MODES:
        if mode != "messages":
            assert data_of(behind, mode) == data_of(alone, mode), mode
    assert messages_of(behind) == messages_of([(mode, ns, plain(data)) for mode, ns, data in alone])


def modes_for(behind: bool) -> tuple[str, ...]:
    return tuple("messages-tuple" if mode == "messages" and behind else mode for mode in MODES)


@pytest.mark.parametrize("name", INPUTS)
async def test_a_graph_streams_the_same_frames_behind_the_gateway(name: str, graphs: Caller) -> None:
    alone = await Alone(name).stream(INPUTS[name])
    behind = await graphs.stream(await graphs.thread(), name, INPUTS[name], *modes_for(True))
    assert behind[0][0] == "metadata"
    both(alone, behind)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_an_asking_graph_streams_the_same_frames_as_langgraph(name: str, graphs: Caller) -> None:
    alone = Alone(name)
    thread = await begin(graphs, name)
    both(await alone.stream(INPUT), await thread.stream(INPUT, *modes_for(True)))
    resumed = await thread.stream(None, *modes_for(True), command={"resume": QUESTIONS[name]})
    both(await alone.stream(Command(resume=QUESTIONS[name])), resumed)


async def test_a_second_input_streams_the_same_frames_as_langgraph(graphs: Caller) -> None:
    alone = Alone("chat")
    thread = await begin(graphs, "chat")
    for _ in range(2):
        both(await alone.stream(INPUT), await thread.stream(INPUT, *modes_for(True)))


async def test_without_stream_subgraphs_no_frames_of_subgraphs_are_sent(graphs: Caller) -> None:
    frames = await graphs.stream(await graphs.thread(), "within", {"items": []}, "updates", subgraphs=False)
    assert [(ns, data) for mode, ns, data in frames if mode == "updates"] == [
        ((), {"first": {"items": ["a"]}}),
        ((), {"inner": {"items": ["a", "c"]}}),
    ]


async def test_tasks_have_the_ids_of_their_namespaces(graphs: Caller) -> None:
    frames = await graphs.stream(await graphs.thread(), "within", {"items": []}, "tasks")
    names = {f"{data['name']}:{data['id']}" for mode, _, data in frames if mode == "tasks"}
    assert {ns[0] for mode, ns, _ in frames if mode == "tasks" and ns} <= names


async def test_a_replayed_stream_has_the_same_frames(graphs: Caller) -> None:
    thread = await begin(graphs, "tools")
    frames = await thread.stream(INPUT, "values", "messages-tuple", subgraphs=False)
    run_id = frames[0][2]["run_id"]
    path = f"/threads/{thread.thread_id}/runs/{run_id}/stream?stream_mode=values,messages-tuple"
    again = await graphs.gateway.http.get(path, headers={"Last-Event-ID": "-1"})
    assert again.text.count("event: messages") == sum(mode == "messages" for mode, _, _ in frames)


async def test_a_task_has_the_metadata_of_its_graph(graphs: Caller) -> None:
    frames = await graphs.stream(await graphs.thread(), "hire", INPUT, "tasks")
    (inner,) = [data["metadata"] for _, ns, data in frames if ns and "metadata" in data]
    assert inner["lc_agent_name"] == "researcher"


async def test_citations_and_refusals_are_equal_in_process_and_remote(graphs: Caller) -> None:
    reader = EventReader()
    frames = await Alone("cites").stream(INPUT)
    events = [event for mode, ns, data in frames for event in reader.read(*_sent(mode, ns, data))]
    far = parts([*events, *reader.finish()])
    thread = await begin(graphs, "cites")
    await thread.wait(INPUT)
    records = await graphs.gateway.hub.reads.records("default", Scope(thread.thread_id))
    near = parts(record.event for record in records)
    assert near == far
    assert near == [
        TextPart(text="It rains"),
        AnnotationPart(url="https://example.com/rain", title="Rain", start=0, end=7),
        RefusalPart(text="No more."),
    ]


async def test_a_question_with_a_python_type_has_no_schema() -> None:
    reader = GraphStreamReader(set(), base=None, keeps_last=False)
    interrupt = {"id": "a" * 32, "value": "Who?", "response_schema": str}
    reader.read((), "tasks", {"id": "t", "name": "n", "input": {}, "triggers": ["x"]})
    reader.read((), "tasks", {"id": "t", "name": "n", "error": None, "result": {}, "interrupts": [interrupt]})
    (question,) = reader.reader.questions()
    assert isinstance(question, InterruptRaised)
    assert (question.interrupt_id, question.message.text, question.answer_schema) == ("a" * 32, "Who?", None)


async def test_custom_data_like_a_gateways_stays_unchanged() -> None:
    """Keep custom data and tasks that look like the progress and the tools of a gateway unchanged."""
    reader = GraphStreamReader(set(), base=None, keeps_last=False)
    events = [*reader.read((), "custom", {"progress": "half"})]
    events += reader.read((), "tasks", {"id": "t", "name": "n", "input": {}, "triggers": ["tool"]})
    assert [type(event) for event in events] == [Custom, StepStarted]


async def test_a_resumed_run_skips_a_state_of_the_log() -> None:
    reader = GraphStreamReader({("", "c1")}, base=None, keeps_last=False, resumed=ResumedRun((), {"c1"}))
    assert reader.read((), "checkpoints", saved("c1", count=1)) == []
    assert reader.reader.values == {"count": 1}


async def test_a_resumed_run_sends_a_missing_state_and_its_messages() -> None:
    reader = GraphStreamReader({("", "c1")}, base=None, keeps_last=False, resumed=ResumedRun((), {"m1"}))
    messages = [HumanMessage("Hi", id="h1"), AIMessage("Old", id="m1"), AIMessage("New", id="m2")]
    events = reader.read((), "checkpoints", saved("c1", messages=messages))
    assert parts(events) == [TextPart(text="New")]
    state = events[-1]
    assert isinstance(state, StateSaved) and state.checkpoint_id == "c1"


async def test_the_initial_state_is_sent_only_to_langgraph_readers() -> None:
    reader = GraphStreamReader({("", "c1")}, base=None, keeps_last=False)
    (native,) = reader.read((), "checkpoints", saved("c1", count=1))
    assert isinstance(native, Native)
    assert (native.event, native.data["values"]) == ("checkpoints", {"count": 1})


def saved(checkpoint_id: str, **values: Any) -> dict[str, Any]:
    """Return the data of a checkpoint in the form of `astream`."""
    return {
        "config": {"configurable": {"checkpoint_id": checkpoint_id}},
        "parent_config": None,
        "values": values,
        "metadata": {"source": "loop", "step": 1},
        "next": [],
        "tasks": [],
    }


async def test_messages_are_sent_without_invalid_json_values() -> None:
    reader = GraphStreamReader(set(), base=None, keeps_last=False)
    about = {"langgraph_node": "talk", "langgraph_step": 1, "secret": object()}
    chunk = AIMessageChunk(content="a\ud800b", id="m", chunk_position="last")
    started, *events = reader.read((), "messages", (chunk, about))
    assert isinstance(started, MessageStarted)
    assert started.extra == {"langgraph": {"langgraph_node": "talk", "langgraph_step": 1}}
    whole = reader.read((), "messages", (AIMessage("c\ud800d", id="n"), about))
    assert parts([started, *events, *whole]) == [TextPart(text="a?b"), TextPart(text="c?d")]


def _sent(mode: str, ns: tuple[str, ...], data: Any) -> tuple[str, Any]:
    """Return a frame in the form of LangGraph's server."""
    return "|".join((mode, *ns)), json.loads(json.dumps(plain(data)))


def parts(events: Iterable[Event]) -> list[Part]:
    """Return the parts of the agent's messages."""
    fold = Fold("t")
    for seq, event in enumerate(events, 1):
        fold.apply(Record(seq, seq, "k", "r", 1, event))
    return [part for message in fold.messages() if message.role == "agent" for part in message.parts]

"""Callers with the extension, in front of every kind of agent: their records are those of the log, and hold all output
of the agent.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, Final

import msgspec
import pytest

from babelgate.canonical import DataPart, Event, FaultCode, Feature, Record, Scope, TextPart
from babelgate.canonical.event import (
    InterruptRaised,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    StateSaved,
)
from docs.pairing import EXTENDED_AGENTS, EXTENDED_SERVERS, cell
from tests.fidelity.probe import PROBES
from tests.pairs.extended import EXTENDED, LABELS, TOOL, UPLOAD, Extended, Records, saying
from tests.pairs.house import HOUSES, OWNER, House
from tests.pairs.whole import LOGIN, NAME, OUTPUT, every_event_run, exact, hashed

pytestmark = pytest.mark.asyncio(loop_scope="module")

Extract = Callable[[Sequence[Event]], Any]

COMPLETE_KINDS: Final = [name for name, kind in HOUSES.items() if kind.cast is None and name != "graph"]
"""Names of the kinds of agents (`HOUSES`) that can emit every event of `EveryEventAgent`."""
ANSWERS: Final = {"What is your name?": "Ada", "May I write?": {"approved": True}, "Who are you?": "me"}


def by_each(houses: Sequence[str], agent: str, *, where: Callable[[type[Extended]], bool] = lambda _: True) -> Any:
    cells = [
        pytest.param(name, (caller, agent), id=f"{caller.name}-{name}")
        for name in houses
        for caller in EXTENDED
        if where(caller)
    ]
    return pytest.mark.parametrize(("house", "caller"), cells, indirect=True)


@by_each(COMPLETE_KINDS, NAME)
async def test_received_records_are_the_log_and_the_agents_output(house: House, caller: Extended) -> None:
    task = await caller.send("go", saying())
    assert await logged(house, caller, task) == task.by_number
    while task.open:
        values = {each.interrupt_id or "": ANSWERS[each.message.text] for each in task.open}
        answered = await caller.answer(task, values)
        assert await logged(house, caller, answered) == answered.by_number
        task.join(answered)
        if caller.looks:
            task.join(await caller.look(answered))
    wrong = {
        feature: (actual, expected)
        for feature, extract in EXTRACTS.items()
        if (actual := extract(task.events)) != (expected := extract(RUN))
        and cell(house.kind.side, EXTENDED_SERVERS[caller.speaks], feature).level == "full"
    }
    assert wrong == {}
    if house.kind.agent in EXTENDED_AGENTS:
        assert exact(task.events) == exact(RUN)


@by_each([*COMPLETE_KINDS, "graph"], "fail")
async def test_the_last_record_of_a_failed_run_has_its_fault(house: House, caller: Extended) -> None:
    task = await caller.send("on purpose", {})
    assert await logged(house, caller, task) == task.by_number
    [fault] = [event.fault for event in task.events if isinstance(event, RunEnded)]
    assert fault is not None
    assert fault.code is FaultCode.AGENT_FAILED
    assert "on purpose" in fault.message


@by_each(
    ["python", "cluster"],
    NAME,
    where=lambda each: EXTENDED_SERVERS[each.speaks].carries[Feature.REATTACH].level == "full",
)
async def test_a_reconnect_receives_the_records_after_any_number(house: House, caller: Extended) -> None:
    task = await caller.send("go", saying())
    for seq in (*list(task.by_number)[:-1:7], list(task.by_number)[-2]):
        again = await caller.reconnect(task, seq)
        had = {
            number for number in again.by_number if number <= seq
        }  # the first event of A2A may have the record before it
        assert len(had) <= 1
        assert {number: record for number, record in again.by_number.items() if number > seq} == {
            number: record for number, record in task.by_number.items() if number > seq
        }


_INPUT_SUMMARY: Final[Any] = {"tools": [TOOL["name"]], "metadata": LABELS, "uploads": [list(UPLOAD[:2])]}
RUN: Final = every_event_run(_INPUT_SUMMARY, ANSWERS[LOGIN.message.text])
"""All events of the agent's run, after all of its questions were answered."""


def _probed(feature: Feature) -> Extract:
    return lambda events: PROBES[feature].extract([hashed(event) for event in events])


def _unnumbered(feature: Feature) -> Extract:
    """Return a function that extracts the values of a feature, without the number of the message that contains each."""
    return lambda events: [each[1:] for each in PROBES[feature].extract(events)]


def _text(events: Sequence[Event]) -> Any:
    """Return how many times the text of the agent occurs. Refusals and data that a protocol shows as text may surround
    it."""
    return "".join(PROBES[Feature.TEXT].extract(events)).count("One twö three.")


def _pieces(events: Sequence[Event]) -> Any:
    """Return the pieces of each text part that arrives in several pieces."""
    messages: dict[str | None, list[list[str]]] = {}
    for event in events:
        if isinstance(event, PartAdded):
            texts = [event.part.text] if isinstance(event.part, TextPart) and event.part.text else []
            messages.setdefault(event.message_id, []).append(texts)
        elif isinstance(event, PartDelta):
            messages[event.message_id][-1 if event.index is None else event.index].append(event.text)
    return [pieces for parts in messages.values() for pieces in parts if "twö " in pieces]


def _data(events: Sequence[Event]) -> Any:
    """Return the data except the agent's input."""
    values = _unnumbered(Feature.DATA)(events)
    return [each for each in values if not (isinstance(each[-1], dict) and "uploads" in each[-1])]


def _input_member(name: str) -> Extract:
    """Return a function that extracts the member `name` of the agent's input. The agent emits its input first, as
    data."""

    def extract(events: Sequence[Event]) -> Any:
        parts = [event.part for event in events if isinstance(event, PartAdded)]
        data = [part.data for part in parts if isinstance(part, DataPart)]
        return next((each[name] for each in data if isinstance(each, dict) and name in each), None)

    return extract


def _metadata(events: Sequence[Event]) -> Any:
    return PROBES[Feature.METADATA].extract(events), _input_member("metadata")(events)


def _states(events: Sequence[Event]) -> Any:
    """Return the states, without repetitions of unchanged ones."""
    return [values for values, _ in groupby(PROBES[Feature.STATE].extract(events))]


def _output(events: Sequence[Event]) -> Any:
    """Return True if the structured output arrives at the end of the run. An agent that keeps a state may have it there
    instead."""
    found = [event.output for event in events if isinstance(event, RunEnded)]
    states = [event.values for event in events if isinstance(event, StateSaved)]
    return OUTPUT in found or any(OUTPUT.items() <= (values or {}).items() for values in states)


def _question_members(*names: str) -> Extract:
    """Return a function that extracts the members `names` of each question, by the text of the question. A repeated
    question counts once."""

    def extract(events: Sequence[Event]) -> Any:
        raised = [event for event in events if isinstance(event, InterruptRaised)]
        return {each.message.text: [getattr(each, name) for name in names] for each in raised}

    return extract


def _auth(events: Sequence[Event]) -> Any:
    return {text for text, ask in _question_members("ask")(events).items() if ask == ["auth"]}


EXTRACTS: Final[Mapping[Feature, Extract]] = {
    **{
        feature: _probed(feature)
        for feature in (
            *(Feature.FILE_BYTES, Feature.FILE_URL, Feature.TOOL_ACTIVITY, Feature.STEP, Feature.PROGRESS),
            *(Feature.ARTIFACT, Feature.ARTIFACT_APPEND, Feature.USAGE, Feature.CUSTOM),
        )
    },
    Feature.STATE: _states,
    Feature.STRUCTURED_OUTPUT: _output,
    **{feature: _unnumbered(feature) for feature in (Feature.REASONING, Feature.REFUSAL, Feature.CITATION)},
    Feature.TEXT: _text,
    Feature.DATA: _data,
    Feature.STREAM: _pieces,
    Feature.QUESTION: _question_members("value"),
    Feature.QUESTIONS: _question_members(),
    Feature.ANSWER_SCHEMA: _question_members("answer_schema"),
    Feature.AUTH_REQUEST: _auth,
    Feature.CALLER_TOOLS: _input_member("tools"),
    Feature.UPLOAD: _input_member("uploads"),
    Feature.METADATA: _metadata,
}
"""Function that extracts the values of a feature from events, for each feature that the agent shows."""


async def logged(house: House, caller: Extended, received: Records) -> Mapping[int, Any]:
    """Return the part of the log that corresponds to the caller's records."""
    reads = house.front.hub.reads
    task = await reads.task(OWNER, received.ids.task)
    scope = Scope(task.thread_id, "run", received.ids.run) if caller.of_run else Scope.task(task)
    found: dict[int, Any] = {}
    async with aclosing(reads.log(OWNER, scope, max(received.after or 0, task.first_seq - 1))) as batches:
        async for records in batches:
            found |= {record.seq: _wire_of(record) for record in records}
    ends = [seq for seq, record in found.items() if record["event"]["kind"] == caller.ends]
    return {seq: record for seq, record in found.items() if seq <= ends[-1]}


def _wire_of(record: Record) -> Any:
    event = record.event
    if isinstance(event, RunCreated):  # callers see neither the key nor the subject of one another
        record = msgspec.structs.replace(record, event=event.replace(key_id="", subject=""))
    return msgspec.json.decode(msgspec.json.encode(record))

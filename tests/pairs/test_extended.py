"""Callers that ask for the extension, with every kind of agent: the records that they are told are those of the log,
and say what the agent said."""

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
    RunEnded,
    StateSaved,
)
from docs.pairing import EXTENDED_AGENTS, EXTENDED_SERVERS, cell
from tests.fidelity.probe import PROBES
from tests.pairs.extended import EXTENDED, LABELS, TOOL, UPLOAD, Extended, Records, saying
from tests.pairs.house import HOUSES, OWNER, House
from tests.pairs.whole import LOGIN, NAME, OUTPUT, exact, hashed, whole_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

Told = Callable[[Sequence[Event]], Any]

WHOLE: Final = [name for name, kind in HOUSES.items() if kind.cast is None and name != "graph"]
"""The kinds of agents that can say all of it."""
ANSWERS: Final = {"What is your name?": "Ada", "May I write?": {"approved": True}, "Who are you?": "me"}


def by_each(houses: Sequence[str], agent: str, *, where: Callable[[type[Extended]], bool] = lambda _: True) -> Any:
    cells = [
        pytest.param(name, (caller, agent), id=f"{caller.name}-{name}")
        for name in houses
        for caller in EXTENDED
        if where(caller)
    ]
    return pytest.mark.parametrize(("house", "caller"), cells, indirect=True)


@by_each(WHOLE, NAME)
async def test_what_arrives_is_in_the_log_and_is_what_the_agent_said(house: House, caller: Extended) -> None:
    task = await caller.send("go", saying())
    assert await logged(house, caller, task) == task.told
    while task.open:
        values = {each.interrupt_id or "": ANSWERS[each.message.text] for each in task.open}
        answered = await caller.answer(task, values)
        assert await logged(house, caller, answered) == answered.told
        task.join(answered)
        if caller.looks:
            task.join(await caller.look(answered))
    wrong = {
        feature: (came, said)
        for feature, told in TOLD.items()
        if (came := told(task.events)) != (said := told(WHOLE_RUN))
        and cell(house.kind.side, EXTENDED_SERVERS[caller.speaks], feature).level == "full"
    }
    assert wrong == {}
    if house.kind.agent in EXTENDED_AGENTS:
        assert exact(task.events) == exact(WHOLE_RUN)


@by_each([*WHOLE, "graph"], "fail")
async def test_a_fault_is_told_by_the_record_that_ends_the_run(house: House, caller: Extended) -> None:
    task = await caller.send("on purpose", {})
    assert await logged(house, caller, task) == task.told
    [fault] = [event.fault for event in task.events if isinstance(event, RunEnded)]
    assert fault is not None
    assert fault.code is FaultCode.AGENT_FAILED
    assert "on purpose" in fault.message


@by_each(
    ["python", "cluster"],
    NAME,
    where=lambda each: EXTENDED_SERVERS[each.speaks].carries[Feature.REATTACH].level == "full",
)
async def test_what_came_after_any_record_is_told_again_to_who_comes_back(house: House, caller: Extended) -> None:
    task = await caller.send("go", saying())
    for seq in (*list(task.told)[:-1:7], list(task.told)[-2]):
        again = await caller.come_back(task, seq)
        had = {
            number for number in again.told if number <= seq
        }  # A2A's first event may have the one that it stands for
        assert len(had) <= 1
        assert {number: record for number, record in again.told.items() if number > seq} == {
            number: record for number, record in task.told.items() if number > seq
        }


_GIVEN: Final[Any] = {"tools": [TOOL["name"]], "metadata": LABELS, "uploads": [list(UPLOAD[:2])]}
WHOLE_RUN: Final = whole_run(_GIVEN, ANSWERS[LOGIN.message.text])
"""What the agent has said when all its questions are answered."""


def _probed(feature: Feature) -> Told:
    return lambda events: PROBES[feature].told([hashed(event) for event in events])


def _unnumbered(feature: Feature) -> Told:
    """Whatever the number of the message that it is in."""
    return lambda events: [each[1:] for each in PROBES[feature].told(events)]


def _text(events: Sequence[Event]) -> Any:
    """How often it was said. Where refusals and data are shown as text, there is more of that."""
    return "".join(PROBES[Feature.TEXT].told(events)).count("One twö three.")


def _pieces(events: Sequence[Event]) -> Any:
    """In which the text came that comes in several."""
    messages: dict[str | None, list[list[str]]] = {}
    for event in events:
        if isinstance(event, PartAdded):
            said = [event.part.text] if isinstance(event.part, TextPart) and event.part.text else []
            messages.setdefault(event.message_id, []).append(said)
        elif isinstance(event, PartDelta):
            messages[event.message_id][-1 if event.index is None else event.index].append(event.text)
    return [pieces for parts in messages.values() for pieces in parts if "twö " in pieces]


def _data(events: Sequence[Event]) -> Any:
    """Without what the agent was given."""
    told = _unnumbered(Feature.DATA)(events)
    return [each for each in told if not (isinstance(each[-1], dict) and "uploads" in each[-1])]


def _heard(name: str) -> Told:
    """What the agent was given, which it says first."""

    def told(events: Sequence[Event]) -> Any:
        parts = [event.part for event in events if isinstance(event, PartAdded)]
        data = [part.data for part in parts if isinstance(part, DataPart)]
        return next((each[name] for each in data if isinstance(each, dict) and name in each), None)

    return told


def _metadata(events: Sequence[Event]) -> Any:
    return PROBES[Feature.METADATA].told(events), _heard("metadata")(events)


def _states(events: Sequence[Event]) -> Any:
    """One that is told again, as it was, is none of its own."""
    return [values for values, _ in groupby(PROBES[Feature.STATE].told(events))]


def _output(events: Sequence[Event]) -> Any:
    """Of an agent that keeps a state, it is in that, too."""
    found = [event.output for event in events if isinstance(event, RunEnded)]
    states = [event.values for event in events if isinstance(event, StateSaved)]
    return OUTPUT in found or any(OUTPUT.items() <= (values or {}).items() for values in states)


def _asked(*names: str) -> Told:
    """By the words of each question, so that one that is asked again is one."""

    def told(events: Sequence[Event]) -> Any:
        raised = [event for event in events if isinstance(event, InterruptRaised)]
        return {each.message.text: [getattr(each, name) for name in names] for each in raised}

    return told


def _auth(events: Sequence[Event]) -> Any:
    return {text for text, ask in _asked("ask")(events).items() if ask == ["auth"]}


TOLD: Final[Mapping[Feature, Told]] = {
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
    Feature.QUESTION: _asked("value"),
    Feature.QUESTIONS: _asked(),
    Feature.ANSWER_SCHEMA: _asked("answer_schema"),
    Feature.AUTH_REQUEST: _auth,
    Feature.CALLER_TOOLS: _heard("tools"),
    Feature.UPLOAD: _heard("uploads"),
    Feature.METADATA: _metadata,
}
"""What is compared of each feature that the agent shows."""


async def logged(house: House, caller: Extended, told: Records) -> Mapping[int, Any]:
    """What the log has where the caller was told something."""
    reads = house.front.hub.reads
    task = await reads.task(OWNER, told.ids.task)
    scope = Scope(task.thread_id, "run", told.ids.run) if caller.of_run else Scope.task(task)
    found: dict[int, Any] = {}
    async with aclosing(reads.log(OWNER, scope, max(told.after or 0, task.first_seq - 1))) as batches:
        async for records in batches:
            found |= {record.seq: _wire_of(record) for record in records}
    ends = [seq for seq, record in found.items() if record["event"]["kind"] == caller.ends]
    return {seq: record for seq, record in found.items() if seq <= ends[-1]}


def _wire_of(record: Record) -> Any:
    return msgspec.json.decode(msgspec.json.encode(record))

"""Hypothesis strategies for all canonical values: parts, messages, and whole logs as random walks through the tables of
legal successors.

`records()` is the log of one task as the hub writes it; `features` limits it to what a protocol carries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import assume
from hypothesis import strategies as st

from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.message import Phase, Role
from babelgate.canonical.value import Json, JsonObject

EVERYTHING = frozenset(Feature)
T0 = 1_760_000_000_000_000
"""Time of the first record, in microseconds."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


@cache
def texts(*, min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[str]:
    """Draw any valid text, without lone surrogates."""
    return st.text(st.characters(codec="utf-8"), min_size=min_size, max_size=max_size)


@cache
def names() -> st.SearchStrategy[str]:
    return st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=8)


def ids() -> st.SearchStrategy[str]:
    return st.uuids(version=4).map(str)


def blobs() -> st.SearchStrategy[str]:
    return st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")


@cache
def json_values(max_leaves: int = 4) -> st.SearchStrategy[Json]:
    """Draw JSON that every JSON library reads back: finite floats, integers below 2**53, no lone surrogates."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts()
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(max_size=6), inner, max_size=3),
        max_leaves=max_leaves,
    )


@cache
def json_objects() -> st.SearchStrategy[JsonObject]:
    return st.dictionaries(texts(max_size=6), json_values(), max_size=2)


@cache
def faults() -> st.SearchStrategy[Fault]:
    codes = (FaultCode.AGENT_FAILED, FaultCode.AGENT_INVALID, FaultCode.AGENT_UNREACHABLE, FaultCode.GATEWAY_RESTARTED)
    return st.builds(Fault, code=st.sampled_from(codes), message=texts())


@cache
def files(features: frozenset[Feature] = EVERYTHING) -> st.SearchStrategy[FilePart]:
    """Draw files as the log holds them: by the hash of their bytes, or by URL."""
    media = st.sampled_from(("text/plain", "application/pdf", "image/png", "application/octet-stream"))
    kinds: list[st.SearchStrategy[FilePart]] = []
    if Feature.FILE_BYTES in features:
        size = st.integers(0, 10_000)
        kinds.append(st.builds(FilePart, name=st.none() | names(), blob=blobs(), size=size, media_type=media))
    if Feature.FILE_URL in features:
        url = names().map(lambda name: f"https://files.example.com/{name}")
        kinds.append(st.builds(FilePart, name=st.none() | names(), url=url, media_type=media))
    return st.one_of(kinds)


@cache
def parts(features: frozenset[Feature] = EVERYTHING, *, role: Role = "agent") -> st.SearchStrategy[Part]:
    """Draw whole parts of one message of `role`, of the kinds that `features` names."""
    kinds: list[st.SearchStrategy[Part]] = []
    if Feature.TEXT in features:
        kinds.append(st.builds(TextPart, text=texts()))
    if Feature.DATA in features:
        kinds.append(st.builds(DataPart, data=json_objects()))
    if Feature.FILE_BYTES in features or Feature.FILE_URL in features:
        kinds.append(files(features))
    if role == "agent":
        if Feature.REASONING in features:
            kinds.append(st.builds(ReasoningPart, text=texts()))
        if Feature.REFUSAL in features:
            kinds.append(st.builds(RefusalPart, text=texts()))
        if Feature.CITATION in features:
            kinds.append(_annotations())
        if Feature.TOOL_ACTIVITY in features:
            kinds.append(st.builds(ToolCallPart, call_id=ids(), name=names(), arguments=st.just('{"a": 1}')))
            kinds.append(st.builds(ToolResultPart, call_id=ids(), output=json_values(), error=st.booleans()))
    return st.one_of(kinds)


def _annotations() -> st.SearchStrategy[AnnotationPart]:
    return st.builds(
        AnnotationPart,
        start=st.none() | st.integers(0, 50),
        end=st.none() | st.integers(50, 100),
        url=names().map(lambda name: f"https://example.com/{name}"),
        title=st.none() | texts(),
    )


@cache
def messages(
    features: frozenset[Feature] = EVERYTHING,
    *,
    role: Role = "user",
    phase: Phase = "answer",
    min_parts: int = 1,
    with_id: bool = True,
) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        message_id=ids() if with_id else st.none(),
        role=st.just(role),
        phase=st.just(phase),
        parts=st.lists(parts(features, role=role), min_size=min_parts, max_size=3).map(tuple),
        metadata=json_objects() if Feature.METADATA in features else st.just({}),
    )


@dataclass
class _Run:
    """Output of one activation of an agent, drawn step by step.

    At most one message and one part are open at a time; steps and tool calls may overlap them.
    """

    draw: Draw
    features: frozenset[Feature]
    new_id: Callable[[], str]
    say: Callable[[Event], None]
    node: str = ""
    message: str | None = None
    index: int = 0
    part_open: bool = False
    tool: ToolStarted | None = None
    step: StepStarted | None = None
    artifact: ArtifactAdded | None = None

    def has(self, *features: Feature) -> bool:
        return all(feature in self.features for feature in features)

    def walk(self, length: int) -> None:
        for _ in range(length):
            moves = self.moves()
            self.draw(st.sampled_from(moves))()

    def moves(self) -> list[Callable[[], None]]:
        moves: list[Callable[[], None]] = []
        if self.message is None:
            moves += [self.open_message, self.open_message, self.open_message, self.whole_message]
            if self.has(Feature.PROGRESS):
                moves.append(self.progress)
        elif self.part_open:
            moves += [self.delta, self.delta, self.delta, self.end_part]
        else:
            moves += [self.whole_part, self.end_message]
            if self.has(Feature.TEXT):
                moves += [self.open_part, self.open_part, self.open_part]
        if self.has(Feature.TOOL_ACTIVITY):
            moves.append(self.start_tool if self.tool is None else self.end_tool)
        if self.has(Feature.STEP):
            moves.append(self.start_step if self.step is None else self.end_step)
        if self.has(Feature.ARTIFACT):
            moves.append(self.add_artifact if self.artifact is None else self.append_artifact)
        if self.has(Feature.STATE):
            moves.append(self.save_state)
        if self.has(Feature.CUSTOM):
            moves.append(self.custom)
        return moves

    def open_message(self, phase: Phase = "answer") -> None:
        self.message, self.index = self.new_id(), 0
        metadata: JsonObject = self.draw(json_objects()) if self.has(Feature.METADATA) else {}
        self.say(MessageStarted(message_id=self.message, phase=phase, node=self.node, metadata=metadata))

    def whole_message(self, phase: Phase = "answer") -> None:
        self.open_message(phase)
        for _ in range(self.draw(st.integers(1, 2))):
            self.whole_part()
        self.end_message()

    def progress(self) -> None:
        self.open_message("progress")
        self.say(PartAdded(message_id=self.message, index=0, part=TextPart(text=self.draw(texts(min_size=1)))))
        self.end_message()

    def whole_part(self) -> None:
        part = self.draw(parts(self.features))
        self.say(PartAdded(message_id=self.message, index=self.index, part=part))
        self.index += 1

    def open_part(self) -> None:
        kinds = [TextPart, TextPart, ReasoningPart] if self.has(Feature.REASONING) else [TextPart]
        part = self.draw(st.sampled_from(kinds))(text=self.draw(texts()))
        self.say(PartAdded(message_id=self.message, index=self.index, part=part, open=True))
        self.part_open = True

    def delta(self) -> None:
        self.say(PartDelta(message_id=self.message, index=self.index, text=self.draw(texts(min_size=1))))

    def end_part(self) -> None:
        self.say(PartEnded(message_id=self.message, index=self.index))
        self.part_open = False
        self.index += 1

    def end_message(self) -> None:
        usage: JsonObject = {"input_tokens": 1, "output_tokens": 2} if self.has(Feature.USAGE) else {}
        self.say(MessageEnded(message_id=self.message, usage=self.draw(st.sampled_from(({}, usage)))))
        self.message = None

    def start_tool(self) -> None:
        self.tool = ToolStarted(call_id=self.new_id(), name=self.draw(names()), input=self.draw(json_objects()))
        self.say(self.tool)

    def end_tool(self) -> None:
        assert self.tool is not None
        fault = self.draw(st.none() | faults())
        output = None if fault else self.draw(json_values())
        self.say(ToolEnded(call_id=self.tool.call_id, name=self.tool.name, output=output, fault=fault))
        self.tool = None

    def start_step(self) -> None:
        self.step = StepStarted(
            step_id=self.new_id(), name=self.draw(names()), node=self.node, input=self.draw(json_values())
        )
        self.say(self.step)

    def end_step(self) -> None:
        assert self.step is not None
        update = self.draw(st.none() | json_objects())
        self.say(StepEnded(step_id=self.step.step_id, name=self.step.name, node=self.node, update=update))
        self.step = None

    def add_artifact(self) -> None:
        more = self.has(Feature.ARTIFACT_APPEND) and self.draw(st.booleans())
        added = ArtifactAdded(
            artifact_id=self.new_id(),
            name=self.draw(names()),
            description=self.draw(st.none() | texts()),
            part=self.draw(self._artifact_parts()),
            last=not more,
        )
        self.say(added)
        self.artifact = added if more else None

    def append_artifact(self) -> None:
        assert self.artifact is not None
        last = self.draw(st.booleans())
        piece = {"part": self.draw(self._artifact_parts()), "append": True, "last": last}
        self.say(self.artifact.replace(**piece))
        self.artifact = None if last else self.artifact

    def _artifact_parts(self) -> st.SearchStrategy[Part]:
        kinds = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_BYTES, Feature.FILE_URL})
        return parts((kinds & self.features) or frozenset({Feature.TEXT}))

    def save_state(self) -> None:
        self.say(StateSaved(checkpoint_id=self.new_id(), delta=self.draw(json_objects())))

    def custom(self) -> None:
        self.say(Custom(name=self.draw(names()), value=self.draw(json_values())))

    def close(self) -> None:
        """Close everything that the agent left open, as the hub does."""
        if self.part_open:
            self.end_part()
        if self.message is not None:
            self.end_message()
        if self.tool is not None:
            self.end_tool()
        if self.step is not None:
            self.end_step()
        if self.artifact is not None:
            self.say(
                self.artifact.replace(part=TextPart(text=""), append=True, last=True),
            )
            self.artifact = None


def _numbered(draw: Draw) -> Callable[[], str]:
    """Draw fresh UUIDs: one draw for all of them, so that shrinking stays fast."""
    base: int = draw(st.integers(0, 2**100)) << 16
    count = [0]

    def new_id() -> str:
        count[0] += 1
        return str(UUID(int=(base + count[0]) % 2**128, version=4))

    return new_id


@st.composite
def agent_events(draw: Draw, features: frozenset[Feature] = EVERYTHING, *, max_length: int = 8) -> list[Event]:
    """Draw the output of an agent in one legal run, closed and with all ids, without `RunEnded`."""
    events: list[Event] = []
    run = _Run(draw, features, _numbered(draw), events.append)
    run.walk(draw(st.integers(0, max_length)))
    run.close()
    return events


@dataclass
class _Log:
    """Log of one task, drawn as the hub writes it."""

    draw: Draw
    features: frozenset[Feature]
    agent: str
    max_length: int
    new_id: Callable[[], str]
    task_id: str = ""
    at: int = T0
    run_id: str | None = None
    attempt: int = 0
    records: list[Record] = field(default_factory=list[Record])
    open: list[InterruptRaised] = field(default_factory=list[InterruptRaised])

    def add(self, event: Event, *, task: bool = True, run: bool = True) -> None:
        self.at += self.draw(st.sampled_from((0, 1, 999, 1_500_000)))
        attempt = self.attempt if run and self.run_id is not None else 0
        record = Record(
            seq=len(self.records) + 1,
            at=self.at,
            task_id=self.task_id if task else None,
            run_id=self.run_id if run else None,
            attempt=attempt,
            event=event,
        )
        self.records.append(record)

    def become(self, state: TaskState, fault: Fault | None = None) -> None:
        self.add(TaskChanged(state=state, fault=fault), run=False)

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    def complete_log(self, questions: int) -> list[Record]:
        metadata: JsonObject = self.draw(json_objects()) if self.has(Feature.METADATA) else {}
        self.add(ThreadChanged(metadata=metadata), task=False)
        self.task_id = self.new_id()
        self.add(TaskCreated(task_id=self.task_id, agent=self.agent, metadata=metadata), run=False)
        self.create()
        if self.has(Feature.CANCEL) and self.draw(st.integers(0, 15)) == 15:
            self.cancel()
            return self.records
        self.start()
        self.become(TaskState.WORKING)
        while self.activation(questions) and self.answers():
            questions -= 1
        return self.records

    def create(self) -> None:
        some_messages = st.lists(messages(self.features), min_size=1, max_size=2)
        self.run_id, self.attempt = self.new_id(), 0
        self.add(RunCreated(run_id=self.run_id, messages=tuple(self.draw(some_messages))))

    def start(self) -> None:
        self.attempt = 1
        self.add(RunStarted(attempt=1, node=self.agent))

    def activation(self, questions: int) -> bool:
        """Add one activation up to its end. Return True if it stopped at questions."""
        run = _Run(self.draw, self.features, self.new_id, self.add, node=self.agent)
        run.walk(self.draw(st.integers(0, self.max_length)))
        if self.draw(st.integers(0, 9)) == 9:
            self.add(LossNoted(feature="custom", how=self.draw(texts())))
        ends = [self.done]
        if questions > 0 and self.has(Feature.QUESTION):
            ends += [self.pause, self.pause]
        if self.has(Feature.FAULT):
            ends.append(self.fail)
        if self.has(Feature.CANCEL):
            ends.append(self.cancel)
        end: Callable[[], None] = self.draw(st.sampled_from(ends))
        if end == self.cancel:
            self.become(TaskState.CANCELLING)
        run.close()
        end()
        return bool(self.open)

    def done(self) -> None:
        structured = self.has(Feature.STRUCTURED_OUTPUT) and self.draw(st.booleans())
        output = self.draw(json_objects()) if structured else None
        usage: JsonObject = {"input_tokens": 3} if self.has(Feature.USAGE) and self.draw(st.booleans()) else {}
        self.add(RunEnded(output=output, usage=usage))
        self.become(TaskState.COMPLETED)

    def fail(self) -> None:
        fault: Fault = self.draw(faults())
        status = self.draw(st.sampled_from((RunStatus.ERROR, RunStatus.ERROR, RunStatus.TIMEOUT)))
        self.add(RunEnded(status=status, reason=RunReason.FAULT, fault=fault))
        self.become(TaskState.FAILED, fault)

    def cancel(self) -> None:
        """End the task as cancelled. Its run has not ended."""
        if self.records[-1].event.kind != "task_changed" and self.attempt == 0:
            self.become(TaskState.CANCELLING)
        self.add(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
        self.become(TaskState.CANCELLED)

    def pause(self) -> None:
        several = self.has(Feature.QUESTIONS) and self.draw(st.booleans())
        for _ in range(2 if several else 1):
            raised = self.question()
            self.open.append(raised)
            self.add(raised)
        self.paused()

    def question(self) -> InterruptRaised:
        kinds = ("input", "approval", "auth") if self.has(Feature.AUTH_REQUEST) else ("input", "approval")
        schema: JsonObject = {"type": "object", "properties": {"approved": {"type": "boolean"}}}
        with_schema = self.has(Feature.ANSWER_SCHEMA) and self.draw(st.booleans())
        text = Message(message_id=self.new_id(), parts=(TextPart(text=self.draw(texts(min_size=1))),))
        return InterruptRaised(
            interrupt_id=self.new_id(),
            ask=self.draw(st.sampled_from(kinds)),
            message=text,
            value=self.draw(json_objects()) if self.has(Feature.DATA) else None,
            answer_schema=schema if with_schema else None,
            node=self.agent,
        )

    def paused(self) -> None:
        auth = all(raised.ask == "auth" for raised in self.open)
        self.add(RunEnded(status=RunStatus.PAUSED, reason=RunReason.AUTH if auth else RunReason.INPUT))
        self.become(TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED)

    def answers(self) -> bool:
        """Answer the open questions, one by one. Return False if the caller cancels or does not answer."""
        while self.open:
            what = self.draw(st.sampled_from(("answer", "answer", "answer", "cancel", "nothing")))
            if what == "nothing":
                return False
            if what == "cancel" and self.has(Feature.CANCEL):
                self.give_up()
                return False
            self.answer(self.open.pop(0))
            if self.open:  # an answer that leaves other questions open is a run without activation
                self.become(TaskState.WORKING)
                self.start()
                self.paused()
        self.become(TaskState.WORKING)
        self.start()
        return True

    def answer(self, raised: InterruptRaised) -> None:
        message: Message = self.draw(messages(frozenset({Feature.TEXT})))
        self.run_id, self.attempt = self.new_id(), 0
        self.add(RunCreated(run_id=self.run_id, cause="answer", messages=(message,)))
        assert raised.interrupt_id is not None
        action = self.draw(st.sampled_from(("answer", "answer", "answer", "decline")))
        value = message.text if action == "answer" else None
        self.add(InterruptAnswered(interrupt_id=raised.interrupt_id, action=action, value=value))

    def give_up(self) -> None:
        self.become(TaskState.CANCELLING)
        for raised in self.open:
            assert raised.interrupt_id is not None
            self.add(InterruptAnswered(interrupt_id=raised.interrupt_id, action="superseded"), run=False)
        self.open.clear()
        self.become(TaskState.CANCELLED)


@st.composite
def records(
    draw: Draw,
    features: frozenset[Feature] = EVERYTHING,
    *,
    agent: str = "echo",
    questions: int = 2,
    max_length: int = 8,
) -> list[Record]:
    """Draw the whole log of a thread with one task, from its first record to the task's end or to an unanswered
    question.

    `questions` limits how often it pauses, `max_length` the output of each activation.
    """
    log = _Log(draw, features, agent, max_length, _numbered(draw))
    return log.complete_log(questions)


_NEUTRAL = UpstreamBound(protocol="test", ids={})
"""Event that no protocol shows."""


def _ends(log: list[Record], run_id: str | None) -> int:
    """Return the position of the end of a run."""
    return max(place for place, record in enumerate(log) if record.run_id == run_id)


@st.composite
def resumed_logs(draw: Draw) -> tuple[list[Record], list[Record]]:
    """Draw a log with a run that was cut off and resumed, and the same log with an invisible event instead of that
    start.
    """
    log: list[Record] = draw(records())
    started = [place for place, record in enumerate(log) if isinstance(record.event, RunStarted)]
    inside = [
        place
        for start in started
        for place in range(start + 1, len(log))
        if log[place].run_id in (log[start].run_id, None) and _ends(log, log[start].run_id) >= place
    ]
    assume(inside)
    cut: int = draw(st.sampled_from(inside))
    run_id = next(log[start].run_id for start in reversed(started) if start < cut)
    attempt = 2
    rest = [
        record.replace(seq=record.seq + 1, attempt=attempt if record.run_id == run_id else record.attempt)
        for record in log[cut:]
    ]
    gap = log[cut].replace(at=log[cut - 1].at, run_id=run_id, attempt=attempt, event=_NEUTRAL)
    start = gap.replace(event=RunStarted(attempt=attempt, node="echo", resumed=True))
    return [*log[:cut], start, *rest], [*log[:cut], gap, *rest]


@st.composite
def started_over(draw: Draw) -> tuple[list[Record], list[Record]]:
    """Draw a log with a run that was cut off and started over, which repeats its output with other ids.

    Draw also the same log with invisible events instead of the void ones.
    """
    log: list[Record] = draw(records())
    started = [place for place, record in enumerate(log) if isinstance(record.event, RunStarted)]
    assume(started)
    start: int = draw(st.sampled_from(started))
    run_id = log[start].run_id
    emitted = [r.event for r in log if r.run_id == run_id and isinstance(r.event, _OUTPUT)]
    cut: int = draw(st.integers(0, len(emitted)))
    void = [*map(_renamed, emitted[:cut]), *map(_renamed, _closings(emitted[:cut]))]
    place = start + 1 + isinstance(log[start + 1].event, TaskChanged)
    after = log[place - 1]
    inserted: list[Event] = [*void, RunStarted(attempt=2, node="echo")]
    numbered = [
        Record(after.seq + number, after.at, log[start].task_id, run_id, 1, event)
        for number, event in enumerate(inserted, start=1)
    ]
    numbered[-1] = numbered[-1].replace(attempt=2)
    rest = [r.replace(seq=r.seq + len(inserted), attempt=2 if r.run_id == run_id else r.attempt) for r in log[place:]]
    neutral = [record.replace(event=_NEUTRAL) for record in numbered]
    return [*log[:place], *numbered, *rest], [*log[:place], *neutral, *rest]


_OUTPUT = (
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    MessageEnded,
    ToolStarted,
    ToolEnded,
    StepStarted,
    StepEnded,
    ArtifactAdded,
)


def _renamed(event: Event) -> Event:
    names = {name: getattr(event, name, None) for name in ("message_id", "call_id", "step_id")}
    return event.replace(**{name: f"void-{value}" for name, value in names.items() if value is not None})


def _closings(events: Sequence[Event]) -> list[Event]:
    """Return the events that close everything left open by these events."""
    parts: dict[tuple[str | None, int | None], Event] = {}
    others: dict[tuple[str, str | None], Event] = {}
    for event in events:
        match event:
            case PartAdded() if event.open:
                parts[event.message_id, event.index] = PartEnded(message_id=event.message_id, index=event.index)
            case PartEnded():
                del parts[event.message_id, event.index]
            case MessageStarted():
                others["message", event.message_id] = MessageEnded(message_id=event.message_id)
            case MessageEnded():
                del others["message", event.message_id]
            case ToolStarted():
                others["tool", event.call_id] = ToolEnded(call_id=event.call_id, name=event.name)
            case ToolEnded():
                del others["tool", event.call_id]
            case StepStarted():
                others["step", event.step_id] = StepEnded(step_id=event.step_id, name=event.name)
            case StepEnded():
                del others["step", event.step_id]
            case _:
                pass
    return [*parts.values(), *others.values()]

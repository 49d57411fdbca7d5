"""The replies of an A2A server → canonical events.

Servers say the same thing in several ways: piece by piece, and whole in the task that they show at the beginning, when
asked, or instead of a stream. So the reader keeps account of what it has told of each artifact, and tells what is new.
The account is made of the events themselves: read from the log, they make the same one for the task's next run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from adapters.a2a.codec.dialect import DataRule
from adapters.a2a.codec.names import to_snake_case
from adapters.a2a.read.artifacts import ArtifactTracker, Piece, is_file, rest
from adapters.a2a.read.parts import DecodedParts, as_extra, decode_parts, decode_reply, decode_state
from adapters.a2a.read.questions import Question, decode_interrupts, in_words, questions
from adapters.a2a.wire import replies as w
from adapters.a2a.wire.task import PROTOCOL, REPLY, derived_id
from canonical import (
    BLAME,
    Event,
    Fault,
    FaultCode,
    Part,
    Record,
    RefusalPart,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
)
from canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    UpstreamBound,
)
from canonical.message import Phase
from canonical.state import TERMINAL, WAITING
from canonical.value import Extra, Json, JsonObject

_INTERRUPT: Final = "Interrupt"
"""The artifact in which langgraph-api 0.16.7 puts what it asks."""
_UNKNOWN_EVENT: Final = "an event of a form that A2A does not have"
_UNKNOWN_PART: Final = "a part of a form that A2A does not have"
_SAID_ANEW: Final = "an answer that was replaced stays said, and is said again"


class EventReader:
    """Of one run. `rule` = how data is wrapped in what is read."""

    def __init__(self, run_id: str, *, rule: DataRule = "any") -> None:
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: TaskState | None = None
        """Of the task, as it was last read."""
        self.begun = False
        """Anything was read."""
        self.stopped = False
        """The task asks or has ended, or there is none and the server has answered."""
        self.replied = False
        """The server answered with a message instead of a task."""
        self._run_id = run_id
        self.rule: DataRule = rule
        self._events: list[Event] = []
        self._bound: dict[str, str] = {}
        self._accounts: dict[str, ArtifactTracker] = {}
        self._messages = 0
        """Begun in this run."""
        self._answered = False
        """It gave an answer."""
        self._answers: set[str] = set()
        """Texts of answers that were no artifacts."""
        self._remarks: set[str] = set()
        """Ids of the status messages that were told."""
        self._asked_before = False
        self._marks: set[str] = set()
        """Times and message ids of questions that were asked before."""
        self._asked: set[str] = set()
        """The server's ids of questions."""
        self._held: list[Question] = []
        self._losses: set[tuple[str, str]] = set()

    # What was told before

    def recall(self, past: Iterable[Record]) -> None:
        """Take up the account from the records of the task."""
        said: dict[str, ArtifactTracker] = {}
        for record in past:
            mine, event = record.run_id == self._run_id, record.event
            match event:
                case MessageStarted():
                    self._messages += mine
                    self._recall_message(event, said, mine=mine)
                case PartAdded() | PartDelta() | PartEnded() | MessageEnded():
                    account = said.get(event.message_id or "")
                    if account is not None:
                        _recall_part(event, account)
                case ArtifactAdded():
                    self._recall_artifact(event, mine=mine)
                case InterruptRaised():
                    self._recall_question(event, mine=mine)
                case UpstreamBound() if mine:
                    self._bound |= event.ids
                case LossNoted() if mine:
                    self._losses.add((event.feature, event.how))
                case _:
                    pass

    def _recall_message(self, event: MessageStarted, said: dict[str, ArtifactTracker], *, mine: bool) -> None:
        own = _own(event.extra)
        if "artifactId" in own:
            account = self._accounts.setdefault(own["artifactId"], ArtifactTracker(own["artifactId"], file=False))
            account.message_id, account.open = (event.message_id if mine else None), False
            said[event.message_id or ""] = account
        elif event.role == "agent" and "messageId" in own:
            self._remarks.add(own["messageId"])
        self._answered = self._answered or (mine and event.role == "agent" and event.phase == "answer")

    def _recall_artifact(self, event: ArtifactAdded, *, mine: bool) -> None:
        own = _own(event.extra)
        if "artifactId" in own:
            account = self._accounts.setdefault(own["artifactId"], ArtifactTracker(own["artifactId"], file=True))
            if not event.append:
                account.units.clear()
            account.added = account.added or mine
            account.add(event.part)

    def _recall_question(self, event: InterruptRaised, *, mine: bool) -> None:
        own = _own(event.extra)
        self._asked_before = True
        self._marks |= {own[name] for name in ("messageId", "timestamp") if name in own}
        self._asked |= {own[name] for name in ("id",) if name in own}
        self.stopped = self.stopped or mine

    # What is told now

    def bind(self, task_id: str | None, context_id: str | None) -> list[Event]:
        """Tell the server's ids as soon as they are known, and again only when there are more of them."""
        self._events = []
        self._bind(task_id, context_id)
        return self._events

    def _bind(self, task_id: str | None, context_id: str | None) -> None:
        ids = {name: value for name, value in (("task", task_id), ("context", context_id)) if value}
        self.task_id, self.context_id = task_id or self.task_id, context_id or self.context_id
        if not ids.items() <= self._bound.items():
            self._bound |= ids
            self._events.append(UpstreamBound(protocol=PROTOCOL, ids=dict(self._bound)))

    def note(self, feature: str, how: str) -> list[Event]:
        """Tell of a loss, once."""
        self._events = []
        self._lose(feature, how)
        return self._events

    def _lose(self, feature: str, how: str) -> None:
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self._events.append(LossNoted(feature=feature, how=how))

    def read(self, value: Json) -> list[Event]:
        """Raises invalid where the reply breaks the protocol."""
        self._events = []
        reply = decode_reply(value)
        match reply:
            case w.Task():
                self._task(reply)
            case w.TaskStatusUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                self._status(reply.status, reply.metadata)
            case w.TaskArtifactUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                piece = Piece(reply.lastChunk is True)
                self._artifact(reply.artifact, append=reply.append is True, last=reply.lastChunk, piece=piece)
            case w.Message():
                self._message(reply)
            case None:
                self._unknown(value)
        self.begun = True
        return self._events

    def _unknown(self, value: Json) -> None:
        if value in (None, {}):
            return
        self._lose("custom", _UNKNOWN_EVENT)
        kind = value.get("kind") if isinstance(value, dict) else None
        self._events.append(Native(protocol=PROTOCOL, event=kind if isinstance(kind, str) else "", data=value))

    def _task(self, task: w.Task) -> None:
        if self.task_id is not None and task.id != self.task_id:
            self._finish()
            self._accounts.clear()  # another task's artifacts may have the same names
        self._bind(task.id, task.contextId)
        # `lastChunk` is said of updates and not of artifacts: in a task its end says that nothing follows.
        ended = task.status is not None and decode_state(task.status.state) in TERMINAL
        for artifact in task.artifacts or ():
            self._artifact(artifact, append=False, last=True if ended else None)
        self._from_history(task)
        if task.status is not None:
            self._status(task.status, task.metadata, task)

    # Messages

    def _start(self, phase: Phase, metadata: JsonObject | None, extra: JsonObject) -> str:
        self._messages += 1
        self._answered = self._answered or phase == "answer"
        message_id = derived_id(self._run_id, "said", str(self._messages))
        self._events.append(MessageStarted(message_id=message_id, phase=phase, metadata=metadata or {}, extra=extra))
        return message_id

    def _whole(
        self, parts: Sequence[Part], phase: Phase, message: w.Message | None = None, *, reply: bool = False
    ) -> None:
        message = message or w.Message()
        own = as_extra(message, messageId=message.messageId)
        message_id = self._start(phase, message.metadata, {**own, REPLY: {}} if reply else own)
        self._events += [PartAdded(message_id=message_id, part=part) for part in parts]
        self._events.append(MessageEnded(message_id=message_id))
        if phase == "answer":
            self._answers.add(DecodedParts(tuple(parts)).text)

    def _read_parts(self, message: w.Message | w.Artifact | None) -> DecodedParts:
        heard = decode_parts(message.parts if message else None, self.rule)
        if heard.unknown:
            self._lose("custom", _UNKNOWN_PART)
        return heard

    def _message(self, message: w.Message) -> None:
        """The server's whole answer, where it makes no task of it (specification 1.0, 3.1.2)."""
        self._bind(self.task_id, self.context_id or message.contextId)
        if _is_callers(message):
            return
        self._whole(self._read_parts(message).parts, "answer", message, reply=self.task_id is None)
        self.replied = True
        self.stopped = self.stopped or self.task_id is None

    def _remark(self, message: w.Message, heard: DecodedParts) -> None:
        # a2a-sdk 0.3.26 and 1.3.0 move the message of a status into the history when the next status comes.
        if message.messageId in self._remarks or not heard.parts:
            return
        if message.messageId:
            self._remarks.add(message.messageId)
        self._whole(heard.parts, "progress", message)

    # Status

    def _status(self, status: w.TaskStatus, metadata: JsonObject | None, task: w.Task | None = None) -> None:
        """`task`: it came with the whole task, which may be older than what was said to it last."""
        self.state = decode_state(status.state)
        heard = self._read_parts(status.message)
        if self.state in TERMINAL:
            self._end_run(status.message, heard, metadata)
        elif self.state not in WAITING:
            if status.message is not None:
                self._remark(status.message, heard)
        elif task is None or not self._is_stale(status):
            self._ask(status, heard, metadata)

    def _is_stale(self, status: w.TaskStatus) -> bool:
        """Whether the task asks what was answered by now: servers show it so until their agent says something, some of
        them without the message."""
        if status.message is not None and status.message.messageId:
            return status.message.messageId in self._marks
        # The timestamp is optional in 1.0, too (`TaskStatus.timestamp`).
        return self._asked_before and (status.timestamp is None or status.timestamp in self._marks)

    def _ask(self, status: w.TaskStatus, heard: DecodedParts, metadata: JsonObject | None) -> None:
        self._finish()
        self._tell_about(metadata)
        asked = questions(heard.parts)
        # langgraph-api 0.16.7: the questions come in an artifact, and the status that stops for them names none.
        if self._held and asked[0].id is None:
            first, *others = self._held
            held = [Question(asked[0].parts or in_words(first.value), first.id, first.value, first.schema)]
            asked = held + [Question(in_words(each.value), each.id, each.value, each.schema) for each in others]
        self._held = []
        self._events += decode_interrupts(status, asked, auth=self.state is TaskState.AUTH_REQUIRED)
        self.stopped = True

    def _end_run(self, message: w.Message | None, heard: DecodedParts, metadata: JsonObject | None) -> None:
        self._finish()
        self.stopped = True
        if self._held:  # questions that the server did not stop for after all
            self._whole([part for each in self._held for part in in_words(each.value)], "answer")
        if self.state in (TaskState.FAILED, TaskState.REJECTED):
            self._tell_about(metadata)
            fault = _fault(message, heard, rejected=self.state is TaskState.REJECTED)
            self._events.append(RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault))
            return
        if message is not None and heard.parts:
            self._last_words(message, heard)
        usage = self._tell_about(metadata)
        if self.state is TaskState.CANCELLED:
            self._events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=usage))
        elif usage:
            self._events.append(RunEnded(usage=usage))

    def _last_words(self, message: w.Message, heard: DecodedParts) -> None:
        """Many servers answer in the message of the last status. Where there was an answer before, it is a remark, or
        the same again."""
        if message.messageId in self._remarks:
            return
        if self.state is TaskState.COMPLETED and not self._answered:
            self._whole(heard.parts, "answer", message)
        elif not heard.text or heard.text not in self._texts():
            self._remark(message, heard)

    def _texts(self) -> set[str]:
        """Of the answers so far."""
        return {*self._answers, *(account.text for account in self._accounts.values())}

    def _from_history(self, task: w.Task) -> None:
        """What the server said while nobody listened, since the caller's last message. Some keep their answer nowhere
        else: then it is the last of it."""
        said: list[w.Message] = []
        for message in task.history or ():
            said = [] if _is_callers(message) else [*said, message]
        status = task.status or w.TaskStatus()
        known: set[str | None] = {*self._remarks, *self._marks}
        if status.message is not None:
            known.add(status.message.messageId)
        news = [(each, self._read_parts(each)) for each in said if each.messageId not in known]
        news = [(each, heard) for each, heard in news if heard.text and heard.text not in self._texts()]
        ended = decode_state(status.state) is TaskState.COMPLETED and status.message is None
        answer = news.pop() if news and ended and not self._answered and not self._accounts else None
        for message, heard in news:
            if message.messageId:  # without an id nobody could tell that it was told
                self._remark(message, heard)
        if answer is not None:
            self._whole(answer[1].parts, "answer", answer[0])

    def _tell_about(self, metadata: JsonObject | None) -> JsonObject:
        """What a gateway like this one adds: what got lost before it came here, and the usage, which is returned."""
        about = _object((metadata or {}).get("babelgate"))
        for feature, how in _object(about.get("loss")).items():
            if isinstance(how, str):
                self._lose(feature, how)
        return to_snake_case(_object(about.get("usage")))

    # Artifacts

    def _artifact(self, artifact: w.Artifact, *, append: bool, last: bool | None, piece: Piece | None = None) -> None:
        """Without `append` it is all of the artifact, of which some may have been told. `piece`: it came alone, and not
        in a task."""
        heard = self._read_parts(artifact)
        # Nothing to show, although an artifact must have a part (specification 1.0, 4.1.7).
        if not heard.parts or (artifact.name == _INTERRUPT and self._holds(heard.parts)):
            return
        artifact_id = artifact.artifactId or artifact.name or ""
        account = self._accounts.get(artifact_id)
        if account is None:
            account = self._accounts[artifact_id] = ArtifactTracker(artifact_id, file=is_file(artifact, heard.parts))
            piece = None if piece is None else Piece(piece.last, append)
            self._tell(account, artifact, heard.parts, last=last, fresh=True, piece=piece)
            return
        if not append and account.units and not any(map(_says_something, heard.parts)):
            self._take_back(account)
            return
        parts = heard.parts if append else rest(account.units, heard.parts)
        if parts is not None:
            self._tell(account, artifact, parts, last=last, fresh=False, piece=piece)
            return
        account.units.clear()
        account.close(self._events)
        if not account.file:
            self._lose("artifact", _SAID_ANEW)
        self._tell(account, artifact, heard.parts, last=last, fresh=True, piece=piece)

    def _take_back(self, account: ArtifactTracker) -> None:
        """It was replaced by nothing: a gateway like this one does so when its agent starts over."""
        account.units.clear()
        account.close(self._events)
        account.added = False  # a file is replaced by what comes
        self._lose("artifact", _SAID_ANEW)

    def _holds(self, parts: Sequence[Part]) -> bool:
        """Whether these are questions, which are asked when the task stops for them."""
        asked = questions(parts, only_named=True)
        if asked:
            self._held = [each for each in asked if each.id not in self._asked]
        return bool(asked)

    def _tell(
        self,
        account: ArtifactTracker,
        artifact: w.Artifact,
        parts: Sequence[Part],
        *,
        last: bool | None,
        fresh: bool,
        piece: Piece | None,
    ) -> None:
        start = len(self._events)
        if account.file:
            appends = account.added and not fresh
            # An id of the run's: the server's own names are unique within its task only.
            artifact_id = derived_id(self._run_id, "artifact", account.artifact_id)
            account.give(artifact, parts, self._events, artifact_id=artifact_id, last=last, fresh=fresh)
            if piece is not None:
                piece.mark(self._events, start, append=appends)
            return
        begun = account.message_id is None and (fresh or any(_says_something(part) for part in parts))
        if begun:
            name, description = artifact.name, artifact.description
            own = as_extra(artifact, artifactId=account.artifact_id, name=name, description=description)
            account.message_id = self._start("answer", artifact.metadata, own)
        if account.message_id is not None:
            account.say(parts, self._events, begun=begun)
            told = piece is not None and piece.mark(self._events, start, append=not begun)
            account.cut = told or (piece is not None and not last and account.cut)
        if last:
            account.close(self._events)

    def _finish(self) -> None:
        for account in self._accounts.values():
            account.close(self._events)


def _own(extra: Extra) -> Mapping[str, Any]:
    return extra.get(PROTOCOL) or {}


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _recall_part(event: PartAdded | PartDelta | PartEnded | MessageEnded, account: ArtifactTracker) -> None:
    match event:
        case PartAdded():
            account.add(event.part)
            account.open = event.open
        case PartDelta():
            account.units[-1].texts.append(event.text)
        case PartEnded():
            account.open = False
        case MessageEnded():
            account.message_id = None


def _is_callers(message: w.Message) -> bool:
    return (message.role or "").lower().removeprefix("role_") == "user"


def _says_something(part: Part) -> bool:
    return not isinstance(part, TextPart | RefusalPart) or bool(part.text)


def _fault(message: w.Message | None, heard: DecodedParts, *, rejected: bool) -> Fault:
    """In the agent's own words. A gateway like this one names the code of the fault beside them."""
    code = FaultCode.AGENT_FAILED
    named = _object(((message.metadata if message else None) or {}).get("babelgate")).get("fault")
    if isinstance(named, str) and named in BLAME and BLAME[FaultCode(named)] == "upstream":
        code = FaultCode(named)
    words = heard.text or f"The agent {'refused the task' if rejected else 'failed'} and did not say why."
    return Fault(code=code, message=words, details={"rejected": True} if rejected else {})

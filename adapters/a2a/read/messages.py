"""Reading of an agent's messages: answers without a task, the messages of a task's status, and those in its history."""

from collections.abc import Sequence

from babelgate.adapters.a2a.codec.marks import event_id_of
from babelgate.adapters.a2a.frameworks.agentstack import is_trajectory
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.artifact_reader import ArtifactReader
from babelgate.adapters.a2a.read.parts import a2a_members, after_caller, artifacts_of, decode_state, merge_replies
from babelgate.adapters.a2a.read.questions import QuestionTracker
from babelgate.adapters.a2a.read.run_state import RunState
from babelgate.adapters.a2a.read.speech import Speech
from babelgate.adapters.a2a.read.usage import UsageCounter
from babelgate.adapters.a2a.wire import replies as w
from babelgate.canonical import AnnotationPart, ReasoningPart, TaskState, TextPart
from babelgate.canonical.message import text_of
from babelgate.canonical.value import Extra, JsonObject


class MessageReader:
    """Reader of one run's messages. It adds their events to the run. Each message is read once, by its id."""

    def __init__(
        self, run: RunState, speech: Speech, artifacts: ArtifactReader, activity: Activity, usage: UsageCounter
    ) -> None:
        self.read_ids: set[str] = set()
        """Ids of the messages that were read."""
        self._run = run
        self._speech = speech
        self._artifacts = artifacts
        self._activity = activity
        self._usage = usage
        self._held: tuple[w.Message, DecodedContent] | None = None
        """Message of a status, and its content, that the next artifact may repeat. If it does, the artifact is the
        answer."""
        self._replies: list[w.Message] = []
        """Messages that the server has sent without a task. At the end of the stream they become one answer."""

    @property
    def has_replies(self) -> bool:
        """True if the server has sent messages without a task, and the stream has not ended."""
        return bool(self._replies)

    @property
    def usage(self) -> JsonObject:
        """Token usage of the run so far. Empty if the server has reported none."""
        return self._usage.total

    def recall(self, extra: Extra) -> None:
        """Restore the server's id of a message from the `extra` of a recorded event, so that the message is not read
        again."""
        message_id = a2a_members(extra).get("messageId")
        if message_id is not None:
            self.read_ids.add(message_id)

    # The server's message instead of a task (specification 1.0, 3.1.2)

    def read_reply(self, message: w.Message, *, in_task: bool) -> bool:
        """Read a message that is a reply itself: the answer without a task or, if `in_task`, an answer next to the
        task.

        Return False if the message is not the answer: a thought, progress, or a piece of an answer. agno 3.1.10 streams
        pieces in messages with one id.
        """
        decoded = self._run.decode(message)
        if decoded.says is not None or decoded.is_thought:
            self.add(message, decoded)
            return False
        if in_task:
            self._answer(message, decoded, is_reply=False)
        else:
            self._replies.append(message)
        return True

    def end_replies(self) -> w.Message:
        """Add the events for the answer that came without a task, and return the answer as one message."""
        message, self._replies = merge_replies(self._replies), []
        self._answer(message, self._run.decode(message), is_reply=True)
        return message

    def _answer(self, message: w.Message, decoded: DecodedContent, *, is_reply: bool) -> None:
        self._activity.add_states(decoded.states, message.messageId, is_shown=True)
        self._activity.use(decoded.tools, message)
        self._run.add_message([*decoded.parts, *decoded.citations], "answer", message, is_reply=is_reply)
        self._usage.count(message.metadata, message.messageId)

    # Messages in the status of a task

    def read(self, message: w.Message, decoded: DecodedContent, metadata: JsonObject | None) -> None:
        """Read the message of a status after which the task continues. `decoded` is the content of the message, and
        `metadata` are those of the update."""
        if self._speech.draft.is_of(message):
            self.read_draft(message)
        elif (
            event_id_of(metadata) is not None
            and text_of(tuple(decoded.parts))
            and message.messageId not in self.read_ids
        ):
            # Such a framework repeats its answer in an artifact.
            self._held = (message, decoded)
        else:
            self.add_once(message, decoded)

    def settle_held(self, reply: w.Reply | None) -> Sequence[AnnotationPart]:
        """Add the messages that were held until the next reply showed what they are.

        If `reply` contains an artifact that repeats the held message of a status, skip the text of the message, and
        return its citations, which belong to the artifact. Otherwise, return no citations. `reply` is None at the end
        of the stream.
        """
        if reply is not None and not isinstance(reply, w.Message):
            # A task follows, so the messages before it are no answer.
            replies, self._replies = self._replies, []
            for message in replies:
                self.add_once(message, self._run.decode(message))
        if self._held is None:
            return ()
        (message, decoded), self._held = self._held, None
        text = text_of(tuple(decoded.parts))
        if not any(text == text_of(tuple(self._artifacts.decode(each).parts)) for each in artifacts_of(reply)):
            self.add_once(message, decoded)
            return ()
        if message.messageId:
            self.read_ids.add(message.messageId)
        decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        citations, decoded.citations = decoded.citations, []
        self.add(message, decoded)
        return citations

    def add_once(self, message: w.Message, decoded: DecodedContent) -> None:
        """Add a message, unless it was read before.

        a2a-sdk 0.3.26 and 1.3.0 move the message of a status into the history when the next status comes.
        """
        if message.messageId not in self.read_ids:
            self.add(message, decoded)

    def add(self, message: w.Message, decoded: DecodedContent) -> None:
        """Add the events for the message of a running agent: thoughts, tool calls, progress, and pieces of the
        answer."""
        self._activity.add_states(decoded.states, message.messageId, is_shown=True)
        if message.messageId and (decoded.parts or decoded.tools or decoded.progress):
            self.read_ids.add(message.messageId)
        thoughts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        words = [part for part in decoded.parts if not isinstance(part, ReasoningPart)]
        if thoughts:
            # The events below contain what a trajectory reports. Callers of A2A see the message as it came.
            others = {key: value for key, value in (message.metadata or {}).items() if not is_trajectory(key)}
            self._run.add_message(thoughts, "answer", message.model_copy(update={"metadata": others}))
        self._activity.use(decoded.tools, message)
        self._activity.add_steps(decoded.steps)
        self._activity.add_groups(decoded.groups)
        if decoded.progress:
            self._run.add_message(decoded.progress, "progress", message, is_aside=True)
        habits = self._run.habits
        if habits.repeats_answer and words and all(isinstance(part, TextPart) for part in words):
            self._speech.repeat(text_of(tuple(words)))
        elif words and (decoded.says == "answer" or (decoded.says is None and habits.answers_in_status)):
            self._speech.say(words, message)
        elif words:
            self._run.add_message(words, "progress", message, is_aside=decoded.says == "progress")
        self._speech.cite(decoded.citations)

    def read_draft(self, message: w.Message) -> None:
        """Add the events for the content of a draft that was not read before."""
        start, decoded = len(self._run.events), self._run.decode(message)
        self.read_ids.add(message.messageId or "")
        self._speech.take_draft(decoded)
        self.add(w.Message(), decoded)
        self._speech.draft.mark(self._run.events, start)

    # The history of a task

    def read_history(self, task: w.Task, questions: QuestionTracker) -> None:
        """Add those messages in the history since the caller's last one that were not read before.

        Some servers send the answer only in the history: if a completed task has no other answer, its last message with
        a text is the answer.
        """
        messages = after_caller(task.history or ())
        for message in messages:
            self._usage.count_history(message.metadata, message.messageId)
        status = task.status or w.TaskStatus()
        known_ids: set[str | None] = {*self.read_ids, *questions.marks}
        if status.message is not None:
            known_ids.add(status.message.messageId)
        news = [(message, self._run.decode(message)) for message in messages if message.messageId not in known_ids]
        for _, decoded in news:
            if text_of(tuple(decoded.parts)) in {"", *self.answer_texts}:
                decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        ended = decode_state(status.state) is TaskState.COMPLETED and status.message is None
        with_text = [(message, decoded) for message, decoded in news if text_of(tuple(decoded.parts))]
        has_answer = self._run.has_answer or bool(self._artifacts.trackers)
        answer = with_text[-1] if with_text and ended and not has_answer else None
        for message, decoded in news:
            # A message without an id would be read again and again.
            if (
                message.messageId
                and (answer is None or message is not answer[0])
                and (decoded.parts or decoded.tools or decoded.states)
            ):
                self.add_once(message, decoded)
        if answer is not None:
            message, decoded = answer
            self._activity.use(decoded.tools, message)
            self._run.add_message([*decoded.parts, *decoded.citations], "answer", message)

    @property
    def answer_texts(self) -> set[str]:
        """Texts of all answers of the run so far, in messages and in artifacts."""
        speech = self._speech.text
        return {*self._run.answers, *self._artifacts.texts, *(() if speech is None else (speech,))}

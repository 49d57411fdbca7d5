"""Handling of a POST to a chat. Its last message decides which run the request starts, continues or joins.

- An assistant message contains answers to open questions, in its tool parts.
- A user message answers an open question that takes text. Otherwise it is a new input, which supersedes open questions
  and interrupts an active run.
- A user message that the log already contains joins the run that it began.
- If the page's history ends earlier than the log, or the page asks for another answer, the new run is a fork.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.empty_state import save_empty_state
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.carries import VERSION
from babelgate.adapters.vercel_ui.codec import (
    PROTOCOL,
    PartAnswer,
    answer_message,
    can_answer_in_words,
    config_of,
    decode_answers,
    decode_history,
    decode_message,
    decode_words,
    has_ask_tool,
    invalid,
    request_messages,
    run_extra,
    tool_ids,
)
from babelgate.adapters.vercel_ui.server.chat_log import ChatLog, ChatRun
from babelgate.adapters.vercel_ui.server.chats import find_thread, place_of, read_log
from babelgate.adapters.vercel_ui.write.view import Restart
from babelgate.canonical import (
    Answers,
    FaultCode,
    FaultError,
    Hub,
    Message,
    Receipt,
    RunInput,
    Submission,
)
from babelgate.canonical.fault import ANSWER_SCHEMA
from babelgate.canonical.hub import Fork
from babelgate.canonical.value import Json, is_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunReply:
    """Run whose stream is the response to a POST: a new run, or one that an earlier request has started."""

    thread_id: str
    run: ChatRun
    receipt: Receipt | None
    """Receipt of the hub for a new run; None if an earlier request has started the run."""
    restarts: Sequence[Restart] = ()
    """Restarts, before this request, of all runs of the same assistant message. The content that they made void is not
    sent."""


class ChatPost:
    """Handling of one POST to a chat, up to the start of the run that answers it."""

    def __init__(self, hub: Hub, who: Caller, agent: str, body: w.ChatRequest, sdk: int) -> None:
        self._hub = hub
        self._who = who
        self._agent = agent
        self._body = body
        self._sdk = sdk
        self._messages = request_messages(body)
        self._asks = has_ask_tool(body)

    async def begin(self) -> BegunReply:
        """Start, continue or join the run that answers the request, and return it. Raises invalid, not_found,
        not_awaiting, conflict."""
        if self._can_be_first():
            try:
                return await self._submit(None, ChatLog(), *self._split(ChatLog(), None), is_first=True)
            except FaultError:
                pass  # mostly because the thread exists; any other reason is found again
        last = self._messages[-1]
        thread_id = await self._thread_id(last)
        log = ChatLog() if thread_id is None else await read_log(self._hub, self._who.principal, thread_id)
        if last.role == "assistant":
            return await self._continue(last, thread_id, log)
        if (answered := self._answered_message()) is not None:
            return await self._continue(answered, thread_id, log)
        earlier_run = log.find(last.id) if last.id and log.is_user_message(last.id) else None
        is_plain = not self._body.is_regenerate and self._body.message_id != last.id
        if earlier_run is not None and thread_id is not None and is_plain:
            restarts = log.restarts_of(earlier_run)
            return BegunReply(thread_id=thread_id, run=earlier_run, receipt=None, restarts=restarts)
        new_messages, base = self._split(log, earlier_run)
        if earlier_run is None:
            typed = await self._answer_in_words(log, new_messages)
            if typed is not None:
                return typed
        return await self._submit(thread_id, log, new_messages, base)

    def _can_be_first(self) -> bool:
        """Return True if the request looks like the first one of its chat: it has an id, and messages of the user
        alone. It is then submitted before the chat's thread is looked up: the lookup would take a sixth of the CPU time
        of such a call."""
        body = self._body
        has_only_input = all(message.role != "assistant" for message in self._messages)
        is_plain = not body.is_regenerate and body.message_id is None
        return bool(body.id) and body.messages is not None and has_only_input and is_plain

    def _answered_message(self) -> w.UIMessage | None:
        """Return the assistant message that `messageId` names, or None. ai 6.0.326 names the message that contains the
        user's answers, also if other messages follow it. A request for another answer returns None."""
        named = (message for message in self._messages if message.id == self._body.message_id)
        return next(
            (message for message in named if message.role == "assistant" and not self._body.is_regenerate), None
        )

    async def _thread_id(self, last: w.UIMessage) -> str | None:
        """Return the id of the chat's thread, or None if there is none yet. In a request without a chat id, the last
        assistant message may have the id of its task, whose thread is returned."""
        principal = self._who.principal
        if self._body.id:
            return await find_thread(self._hub, principal, self._agent, self._body.id)
        if last.role != "assistant" or not is_uuid(last.id):
            return None
        try:
            return (await self._hub.reads.task(principal, last.id)).thread_id
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return None

    def _split(self, log: ChatLog, earlier_run: ChatRun | None) -> tuple[Sequence[w.UIMessage], ChatRun | None]:
        """Return the messages that are new input, and the last run before them, which is None if the log has no message
        before them. `earlier_run` is the newest run of the last message's turn, if the log has that message."""
        messages = self._messages
        if earlier_run is not None and self._body.messages is None:
            first = log.runs_of(earlier_run.message_id)[0]
            return messages, next((run for run in reversed(log.runs.values()) if run.seq < first.seq), None)
        start = len(messages) - 1
        while start > 0 and messages[start - 1].role != "assistant" and log.find(messages[start - 1].id) is None:
            start -= 1
        before = (log.find(message.id) for message in reversed(messages[:start]) if message.id)
        return messages[start:], next((run for run in before if run is not None), None)

    # New input

    async def _submit(
        self,
        thread_id: str | None,
        log: ChatLog,
        new_messages: Sequence[w.UIMessage],
        base: ChatRun | None,
        *,
        is_first: bool = False,
    ) -> BegunReply:
        """Start a run with `new_messages` as its input. It continues the state after the run `base`, as a fork if that
        is not the newest run. `base` is None if the log has no message before the input. With `is_first`, raises
        conflict if the chat has a thread already."""
        body, head = self._body, log.head
        instructions = (Message.of(body.system, "system"),) if body.system else ()
        run_input = await self._input((*instructions, *map(decode_message, new_messages)))
        history: tuple[Message, ...] = ()
        fork = None if base is None or base is head else Fork(run_id=base.run_id)
        if base is None and (head is None or self._has_whole_history(log)):
            before = self._messages[: len(self._messages) - len(new_messages)]
            history = await resolve_own_files(self._hub, self._who, decode_history(before))
            if head is not None and thread_id is not None:
                active = [run.run_id for run in log.runs.values() if not run.has_ended]
                state = await save_empty_state(self._hub, self._who.principal, thread_id, active)
                run_input = run_input.replace(checkpoint=state)
        place = (thread_id, None) if thread_id is not None or body.id is None else place_of(body.id)
        submission = Submission(
            agent=self._agent,
            protocol=PROTOCOL,
            version=VERSION,
            input=run_input,
            thread_id=place[0],
            alias=place[1],
            history=history,
            fork=fork,
            strategy="interrupt",
            supersede=True,
            ephemeral=body.id is None,
            if_missing="recreate",
            if_exists="reject" if is_first else "continue",
        )
        receipt = await self._hub.submit(self._who.principal, submission)
        return self._reply_of(receipt, receipt.task_id)

    def _has_whole_history(self, log: ChatLog) -> bool:
        """Return True if the messages before the new input, possibly none, replace the thread's state. An app that
        sends only its last message continues the newest state, unless the log already has that message."""
        return self._body.messages is not None or log.find(self._messages[-1].id) is not None

    async def _input(self, messages: Sequence[Message], *, typed: bool = False) -> RunInput:
        """Return the input of a run: these messages, with the configuration, metadata and headers of the request.
        `typed` is True if they are user messages that answer a question."""
        return RunInput(
            messages=await resolve_own_files(self._hub, self._who, messages),
            config=config_of(self._body),
            metadata=self._body.metadata or {},
            headers=self._who.headers,
            extra=run_extra(asks=self._asks, typed=typed),
        )

    def _reply_of(self, receipt: Receipt, message_id: str, seq: int | None = None) -> BegunReply:
        """Return the run of a receipt as part of the assistant message `message_id`. The stream shows records after the
        number `seq`, by default that of the receipt."""
        run = ChatRun(
            run_id=receipt.run_id,
            task_id=receipt.task_id,
            agent=self._agent,
            message_id=message_id,
            user_ids=(),
            seq=(receipt.seq if seq is None else seq) + 1,
            asks=self._asks,
        )
        return BegunReply(thread_id=receipt.thread_id, run=run, receipt=receipt)

    # Answers

    async def _answer_in_words(self, log: ChatLog, new_messages: Sequence[w.UIMessage]) -> BegunReply | None:
        """Submit the text of the new user messages as the answer to the oldest open question that takes text. Return
        None if there is no such question, or its schema does not accept the text."""
        head = log.head
        if head is None or not head.has_ended or head.agent != self._agent:
            return None
        if any(message.role != "user" for message in new_messages):
            return None
        questions = await self._hub.reads.open_interrupts(self._who.principal, head.task_id)
        question = next((each for each in questions if can_answer_in_words(each, asks=head.asks, sdk=self._sdk)), None)
        if question is None:
            return None
        messages = tuple(map(decode_message, new_messages))
        answer = decode_words("\n".join(message.text for message in messages), question)
        answers = Answers(
            task_id=head.task_id,
            values={question.interrupt_id: answer.value},
            action="decline" if answer.is_declined else "answer",
            input=await self._input(messages, typed=True),
            is_text=True,
            protocol=PROTOCOL,
        )
        try:
            receipt = await self._hub.answer(self._who.principal, answers)
        except FaultError as error:
            if error.fault.details.get("reason") == ANSWER_SCHEMA:  # the text is no answer, so it is a new input
                return None
            raise
        return self._reply_of(receipt, receipt.run_id)

    async def _continue(self, last: w.UIMessage, thread_id: str | None, log: ChatLog) -> BegunReply:
        """Submit the answers in the assistant message `last`, or join the run that the same answers have already
        started. Raises not_awaiting if it has no usable answer, and invalid if it is another agent's message."""
        principal, runs = self._who.principal, log.runs_of(last.id)
        if thread_id is None or not runs:
            raise _nothing_to_continue("this gateway has no such message")
        if runs[-1].agent != self._agent:
            raise invalid("messages", f"This message is of the agent {runs[-1].agent}.")
        open_questions = await self._hub.reads.open_interrupts(principal, runs[-1].task_id)
        answers = decode_answers(last, {question.interrupt_id: question for question in open_questions})
        if not answers:
            # The same request again: its run is the newest one.
            if len(runs) > 1 and runs[-1].run_id in {log.answered.get(each) for each in tool_ids(last)}:
                restarts = log.restarts_of(runs[-1])
                return BegunReply(thread_id=thread_id, run=runs[-1], receipt=None, restarts=restarts)
            raise _nothing_to_continue("it answers no open question")
        return await self._answer(runs[-1].task_id, last.id, answers)

    async def _answer(self, task_id: str, message_id: str, answers: Sequence[PartAnswer]) -> BegunReply:
        """Submit answers to questions of a task, and return the run that they start. Declined questions are submitted
        first. `message_id` is the id of the assistant message that the run continues."""
        principal = self._who.principal
        run_input = await self._input(tuple(map(answer_message, answers)))
        values = {answer.question_id: answer.value for answer in answers if not answer.is_declined}
        declined: dict[str, Json] = {answer.question_id: None for answer in answers if answer.is_declined}
        accepted = Answers(task_id=task_id, values=values, input=run_input, protocol=PROTOCOL)
        seq: int | None = None
        if declined:
            if values:
                await self._hub.check_answers(principal, accepted)
            decline_input = RunInput(headers=self._who.headers, extra=run_input.extra) if values else run_input
            decline = Answers(
                task_id=task_id, values=declined, action="decline", input=decline_input, protocol=PROTOCOL
            )
            receipt = await self._hub.answer(principal, decline)
            if not values:
                return self._reply_of(receipt, message_id)
            seq = receipt.seq
        return self._reply_of(await self._hub.answer(principal, accepted), message_id, seq)


def _nothing_to_continue(why: str) -> FaultError:
    """Return the fault `not_awaiting` for an assistant message without a usable answer. An empty stream would make a
    page with `sendAutomaticallyWhen` repeat its request without end."""
    return FaultError(FaultCode.NOT_AWAITING, f"The last message is the assistant's, and {why}.")

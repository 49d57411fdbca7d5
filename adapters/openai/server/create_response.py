"""POST /v1/responses: a new run, one that goes on from another, or the answer to what another has asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from litestar import Request, Response

from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.extension import decode_request, given_messages, take_answer, with_uploads
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller, end_or_leave
from babelgate.adapters.kit.server.extended import confirm, is_asked
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.openai.carries import RESPONSES, RESPONSES_VERSION
from babelgate.adapters.openai.codec.call_id import find_interrupt
from babelgate.adapters.openai.codec.items import Conversation, decode_item_answer, decode_items
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.codec.model import schema_of
from babelgate.adapters.openai.codec.names import api_extra
from babelgate.adapters.openai.codec.questions import has_ask_tool, questions_extra, without_ask
from babelgate.adapters.openai.server.answers import make_answers
from babelgate.adapters.openai.server.asked import (
    Question,
    SentMessages,
    find_question_in,
    find_question_on,
    is_asked_by_calls,
)
from babelgate.adapters.openai.server.compact import read_expanded
from babelgate.adapters.openai.server.follow import Reading
from babelgate.adapters.openai.server.lookup import (
    CallWords,
    FoundRun,
    decode_request_of_model,
    find_agent,
    find_asking_task,
    find_conversation,
    find_previous,
    why_not_open,
)
from babelgate.adapters.openai.server.references import ItemReferences
from babelgate.adapters.openai.wire import responses as w
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import (
    AgentInfo,
    FaultError,
    Feature,
    Hub,
    Message,
    Receipt,
    RunFilter,
    RunInput,
    RunStatus,
    Submission,
)
from babelgate.canonical.history import StateHistory
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject

AnyRequest = Request[Any, Any, Any]

_WORDS: Final = CallWords(call="call", result="output", field="input")

HEARTBEAT: Final = 15.0
"""Seconds. Comments are nothing to clients, and keep what is between from taking a silent stream for dead."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request whose agent, conversation and previous response were found."""

    who: Caller
    body: w.ResponseCreate
    agent: AgentInfo
    said: Conversation
    sent: SentMessages
    """The items of `said` as messages."""
    previous: FoundRun | None
    thread_id: str | None
    """Of the conversation."""
    extension: ExtensionRequest
    """By the extension."""
    previous_id: str | None
    """What the response shows as the one before it."""
    in_words: bool = False
    """Questions are texts, because the request declares no tool by which agents ask."""

    @property
    def is_kept(self) -> bool:
        """What goes on from a response that is not kept is not kept either."""
        return self.body.store is not False and not (self.previous is not None and self.previous.thread.ephemeral)


@dataclass(frozen=True, slots=True)
class Begun:
    """A response that an agent is at work on, or will be."""

    asked: CheckedRequest
    receipt: Receipt
    reading: Reading
    left: Callable[[], None]
    """What is done when the only reader leaves before the end."""
    is_kept: bool
    """Whether others can come back to it."""


class CreateResponse(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._references = ItemReferences(hub)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By owner and thread: of two responses that go on from one, the second must find the first."""

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid, unsupported, not_found, not_awaiting."""
        given, extended = await read_expanded(request), is_asked(request)
        begun = await self.begin(caller(request), given, extended=extended, by_calls=is_asked_by_calls(request))
        body, reading = begun.asked.body, begun.reading
        headers = {**run_headers(begun.receipt), **confirm(active=reading.extended)}
        if body.stream:
            frames = DisconnectNotifier(reading.frames(), begun.left)
            return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
        if body.background:
            # Open Responses' and OpenAI's callers expect it not to be there yet, however quick the agent is.
            await reading.read(begins=True)
            return reading.answer(headers)
        await end_or_leave(reading.follow(), request.receive, begun.left)
        return reading.final_answer(headers, losses=_losses(body, begun.asked.agent, reading.writer))

    async def begin(
        self,
        who: Caller,
        given: object,
        *,
        extended: bool,
        by_calls: bool,
        known: Container[str] = (),
        previous_id: str | None = None,
    ) -> Begun:
        """Start the response that a request asks for.

        `extended`: the caller has activated the extension. `by_calls`: it takes calls of `ask_caller` that it has not
        declared. The other parameters are those of `check`. Raises invalid, unsupported, not_found, not_awaiting.
        """
        given = await self._references.expand(who.owner, given, keeps=self._is_passed_on(given))
        asked = await self.check(who, given, known=known, previous_id=previous_id)
        extended = extended or asked.body.babelgate is not None
        asked = replace(asked, in_words=not (extended or by_calls or has_ask_tool(asked.body.config())))
        receipt = await self._run(asked)
        thread = await self._hub.reads.thread(who.owner, receipt.thread_id)
        reading = Reading(self._hub, who.owner, receipt.task, receipt.run_id, extended=extended)
        left = canceller(self._hub, who.owner, receipt.run_id, thread.ephemeral)
        return Begun(asked, receipt, reading, left, is_kept=asked.is_kept and not thread.ephemeral)

    async def check(
        self, who: Caller, given: object, *, known: Container[str] = (), previous_id: str | None = None
    ) -> CheckedRequest:
        """`known` = as in `find_previous`; `previous_id` = what the response shows as the one before it, where that is
        not the one that it goes on from. Raises invalid, not_found."""
        body = decode_request_of_model(w.ResponseCreate, given)
        if body.background and body.store is False:
            refuse("background", "A response in the background has to be stored: leave out store: false.")
        if body.previous_response_id is not None and body.conversation is not None:
            refuse("conversation", "Give either conversation or previous_response_id, not both.")
        schema = schema_of(body.config())
        if schema is not None:
            try:
                await self._hub.find_schema_error(schema, None)
            except FaultError as error:
                refuse("text.format.schema", error.fault.message)
        agent = find_agent(self._hub, body.model)
        said = Conversation.of(body.input, same=_is_same(agent))
        previous = thread_id = None
        if body.previous_response_id is not None:
            previous = await find_previous(self._hub, who.owner, body.previous_response_id, known)
        if body.conversation_id is not None:
            thread_id = (await find_conversation(self._hub, who.owner, body.conversation_id)).thread_id
        shown = previous_id or body.previous_response_id
        extension = decode_request(body.babelgate)
        decode = partial(decode_items, same=_is_same(agent))
        sent = SentMessages(partial(decode, said.before), partial(decode, said.others))
        return CheckedRequest(who, body, agent, said, sent, previous, thread_id, extension, shown)

    def _is_passed_on(self, given: object) -> bool:
        """Whether the agent's own server speaks this API."""
        model: object = cast("JsonObject", given).get("model") if isinstance(given, dict) else None
        try:
            return isinstance(model, str) and _is_same(self._hub.agent(model))
        except FaultError:  # the check of the request tells of it
            return False

    # Runs

    async def _run(self, asked: CheckedRequest) -> Receipt:
        """Raises invalid, not_found, not_awaiting."""
        if asked.said.answers:
            return await self._answer(asked)
        question = await self._find_question(asked) if asked.in_words else None
        if question is not None:
            return await self._answer_in_words(asked, question)
        return await self._submit(asked)

    async def _submit(self, asked: CheckedRequest) -> Receipt:
        """Raises invalid."""
        said = asked.said
        if not said.others:
            words = "The input ends with a call or a thought. Add" if said.before else "There is no input. Give"
            refuse("input", f"{words} a user message or a tool output.")
        if asked.previous is not None and asked.previous.run.status is RunStatus.PAUSED:
            refuse("input", "The previous response waits for the output of its calls: send an output for each of them.")
        thread_id = asked.thread_id if asked.previous is None else asked.previous.run.thread_id
        async with self._turn(asked.who.owner, thread_id):
            submission = Submission(
                agent=asked.agent.name,
                protocol="openai",
                version=RESPONSES_VERSION,
                input=await self._input(
                    asked,
                    with_uploads(asked.extension, given_messages(asked.extension) or asked.sent.news),
                    await self._checkpoint(asked),
                    len(asked.extension.uploads),
                ),
                thread_id=thread_id,
                history=await resolve_own_files(self._hub, asked.who, asked.sent.before),
                if_missing="create" if thread_id is None else "reject",
                ephemeral=thread_id is None and not asked.is_kept,
            )
            return await self._hub.submit(asked.who.owner, asked.extension.start.apply(submission))

    @asynccontextmanager
    async def _turn(self, owner: str, thread_id: str | None) -> AsyncGenerator[None]:
        if thread_id is None:
            yield
            return
        lock = self._locks.setdefault((owner, thread_id), asyncio.Lock())
        async with lock:
            yield

    async def _checkpoint(self, asked: CheckedRequest) -> str | None:
        """Where the conversation branches off: a response that has another after it is gone on from as it was. Raises
        invalid."""
        if asked.previous is None:
            return None
        run, owner = asked.previous.run, asked.who.owner
        newest = await (await self._hub.reads.runs(owner, RunFilter(thread_id=run.thread_id), limit=1)).all()
        if not newest or newest[0].run_id == run.run_id:
            return None
        history = await self._hub.reads.snapshot(
            owner, run.thread_id, StateHistory, partial(StateHistory, run.thread_id, owner)
        )
        revision = history.of_run(run.run_id)
        if revision is None:
            refuse(
                "previous_response_id",
                "The previous response has other continuations and its state is not available: send the conversation "
                "as input.",
            )
        return revision.checkpoint_id

    async def _input(
        self, asked: CheckedRequest, messages: Sequence[Message], checkpoint: str | None = None, uploaded: int = 0
    ) -> RunInput:
        body, config = asked.body, asked.body.config()
        if not _is_same(asked.agent):
            config = without_ask(config)
        if asked.extension.tools is not None:
            config["tools"] = list(asked.extension.tools)
        metadata = dict(body.metadata or {}) if asked.extension.metadata is None else asked.extension.metadata
        told: JsonObject = {"previous_response_id": asked.previous_id, "conversation": body.conversation_id}
        own = {name: value for name, value in told.items() if value is not None}
        own["background"] = bool(body.background)
        own |= {"store": False} if not asked.is_kept else {}
        own |= questions_extra(in_words=asked.in_words)
        if asked.in_words and asked.previous is None and asked.thread_id is None:
            own |= asked.sent.own()
        return RunInput(
            messages=await resolve_own_files(self._hub, asked.who, messages),
            uploaded=uploaded,
            checkpoint=checkpoint,
            config=config,
            metadata=metadata,
            headers=asked.who.headers,
            extra=api_extra(RESPONSES_VERSION, own),
        )

    # Answers

    async def _find_question(self, asked: CheckedRequest) -> Question | None:
        """Return the question that the user messages at the end of the input answer."""
        owner, agent, said = asked.who.owner, asked.agent.name, asked.said
        if not said.others or any(item.role != "user" for item in said.others):
            return None
        if asked.previous is not None:
            if asked.previous.run.status is not RunStatus.PAUSED:
                return None
            return await find_question_on(self._hub, owner, agent, asked.previous.run.thread_id)
        if asked.thread_id is not None:
            return await find_question_on(self._hub, owner, agent, asked.thread_id)
        return await find_question_in(self._hub, owner, agent, asked.sent.before)

    async def _answer_in_words(self, asked: CheckedRequest, question: Question) -> Receipt:
        values, messages = question.answer(asked.sent.news)
        given = await self._input(asked, messages)
        answers = make_answers(question.task.task_id, values, given, asked.extension)
        return await self._hub.answer(asked.who.owner, answers)

    async def _answer(self, asked: CheckedRequest) -> Receipt:
        who, said = asked.who, asked.said
        asked.extension.start.check_absent()
        task = await find_asking_task(self._hub, who.owner, said.answers[0].task_id, _WORDS)
        if task.agent != asked.agent.name:
            refuse("model", f"The call was made by {task.agent}: send its output to that model.")
        if asked.previous is not None and asked.previous.task.task_id != task.task_id:
            refuse("previous_response_id", "The call was made by another response: give its id.")
        if asked.thread_id not in (None, task.thread_id):
            refuse("conversation", "The call was made in another conversation: give its id.")
        values: dict[str, Json] = {}
        messages: list[Message] = []
        open_ = {each.interrupt_id: each for each in await self._hub.reads.open_interrupts(who.owner, task.task_id)}
        for answer in said.answers:
            interrupt_id = find_interrupt(answer.call_id, task.task_id, open_)
            if interrupt_id is None:
                raise await why_not_open(self._hub, who.owner, task, answer.call_id, _WORDS)
            native = decode_item_answer(answer, open_[interrupt_id].answer_schema)
            values[interrupt_id], message = take_answer(asked.extension, interrupt_id, *native)
            messages.append(message)
        given = await self._input(asked, (*messages, *asked.sent.news))
        return await self._hub.answer(who.owner, make_answers(task.task_id, values, given, asked.extension))


def _is_same(agent: AgentInfo) -> bool:
    """Its own server speaks OpenAI's API."""
    return "openai" in agent.metadata


def _losses(body: w.ResponseCreate, agent: AgentInfo, writer: ResponseWriter) -> Sequence[Loss]:
    """Return what did not reach the agent: tools, unless its server speaks this API or it called one; and items that
    only a server of this API understands."""
    if _is_same(agent):
        return ()
    losses: list[Loss] = []
    if without_ask(body.config()).get("tools") and not writer.has_called:
        losses.append(Loss(feature=Feature.CALLER_TOOLS.value, how=RESPONSES[Feature.CALLER_TOOLS].how))
    if kinds := sorted({str(item.type) for item in body.items if item.verbatim is not None}):
        losses.append(Loss(feature=Feature.CUSTOM.value, how=f"input items of the types {', '.join(kinds)}"))
    return losses

"""POST /v1/responses: starts a run, continues an earlier response, or answers the questions of a waiting task."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from litestar import Response

from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.extension import decode_request, messages_of, with_uploads
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller, end_or_leave
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.openai.carries import RESPONSES, RESPONSES_VERSION
from babelgate.adapters.openai.codec.items import ItemConversation, decode_item_answer, decode_items
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.codec.model import schema_of
from babelgate.adapters.openai.codec.names import api_extra
from babelgate.adapters.openai.codec.questions import has_ask_tool, questions_extra, without_ask
from babelgate.adapters.openai.server.answers import collect_answers, make_answers
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
    has_openai_api,
)
from babelgate.adapters.openai.server.references import ItemReferences
from babelgate.adapters.openai.server.text_questions import (
    SentMessages,
    TextQuestion,
    can_receive_question_calls,
    find_question_in,
    find_question_on,
)
from babelgate.adapters.openai.wire import responses as w
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import (
    AgentInfo,
    FaultError,
    Feature,
    Hub,
    Message,
    Principal,
    Receipt,
    RunFilter,
    RunInput,
    RunStatus,
    Submission,
)
from babelgate.canonical.history import StateHistory
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_WORDS: Final = CallWords(call="call", result="output", field="input")

HEARTBEAT: Final = 15.0
"""Seconds between comments in an idle stream, which keep proxies from closing the connection. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """Validated request for a response, with the agent, conversation and previous response that it names."""

    who: Caller
    body: w.ResponseCreate
    agent: AgentInfo
    conversation: ItemConversation
    sent: SentMessages
    """History and new items of `conversation`, decoded to messages when needed."""
    previous: FoundRun | None
    thread_id: str | None
    """Id of the thread that the request names as its `conversation`, or None."""
    extension: ExtensionRequest
    """Part of the request for the Babelgate extension; empty if the request has none."""
    previous_id: str | None
    """Id that the response will show as `previous_response_id`, or None."""
    in_words: bool = False
    """True if the caller sees questions as text, because the request does not declare the tool `ask_caller`."""

    @property
    def is_stored(self) -> bool:
        """True if the response can be read later. A response that continues an unstored one is not stored either."""
        return self.body.store is not False and not (self.previous is not None and self.previous.thread.ephemeral)


@dataclass(frozen=True, slots=True)
class Begun:
    """Response whose run has been committed."""

    checked: CheckedRequest
    receipt: Receipt
    reading: Reading
    on_disconnect: Callable[[], None]
    """Callback to call if the caller disconnects before the end. It cancels a run that is not stored."""
    is_stored: bool
    """True if the response can be read later by its id."""


class CreateResponse(Handlers):
    """Handler of the route that creates responses. The WebSocket uses it, too."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._references = ItemReferences(hub)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Lock by owner and thread id. If two requests continue the same response, the second request must see the run
        of the first one, because its own run then becomes a branch."""

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Start or resume a run, and respond with it as a response: whole, streamed, or unfinished if it is in the
        background. Raises invalid for a malformed body, unsupported for an option that the gateway does not have,
        not_found for an unknown model or conversation, and not_awaiting for an answer to a closed question."""
        raw_body, extended = await read_expanded(request), is_activated(request)
        begun = await self.begin(
            caller(request), raw_body, extended=extended, by_calls=can_receive_question_calls(request)
        )
        body, reading = begun.checked.body, begun.reading
        headers = {**run_headers(begun.receipt), **confirm(active=reading.extended)}
        if body.stream:
            frames = DisconnectNotifier(reading.frames(), begun.on_disconnect)
            return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
        if body.background:
            # Callers of Open Responses and OpenAI expect an unfinished response, however quick the agent is.
            await reading.read(begins=True)
            return reading.answer(headers)
        await end_or_leave(reading.follow(), request.receive, begun.on_disconnect)
        return reading.final_answer(headers, losses=_losses(body, begun.checked.agent, reading.writer))

    async def begin(
        self,
        who: Caller,
        raw_body: object,
        *,
        extended: bool,
        by_calls: bool,
        unstored_ids: Container[str] = (),
        previous_id: str | None = None,
    ) -> Begun:
        """Start or resume the run that a request asks for.

        `extended`: the caller has activated the Babelgate extension. `by_calls`: the caller accepts calls of
        `ask_caller` without declaring this tool. `unstored_ids` and `previous_id` are passed to `check`. Raises invalid
        for a malformed body, unsupported for an option that the gateway does not have, not_found for an unknown model
        or conversation, and not_awaiting for an answer to a closed question.
        """
        raw_body = await self._references.expand(
            who.principal, raw_body, keeps=self._is_passed_on(who.principal, raw_body)
        )
        checked = await self.check(who, raw_body, unstored_ids=unstored_ids, previous_id=previous_id)
        extended = extended or checked.body.babelgate is not None
        checked = replace(checked, in_words=not (extended or by_calls or has_ask_tool(checked.body.config())))
        receipt = await self._run(checked)
        thread = await self._hub.reads.thread(who.principal, receipt.thread_id)
        reading = Reading(self._hub, who.principal, receipt.task, receipt.run_id, extended=extended)
        on_disconnect = canceller(self._hub, who.principal, receipt.run_id, thread.ephemeral)
        return Begun(checked, receipt, reading, on_disconnect, is_stored=checked.is_stored and not thread.ephemeral)

    async def check(
        self, who: Caller, raw_body: object, *, unstored_ids: Container[str] = (), previous_id: str | None = None
    ) -> CheckedRequest:
        """Validate a parsed body, and look up the model, conversation and previous response that it names. Raises
        invalid for a malformed body or an unknown previous response, and not_found for an unknown model or
        conversation.

        `unstored_ids`: ids of unstored responses that this caller may continue. `previous_id`: id to show as
        `previous_response_id`, if it differs from the response that is continued.
        """
        body = decode_request_of_model(w.ResponseCreate, raw_body)
        if body.background and body.store is False:
            refuse("background", "A response in the background has to be stored: leave out store: false.")
        if body.previous_response_id is not None and body.conversation is not None:
            refuse("conversation", "Give either conversation or previous_response_id, not both.")
        schema = schema_of(body.config())
        if schema is not None:
            try:
                await self._hub.find_schema_error(who.principal, schema, None)
            except FaultError as error:
                refuse("text.format.schema", error.fault.message)
        agent = find_agent(self._hub, who.principal, body.model)
        conversation = ItemConversation.of(body.input, same=has_openai_api(agent))
        previous = thread_id = None
        if body.previous_response_id is not None:
            previous = await find_previous(self._hub, who.principal, body.previous_response_id, unstored_ids)
        if body.conversation_id is not None:
            thread_id = (await find_conversation(self._hub, who.principal, body.conversation_id)).thread_id
        shown_id = previous_id or body.previous_response_id
        extension = decode_request(body.babelgate)
        decode = partial(decode_items, same=has_openai_api(agent))
        sent = SentMessages(partial(decode, conversation.before), partial(decode, conversation.others))
        return CheckedRequest(who, body, agent, conversation, sent, previous, thread_id, extension, shown_id)

    def _is_passed_on(self, principal: Principal, raw_body: object) -> bool:
        """Return True if the agent's own server speaks OpenAI's API, so that it may know items which the gateway does
        not."""
        model: object = cast("JsonObject", raw_body).get("model") if isinstance(raw_body, dict) else None
        try:
            return isinstance(model, str) and has_openai_api(self._hub.agent(principal, model))
        except FaultError:  # `check` reports it
            return False

    # Runs

    async def _run(self, checked: CheckedRequest) -> Receipt:
        """Start a run with the new items, or answer questions with them. Raises the faults of the hub's `submit` and
        `answer`."""
        if checked.conversation.answers:
            return await self._answer(checked)
        question = await self._find_question(checked) if checked.in_words else None
        if question is not None:
            return await self._answer_in_words(checked, question)
        return await self._submit(checked)

    async def _submit(self, checked: CheckedRequest) -> Receipt:
        """Start a run with the new items. Raises the faults of the hub's `submit`."""
        conversation = checked.conversation
        if not conversation.others:
            words = "The input ends with a call or reasoning. Add" if conversation.before else "There is no input. Give"
            refuse("input", f"{words} a user message or a tool output.")
        if checked.previous is not None and checked.previous.run.status is RunStatus.PAUSED:
            refuse("input", "The previous response waits for the output of its calls: send an output for each of them.")
        thread_id = checked.thread_id if checked.previous is None else checked.previous.run.thread_id
        async with self._turn(checked.who.owner, thread_id):
            submission = Submission(
                agent=checked.agent.name,
                protocol="openai",
                version=RESPONSES_VERSION,
                input=await self._input(
                    checked,
                    with_uploads(checked.extension, messages_of(checked.extension) or checked.sent.new_messages),
                    await self._checkpoint(checked),
                    len(checked.extension.uploads),
                ),
                thread_id=thread_id,
                history=await resolve_own_files(self._hub, checked.who, checked.sent.before),
                if_missing="create" if thread_id is None else "reject",
                ephemeral=thread_id is None and not checked.is_stored,
            )
            return await self._hub.submit(checked.who.principal, checked.extension.start.apply(submission))

    @asynccontextmanager
    async def _turn(self, owner: str, thread_id: str | None) -> AsyncGenerator[None]:
        """Hold the lock of a thread, so that requests for one thread start their runs in order. None, a new thread,
        needs no lock."""
        if thread_id is None:
            yield
            return
        lock = self._locks.setdefault((owner, thread_id), asyncio.Lock())
        async with lock:
            yield

    async def _checkpoint(self, checked: CheckedRequest) -> str | None:
        """Return the checkpoint from which the run starts, if the previous response was continued by another run
        already. Return None to start from the thread's newest state. Raises invalid if that checkpoint is not
        available."""
        if checked.previous is None:
            return None
        run, principal = checked.previous.run, checked.who.principal
        newest = await (await self._hub.reads.runs(principal, RunFilter(thread_id=run.thread_id), limit=1)).all()
        if not newest or newest[0].run_id == run.run_id:
            return None
        history = await self._hub.reads.snapshot(
            principal, run.thread_id, StateHistory, partial(StateHistory, run.thread_id, principal.owner)
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
        self, checked: CheckedRequest, messages: Sequence[Message], checkpoint: str | None = None, uploaded: int = 0
    ) -> RunInput:
        """Return the input of a run with the messages. The run starts from `checkpoint`; None means the thread's newest
        state. `uploaded` is the number of files at the end of the last message that came through the Babelgate
        extension."""
        body, config = checked.body, checked.body.config()
        if not has_openai_api(checked.agent):
            config = without_ask(config)
        if checked.extension.tools is not None:
            config["tools"] = list(checked.extension.tools)
        metadata = dict(body.metadata or {}) if checked.extension.metadata is None else checked.extension.metadata
        references: JsonObject = {"previous_response_id": checked.previous_id, "conversation": body.conversation_id}
        members = {name: value for name, value in references.items() if value is not None}
        members["background"] = bool(body.background)
        members |= {"store": False} if not checked.is_stored else {}
        members |= questions_extra(in_words=checked.in_words)
        if checked.in_words and checked.previous is None and checked.thread_id is None:
            members |= checked.sent.stored_members()
        return RunInput(
            messages=await resolve_own_files(self._hub, checked.who, messages),
            uploaded=uploaded,
            checkpoint=checkpoint,
            config=config,
            metadata=metadata,
            headers=checked.who.headers,
            extra=api_extra(RESPONSES_VERSION, members),
        )

    # Answers

    async def _find_question(self, checked: CheckedRequest) -> TextQuestion | None:
        """Return the question, shown as text, that the new user messages answer. Return None if no such question is
        open."""
        principal, agent, conversation = checked.who.principal, checked.agent.name, checked.conversation
        if not conversation.others or any(item.role != "user" for item in conversation.others):
            return None
        if checked.previous is not None:
            if checked.previous.run.status is not RunStatus.PAUSED:
                return None
            return await find_question_on(self._hub, principal, agent, checked.previous.run.thread_id)
        if checked.thread_id is not None:
            return await find_question_on(self._hub, principal, agent, checked.thread_id)
        return await find_question_in(self._hub, principal, agent, checked.sent.before)

    async def _answer_in_words(self, checked: CheckedRequest, question: TextQuestion) -> Receipt:
        """Answer a question that was shown as text, with the text of the new user messages."""
        values, messages = question.answer(checked.sent.new_messages)
        run_input = await self._input(checked, messages)
        answers = make_answers(question.task.task_id, values, run_input, checked.extension)
        return await self._hub.answer(checked.who.principal, answers)

    async def _answer(self, checked: CheckedRequest) -> Receipt:
        """Answer questions that were shown as calls, with the outputs of these calls in the input."""
        who, conversation = checked.who, checked.conversation
        checked.extension.start.check_absent()
        task = await find_asking_task(self._hub, who.principal, conversation.answers[0].task_id, _WORDS)
        if task.agent != checked.agent.name:
            refuse("model", f"The call was made by {task.agent}: send its output to that model.")
        if checked.previous is not None and checked.previous.task.task_id != task.task_id:
            refuse("previous_response_id", "The call was made by another response: give its id.")
        if checked.thread_id not in (None, task.thread_id):
            refuse("conversation", "The call was made in another conversation: give its id.")
        values, messages = await collect_answers(
            self._hub, who.principal, task, conversation.answers, decode_item_answer, checked.extension, _WORDS
        )
        run_input = await self._input(checked, (*messages, *checked.sent.new_messages))
        return await self._hub.answer(who.principal, make_answers(task.task_id, values, run_input, checked.extension))


def _losses(body: w.ResponseCreate, agent: AgentInfo, writer: ResponseWriter) -> Sequence[Loss]:
    """Return the losses of a request: the tools that it declares, and its items that only a server of this API
    understands.

    Return () if the agent's server speaks this API. The tools are not lost if the agent has called one of them.
    """
    if has_openai_api(agent):
        return ()
    losses: list[Loss] = []
    if without_ask(body.config()).get("tools") and not writer.has_called:
        losses.append(Loss(feature=Feature.CALLER_TOOLS.value, how=RESPONSES[Feature.CALLER_TOOLS].how))
    if kinds := sorted({str(item.type) for item in body.items if item.verbatim is not None}):
        losses.append(Loss(feature=Feature.CUSTOM.value, how=f"input items of the types {', '.join(kinds)}"))
    return losses

"""POST /v1/messages: starts a run, or answers the question of a waiting task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from litestar import Response

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.carries import CARRIES, VERSION
from babelgate.adapters.anthropic.codec.blocks import refuse
from babelgate.adapters.anthropic.codec.messages import Conversation, decode_messages
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.settings import (
    decode_settings,
    has_ask_tool,
    schema_of,
    settings_extra,
    settings_in,
    without_ask,
)
from babelgate.adapters.anthropic.server.answers import message_headers
from babelgate.adapters.anthropic.server.follow import MessageReading
from babelgate.adapters.anthropic.server.lookup import collect_answers, find_agent, find_asking_task
from babelgate.adapters.anthropic.server.text_questions import (
    MessageQuestion,
    find_question_in,
    find_question_on,
    stored_members,
)
from babelgate.adapters.anthropic.write.message import WORDS
from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller, end_or_leave
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.canonical import (
    AgentInfo,
    Answers,
    FaultCode,
    FaultError,
    Feature,
    Hub,
    Message,
    Receipt,
    RunInput,
    Submission,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject, is_uuid

HEARTBEAT: Final = 15.0
"""Seconds between comments in an idle stream, which keep proxies from closing the connection. Chosen, as in the other
protocols."""
THREAD_HEADER: Final = "Babelgate-Thread"
"""Request header with which a caller names a thread. The response has it, too."""
_THREAD: Final = "thread_id"
"""Member of a request's metadata with which a caller names a thread."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Thread that a request names: its id or its name, and whether it exists. Without either, the run gets a new thread
    that is not stored."""

    thread_id: str | None = None
    alias: str | None = None
    is_known: bool = False

    @property
    def is_stored(self) -> bool:
        return self.thread_id is not None or self.alias is not None


@dataclass(frozen=True, slots=True)
class _Begun:
    """Run that a request has started or resumed."""

    receipt: Receipt
    cancels: bool
    """True if the run is cancelled when the caller disconnects, because its message is not stored and cannot be read
    later."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One decoded request."""

    who: Caller
    body: w.MessageCreate
    agent: AgentInfo
    conversation: Conversation
    settings: JsonObject
    place: _Place
    in_words: bool
    """True if the caller sees questions as text, so that its user messages may answer an open question."""


class CreateMessage(Handlers):
    """Handler of the route that creates messages."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Start or resume a run, and respond with its message, whole or streamed. Raises invalid for a malformed body,
        unsupported for content that the gateway does not have, not_found for an unknown model, and not_awaiting for an
        answer to a closed question."""
        who = caller(request)
        raw_body = await read_json(request)
        body = validate(w.MessageCreate, raw_body)
        settings = settings_in(as_object(raw_body))
        await self._check_schema(who, settings)
        agent = find_agent(self._hub, who, body.model)
        call = _Call(
            who=who,
            body=body,
            agent=agent,
            conversation=Conversation.of(body),
            settings=settings,
            place=await self._place(request, who, body, agent),
            in_words=not has_ask_tool(settings),
        )
        begun = await self._begin(call)
        receipt = begun.receipt
        reading = MessageReading(self._hub, who, receipt.task, receipt.run_id)
        on_disconnect = canceller(self._hub, who.principal, receipt.run_id, begun.cancels)
        headers = message_headers(receipt, receipt.run_id)
        if body.stream:
            frames = DisconnectNotifier(reading.frames(), on_disconnect)
            return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
        await end_or_leave(reading.follow(), request.receive, on_disconnect)
        return await reading.response(headers, losses=_losses(call, has_called=reading.writer.has_called))

    async def _check_schema(self, who: Caller, settings: JsonObject) -> None:
        """Raise invalid for a format of the answer that is unknown, or whose schema is not valid, before a run
        starts."""
        if as_object(settings.get("output_config")).get("format") is None:
            return
        schema = schema_of(settings)
        if schema is None:
            refuse("output_config.format", "It must have the type json_schema, and a schema that is an object.")
        try:
            await self._hub.find_schema_error(who.principal, schema, None)
        except FaultError as error:
            refuse("output_config.format.schema", error.fault.message)

    async def _place(self, request: AnyRequest, who: Caller, body: w.MessageCreate, agent: AgentInfo) -> _Place:
        """Return the thread that a request names, by the header `Babelgate-Thread` or by `thread_id` in its metadata: a
        UUID, or a name that the caller chose. Raises invalid for any other value."""
        value: Json = request.headers.get(THREAD_HEADER) or (body.metadata or {}).get(_THREAD)
        if value is None:
            return _Place()
        if not isinstance(value, str) or not value:
            refuse(f"metadata.{_THREAD}", "It must be a text that is not empty.")
        if not is_uuid(value):
            existing_id = await self._hub.reads.thread_of(who.principal, PROTOCOL, agent.name, value)
            return _Place(alias=value, is_known=existing_id is not None)
        thread_id = str(UUID(value))
        try:
            await self._hub.reads.thread(who.principal, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return _Place(thread_id=thread_id)
        return _Place(thread_id=thread_id, is_known=True)

    async def _begin(self, call: _Call) -> _Begun:
        """Start a run with the new messages, or answer a question with them. Raises the faults of the hub's `submit`
        and `answer`."""
        conversation = call.conversation
        if conversation.answers:
            return await self._answer(call)
        if not any(message.role != "system" for message in conversation.new_messages):
            refuse("messages", "The last message calls a tool. Add the tool's result or a user message.")
        before, news = decode_messages(conversation.before), decode_messages(conversation.new_messages)
        members: JsonObject = {WORDS: True} if call.in_words else {}
        if call.in_words and not call.place.is_stored:
            members |= stored_members((*before, *news))
        spoken_messages = [message for message in news if message.role != "system"]
        if call.in_words and all(message.role == "user" for message in spoken_messages):
            question = await self._find_question(call, before)
            if question is not None:
                return await self._answer_in_words(call, question, spoken_messages, members)
        return await self._submit(call, before, news, members)

    async def _submit(
        self, call: _Call, before: Sequence[Message], news: Sequence[Message], members: JsonObject
    ) -> _Begun:
        """Start a run with the new messages. `members` are stored in the run's input, for later requests of the
        conversation."""
        place, who = call.place, call.who
        # An existing thread has its history already; a new thread receives that of the request.
        history = () if place.is_known else before
        submission = Submission(
            agent=call.agent.name,
            protocol=PROTOCOL,
            version=VERSION,
            input=await self._input(call, news, members),
            thread_id=place.thread_id,
            alias=place.alias,
            history=await resolve_own_files(self._hub, who, history),
            ephemeral=not place.is_stored,
        )
        return _Begun(await self._hub.submit(who.principal, submission), cancels=not place.is_stored)

    async def _input(self, call: _Call, messages: Sequence[Message], members: JsonObject) -> RunInput:
        """Return the input of a run with the messages. `members` are stored in its `extra`."""
        settings = call.settings if has_messages_api(call.agent) else without_ask(call.settings)
        return RunInput(
            messages=await resolve_own_files(self._hub, call.who, messages),
            config=decode_settings(settings),
            metadata=dict(call.body.metadata or {}),
            headers=call.who.headers,
            extra=settings_extra(settings if has_messages_api(call.agent) else None, members),
        )

    # Answers

    async def _find_question(self, call: _Call, before: Sequence[Message]) -> MessageQuestion | None:
        """Return the question, shown as text, that the new user messages answer. Return None if no question is open."""
        place, principal, agent = call.place, call.who.principal, call.agent.name
        if not place.is_stored:
            return await find_question_in(self._hub, principal, agent, before)
        thread_id = place.thread_id
        if thread_id is None and place.alias is not None:
            thread_id = await self._hub.reads.thread_of(principal, PROTOCOL, agent, place.alias)
        if thread_id is None or not place.is_known:
            return None
        return await find_question_on(self._hub, principal, agent, thread_id)

    async def _answer_in_words(
        self, call: _Call, question: MessageQuestion, messages: Sequence[Message], members: JsonObject
    ) -> _Begun:
        """Answer a question that was shown as text, with the text of the new user messages. Return the resumed run."""
        values, input_messages = question.answer(messages)
        run_input = await self._input(call, input_messages, members)
        answers = Answers(
            task_id=question.task.task_id, values=values, input=run_input, is_text=True, protocol=PROTOCOL
        )
        return await self._resume(call, answers)

    async def _answer(self, call: _Call) -> _Begun:
        """Answer questions that were shown as tool calls, with the tool results in the conversation. Return the resumed
        run."""
        who, conversation = call.who, call.conversation
        task = await find_asking_task(self._hub, who.principal, conversation.answers[0].task_id)
        if task.agent != call.agent.name:
            refuse("model", f"The tool was called by {task.agent}: send its result to that model.")
        found = await collect_answers(self._hub, who.principal, task, conversation.answers)
        others = decode_messages(conversation.new_messages)
        members: JsonObject = {WORDS: True} if call.in_words else {}
        if call.in_words and not call.place.is_stored:
            members |= stored_members((*decode_messages(conversation.before), *found.messages, *others))
        run_input = await self._input(call, (*found.messages, *others), members)
        answers = Answers(
            task_id=task.task_id,
            values=None if found.is_declined else found.values,
            input=run_input,
            is_text=True,
            action="decline" if found.is_declined else "answer",
            protocol=PROTOCOL,
        )
        return await self._resume(call, answers)

    async def _resume(self, call: _Call, answers: Answers) -> _Begun:
        principal = call.who.principal
        receipt = await self._hub.answer(principal, answers)
        thread = await self._hub.reads.thread(principal, receipt.thread_id)
        return _Begun(receipt, cancels=thread.ephemeral)


def has_messages_api(agent: AgentInfo) -> bool:
    """Return True if the agent's own server speaks this API."""
    return PROTOCOL in agent.metadata


def _losses(call: _Call, *, has_called: bool) -> Sequence[Loss]:
    """Return the loss to report if the agent may not call the tools that the request declares. Return () if there are
    no such tools, if the agent's server speaks this API, or if the agent has called one of the tools."""
    if not without_ask(call.settings).get("tools") or has_messages_api(call.agent) or has_called:
        return ()
    return (Loss(feature=Feature.CALLER_TOOLS.value, how=CARRIES[Feature.CALLER_TOOLS].how),)

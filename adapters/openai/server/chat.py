"""POST /v1/chat/completions: starts a run, or answers the question of a waiting task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from litestar import Response

from babelgate.adapters.kit.extension import decode_request, messages_of, with_uploads
from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller, end_or_leave
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.openai.carries import CHAT, CHAT_VERSION
from babelgate.adapters.openai.codec.messages import ChatConversation, decode_answer, decode_messages, refuse
from babelgate.adapters.openai.codec.names import api_extra
from babelgate.adapters.openai.codec.questions import has_ask_tool, questions_extra, without_ask
from babelgate.adapters.openai.server.answers import collect_answers, make_answers
from babelgate.adapters.openai.server.completion import Completion
from babelgate.adapters.openai.server.lookup import CallWords, find_agent, find_asking_task, has_openai_api
from babelgate.adapters.openai.server.text_questions import (
    SentMessages,
    TextQuestion,
    can_receive_question_calls,
    find_question_in,
    find_question_on,
)
from babelgate.adapters.openai.wire import requests as w
from babelgate.adapters.openai.write.completion import CompletionWriter
from babelgate.canonical import (
    AgentInfo,
    FaultCode,
    FaultError,
    Feature,
    Hub,
    Message,
    Principal,
    Receipt,
    RunInput,
    Submission,
)
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject, is_uuid

_WORDS: Final = CallWords(call="tool call", result="result", field="messages")

_HEARTBEAT: Final = 15.0
"""Seconds between comments in an idle stream, which keep proxies from closing the connection. Chosen, not measured."""
_THREAD: Final = "thread_id"
"""Member of a request's metadata with which a caller names a thread."""

_Place = tuple[str | None, str | None, bool]
"""Thread that a request names: its id or None, its name or None, and True if it exists. Without an id and a name, the
run gets a new thread."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """Run that a request has started or resumed."""

    receipt: Receipt
    cancels: bool
    """True if the run is cancelled when the caller disconnects, because its completion is not stored and cannot be read
    later."""


class ChatCompletions(Handlers):
    """Handler of the route that creates chat completions."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Start or resume a run, and respond with its completion, whole or streamed. Raises invalid for a malformed
        body, unsupported for an option that the gateway does not have, not_found for an unknown model, and not_awaiting
        for an answer to a closed question."""
        who = caller(request)
        body = validate(w.ChatCreate, await read_json(request))
        # SPEC/chat/completion_create_params.py, n: "How many chat completion choices to generate".
        if body.n not in (None, 1):
            raise FaultError(FaultCode.UNSUPPORTED, "n: Only 1 is supported.", errors=[_error("n", "It must be 1.")])
        extended = body.babelgate is not None or is_activated(request)
        schema = await self._schema(who.principal, body)
        agent = find_agent(self._hub, who.principal, body.model)
        conversation = ChatConversation.of(body.messages)
        in_words = not (extended or has_ask_tool(body.config()) or can_receive_question_calls(request))
        begun = await self._begin(who, body, agent, conversation, in_words=in_words)
        receipt = begun.receipt
        completion = Completion(
            self._hub, who.principal, receipt.task, receipt.run_id, receipt.created_at, schema, extended=extended
        )
        on_disconnect = canceller(self._hub, who.principal, receipt.run_id, begun.cancels)
        headers = {**run_headers(receipt), **confirm(active=extended)}
        if body.stream:
            # SPEC/chat/chat_completion_stream_options_param.py, include_usage.
            counts = bool(body.stream_options and body.stream_options.include_usage)
            frames = DisconnectNotifier(completion.frames(counts=counts), on_disconnect)
            return event_stream(frames, ping=_HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
        await end_or_leave(completion.follow(), request.receive, on_disconnect)
        return await completion.response(headers, losses=_losses(body, agent, completion.writer))

    async def _schema(self, principal: Principal, body: w.ChatCreate) -> JsonObject | None:
        """Return the JSON Schema that the request demands of the answer, or None for any text. Raises invalid for a
        schema that is not valid, before a run starts."""
        form = body.response_format
        if form is None or form.type == "text":
            return None
        # SPEC/shared_params/response_format_json_object.py: any object.
        if form.type == "json_object":
            return {"type": "object"}
        # SPEC/shared_params/response_format_json_schema.py does not require `schema`; the gateway cannot check without.
        if form.json_schema is None or form.json_schema.schema_ is None:
            refuse("response_format.json_schema", "The field schema is required.")
        try:
            await self._hub.find_schema_error(principal, form.json_schema.schema_, None)
        except FaultError as error:
            refuse("response_format.json_schema.schema", error.fault.message)
        return form.json_schema.schema_

    # Runs

    async def _begin(
        self, who: Caller, body: w.ChatCreate, agent: AgentInfo, conversation: ChatConversation, *, in_words: bool
    ) -> _Begun:
        """Start a run with the new messages, or answer a question with them. If `in_words`, the caller sees questions
        as text, so that user messages may be an answer. Raises the faults of the hub's `submit` and `answer`."""
        sent = SentMessages(
            partial(decode_messages, conversation.before), partial(decode_messages, conversation.new_messages)
        )
        members: JsonObject = {}
        if in_words:
            is_on_thread = (body.metadata or {}).get(_THREAD) is not None
            members = {**questions_extra(in_words=True), **({} if is_on_thread else sent.stored_members())}
        if conversation.answers:
            return await self._answer(who, body, agent, conversation, members)
        if not conversation.new_messages:
            refuse("messages", "The last message calls a tool. Add the tool's result or a user message.")
        place = await self._thread(who, body, agent)
        if in_words and all(message.role == "user" for message in conversation.new_messages):
            question = await self._find_question(who, agent, sent, place)
            if question is not None:
                return await self._answer_in_words(who, body, agent, sent, question, members)
        return await self._submit(who, body, agent, sent, place, members)

    async def _submit(
        self, who: Caller, body: w.ChatCreate, agent: AgentInfo, sent: SentMessages, place: _Place, members: JsonObject
    ) -> _Begun:
        """Start a run with the new messages on the thread `place`. `members` are stored in the run's input, for later
        requests of the conversation. Raises the faults of the hub's `submit`."""
        extension = decode_request(body.babelgate)
        thread_id, alias, is_known = place
        # SPEC/chat/completion_create_params.py, store: a completion is stored only on request.
        is_stored = thread_id is not None or alias is not None or bool(body.store)
        # An existing thread has its history already; a new thread receives that of the request.
        history = () if is_known or extension.start.fork is not None else sent.before
        submission = Submission(
            agent=agent.name,
            protocol="openai",
            version=CHAT_VERSION,
            input=await self._input(
                who,
                body,
                agent,
                with_uploads(extension, messages_of(extension) or sent.new_messages),
                members,
                len(extension.uploads),
            ),
            thread_id=thread_id,
            alias=alias,
            history=await resolve_own_files(self._hub, who, history),
            ephemeral=not is_stored,
        )
        receipt = await self._hub.submit(who.principal, extension.start.apply(submission))
        return _Begun(receipt, cancels=not is_stored)

    async def _input(
        self,
        who: Caller,
        body: w.ChatCreate,
        agent: AgentInfo,
        messages: Sequence[Message],
        members: JsonObject,
        uploaded: int = 0,
    ) -> RunInput:
        """Return the input of a run with the messages. `members` are stored in its `extra`. `uploaded` is the number of
        files at the end of the last message that came through the Babelgate extension."""
        extension, config = decode_request(body.babelgate), body.config()
        if not has_openai_api(agent):
            config = without_ask(config)
        if extension.tools is not None:
            config["tools"] = list(extension.tools)
        return RunInput(
            messages=await resolve_own_files(self._hub, who, messages),
            uploaded=uploaded,
            config=config,
            metadata=dict(body.metadata or {}) if extension.metadata is None else extension.metadata,
            headers=who.headers,
            extra=api_extra(CHAT_VERSION, members),
        )

    async def _thread(self, who: Caller, body: w.ChatCreate, agent: AgentInfo) -> _Place:
        """Return the thread that `thread_id` in the request's metadata names: a UUID, or a name that the caller chose.
        Raises invalid for an empty text."""
        thread_name = (body.metadata or {}).get(_THREAD)
        if thread_name is None:
            return None, None, False
        if not thread_name:
            refuse(f"metadata.{_THREAD}", "It must not be empty.")
        if not is_uuid(thread_name):
            existing_id = await self._hub.reads.thread_of(who.principal, "openai", agent.name, thread_name)
            return None, thread_name, existing_id is not None
        thread_id = str(UUID(thread_name))
        try:
            await self._hub.reads.thread(who.principal, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return thread_id, None, False
        return thread_id, None, True

    # Answers

    async def _find_question(
        self, who: Caller, agent: AgentInfo, sent: SentMessages, place: _Place
    ) -> TextQuestion | None:
        """Return the question, shown as text, that the new user messages answer. Return None if no question is open."""
        thread_id, alias, is_known = place
        if thread_id is None and alias is None:
            return await find_question_in(self._hub, who.principal, agent.name, sent.before)
        if thread_id is None and alias is not None:
            thread_id = await self._hub.reads.thread_of(who.principal, "openai", agent.name, alias)
        if thread_id is None or not is_known:
            return None
        return await find_question_on(self._hub, who.principal, agent.name, thread_id)

    async def _answer_in_words(
        self,
        who: Caller,
        body: w.ChatCreate,
        agent: AgentInfo,
        sent: SentMessages,
        question: TextQuestion,
        members: JsonObject,
    ) -> _Begun:
        """Answer a question that was shown as text, with the text of the new user messages. Return the resumed run."""
        values, messages = question.answer(sent.new_messages)
        run_input = await self._input(who, body, agent, messages, members)
        answers = make_answers(question.task.task_id, values, run_input, decode_request(None))
        receipt = await self._hub.answer(who.principal, answers)
        thread = await self._hub.reads.thread(who.principal, question.task.thread_id)
        return _Begun(receipt, cancels=thread.ephemeral)

    async def _answer(
        self, who: Caller, body: w.ChatCreate, agent: AgentInfo, conversation: ChatConversation, members: JsonObject
    ) -> _Begun:
        """Answer questions that were shown as tool calls, with the tool results in the conversation. Return the resumed
        run."""
        task = await find_asking_task(self._hub, who.principal, conversation.answers[0].task_id, _WORDS)
        if task.agent != agent.name:
            refuse("model", f"The tool was called by {task.agent}: send its result to that model.")
        extension = decode_request(body.babelgate)
        extension.start.check_absent()
        values, messages = await collect_answers(
            self._hub,
            who.principal,
            task,
            conversation.answers,
            lambda answer, schema: decode_answer(answer.text, schema),
            extension,
            _WORDS,
        )
        run_input = await self._input(who, body, agent, (*messages, *decode_messages(conversation.others)), members)
        receipt = await self._hub.answer(who.principal, make_answers(task.task_id, values, run_input, extension))
        thread = await self._hub.reads.thread(who.principal, task.thread_id)
        return _Begun(receipt, cancels=thread.ephemeral)


def _losses(body: w.ChatCreate, agent: AgentInfo, writer: CompletionWriter) -> Sequence[Loss]:
    """Return the loss of the tools that the request declares. Return () if the agent's server speaks this API, or if
    the agent has called one of the tools."""
    if not without_ask(body.config()).get("tools") or has_openai_api(agent) or writer.has_called:
        return ()
    return (Loss(feature=Feature.CALLER_TOOLS.value, how=CHAT[Feature.CALLER_TOOLS].how),)


def _error(field: str, words: str) -> Mapping[str, str]:
    return {"field": field, "description": words}

"""Creation of runs. Converts the body of a request to what the hub needs: a new input, or the answers that resume a
paused task.

`prepare` detects every error in a request and changes nothing; `PreparedRun.start` commits the run.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import replace

from babelgate.adapters.kit.extension import URI, Request, decode_request, messages_of, with_uploads
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.langchain.codec import state
from babelgate.adapters.langchain.codec.caller_tools import decode_result
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, CALL
from babelgate.adapters.langchain.codec.stream_modes import Dialect, parse_modes
from babelgate.adapters.langchain.errors.encode import BAD_REQUEST
from babelgate.adapters.langchain.server.answers import ids
from babelgate.adapters.langchain.server.dialect import dialect_of
from babelgate.adapters.langchain.server.lookup import find_assistant, read_history, thread_not_found
from babelgate.adapters.langchain.server.parameters import Connection, checkpoint_of, uuid
from babelgate.adapters.langchain.wire.requests import Config, RunCreate
from babelgate.canonical import (
    AgentInfo,
    Answers,
    Assistant,
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Hub,
    Interrupt,
    Message,
    Principal,
    Receipt,
    RunInput,
    Submission,
    Task,
    TaskFilter,
    Webhook,
)
from babelgate.canonical.fault import BUSY
from babelgate.canonical.feature import Feature
from babelgate.canonical.json import as_object
from babelgate.canonical.state import WAITING
from babelgate.canonical.thread import Loss, next_run_id
from babelgate.canonical.value import Json, JsonObject

WEBHOOK: Final = "langgraph"
"""Name by which the gateway finds the `Writer` of this protocol's webhooks."""

_GRAPH_ID: Final = re.compile(r"[0-9a-f]{32}")
"""Form of the ids that langgraph 1.2 gives to questions (pregel/_utils.py, is_xxh3_128_hexdigest)."""
_MAX_NAMES: Final = 100
"""Maximum number of members in an object that may be answers by question id. Chosen: each name is looked up in the
database."""
_NOT_IN_KWARGS: Final = frozenset(
    {
        "assistant_id",
        "agent_id",
        "thread_id",
        "metadata",
        "multitask_strategy",
        "if_not_exists",
        "on_completion",
        "on_disconnect",
        "after_seconds",
        "stream_subgraphs",
        "stream_resumable",
    }
)
"""Members of a request that are not repeated in the `kwargs` of the run, because LangGraph shows them elsewhere or
under another name."""


def bad_request(message: str) -> FaultError:
    """Return the fault for a malformed request to which LangGraph responds with HTTP status 400. Most others get
    422."""
    return FaultError(FaultCode.INVALID, message, reason=BAD_REQUEST)


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was committed, and the request that started it."""

    receipt: Receipt
    launch: "PreparedRun"

    @property
    def headers(self) -> dict[str, str]:
        return ids(self.receipt) | loss_header(self.launch.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A validated request for a run, not yet committed."""

    hub: Hub
    principal: Principal
    dialect: Dialect
    agent: AgentInfo
    modes: tuple[str, ...]
    subgraphs: bool
    cancels: bool
    """True if the run is cancelled when its caller disconnects."""
    losses: tuple[Loss, ...]
    extended: bool
    """True if the request has a part for the Babelgate extension, so that the response uses the extension, too."""
    ask: Submission | tuple[Answers, ...]
    """New input for the agent, or one set of answers for each task that the request answers."""

    async def start(self) -> Started:
        """Commit the run, and return it with the hub's receipt. Raises the faults of the hub's `submit` and `answer`,
        and conflict if the question has been answered or its run has ended."""
        if isinstance(self.ask, tuple):
            if len(self.ask) > 1:  # questions of several tasks: all of the answers, or none
                for answers in self.ask:
                    await self.hub.check_answers(self.principal, answers)
            receipts = [await self._answer(answers) for answers in self.ask]
            return Started(receipts[-1], self)
        try:
            receipt = await self.hub.submit(self.principal, self.ask)
        except FaultError as error:
            raise thread_not_found(error, self.ask.thread_id or "") from error
        return Started(receipt, self)

    async def _answer(self, answers: Answers) -> Receipt:
        try:
            return await self.hub.answer(self.principal, answers)
        except FaultError as error:
            if error.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise FaultError(FaultCode.CONFLICT, "The question has been answered, or its run has ended.") from error
            raise


async def prepare(hub: Hub, connection: Connection, body: RunCreate, thread_id: str | None = None) -> PreparedRun:
    """Return the validated run of a request. `thread_id` is the thread in the path, or None for a route without one.
    Raises invalid for a malformed body, unsupported for an option that the agent does not have, not_found for an
    unknown assistant, thread or checkpoint, and conflict for an answer to a closed question."""
    return await prepare_for(hub, caller(connection), dialect_of(connection), body, thread_id)


async def prepare_for(
    hub: Hub, who: Caller, base: Dialect, body: RunCreate, thread_id: str | None = None, run_id: str | None = None
) -> PreparedRun:
    """Return the validated run of a body. `thread_id` is the thread in the path; None means the thread in the body, or
    a new one.

    `base` is the dialect of the path. `run_id` is the id of the new run; None lets the hub choose it. Raises invalid
    for a malformed body, unsupported for an option that the agent does not have, not_found for an unknown assistant,
    thread or checkpoint, and conflict for an answer to a closed question.
    """
    extended = URI in (body.metadata or {})
    body, extension = _read_extension(body)
    dialect: Dialect = "agent-protocol"
    # The root serves both dialects: LangGraph sends an `assistant_id`, the Agent Protocol an `agent_id` or neither.
    if body.assistant_id is not None and base == "langgraph":
        dialect = "langgraph"
    if thread_id is None and body.thread_id is not None:
        thread_id = uuid(body.thread_id, "thread")
    agent_name = body.assistant_id if body.assistant_id is not None else body.agent_id
    agent, assistant = await find_assistant(
        hub, who.principal, who.need_agent() if agent_name is None else agent_name, dialect
    )
    configurable = body.config.configurable if body.config is not None else None
    # langgraph-api 0.16.7: 400, with this text.
    if configurable and body.context:
        raise bad_request("Cannot specify both configurable and context: use one of them.")
    if assistant is not None:
        body = _apply_assistant(body, assistant)
    modes = parse_modes(_modes(body.stream_mode), dialect)
    command = {name: value for name, value in (body.command or {}).items() if value is not None or name == "resume"}
    assistant_id = state.assistant_id(agent.name) if assistant is None else assistant.assistant_id
    checkpoint = checkpoint_of(body.checkpoint, body.checkpoint_id, _checkpoint(configurable))
    common = _Common(hub, who, dialect, agent, body, thread_id, agent_name, assistant_id, run_id, extension)
    if extension.answered or extension.declined:
        ask = await _extension_answers(common)
    elif "resume" in command:
        ask = await _resume(common, command, checkpoint)
    elif command and not agent.stateful:
        raise _needs_state(command)
    # langgraph-api 0.16.7: after interrupt_before, a run without an input resumes. aegra 0.11.0 responds with 422.
    elif checkpoint is None and _is_without_input(body) and (breakpoints := await _breakpoints(common)):
        ask = await _resume_answers(common, {"resume": dict.fromkeys(breakpoints)})
    else:
        ask = await _submission(common, checkpoint)
    return PreparedRun(
        hub=hub,
        principal=who.principal,
        dialect=dialect,
        agent=agent,
        modes=modes,
        subgraphs=bool(body.stream_subgraphs),
        cancels=(body.on_disconnect or _DEFAULT_ON_DISCONNECT[dialect]) == "cancel",
        losses=tuple(_losses(body, agent, resumed="resume" in command)),
        extended=extended,
        ask=ask,
    )


def _read_extension(body: RunCreate) -> tuple[RunCreate, Request]:
    """Split a request into the members of LangGraph, and the part for the Babelgate extension, which is in its
    metadata. Raises invalid if that part is malformed."""
    metadata = dict(body.metadata or {})
    extension = decode_request(metadata.pop(URI, None))
    return body.model_copy(update={"metadata": metadata}) if body.metadata and URI in body.metadata else body, extension


def _apply_assistant(body: RunCreate, assistant: Assistant) -> RunCreate:
    """Return the request with the configuration, context and metadata of its assistant added. Members of the request
    take precedence, as in langgraph-api 0.16.7."""
    body_config = {} if body.config is None else body.config.model_dump(exclude_unset=True)
    config: JsonObject = {**assistant.config, **body_config}
    metadata = {**assistant.metadata, **as_object(body_config.get("metadata")), **(body.metadata or {})}
    configurable, context = as_object(body_config.get("configurable")), body.context or {}
    settings = {**as_object(assistant.config.get("configurable")), **assistant.context, **configurable, **context}
    # Graphs may read the settings under either name, but the request has only one of them.
    as_context = bool(context) or (bool(assistant.context) and not configurable)
    config.pop("configurable", None)
    if settings and not as_context:
        config["configurable"] = settings
    if metadata:
        config["metadata"] = metadata
    changes: JsonObject = {"config": Config.model_validate(config), "metadata": metadata}
    return body.model_copy(update={**changes, "context": settings} if as_context else changes)


# The README's layout: cancel. langgraph-api 0.16.7: continue.
_DEFAULT_ON_DISCONNECT: Final[Mapping[Dialect, str]] = {"langgraph": "continue", "agent-protocol": "cancel"}
# The README's layout: reject. langgraph-api 0.16.7: enqueue.
_DEFAULT_STRATEGY: Final[Mapping[Dialect, Any]] = {"langgraph": "enqueue", "agent-protocol": "reject"}


@dataclass(frozen=True, slots=True)
class _Common:
    """Properties of a request that are needed for a new input and for answers."""

    hub: Hub
    who: Caller
    dialect: Dialect
    agent: AgentInfo
    body: RunCreate
    thread_id: str | None
    assistant: str | None
    """Name of the agent or id of the assistant, as the caller sent it. None: the request names neither."""
    assistant_id: str
    run_id: str | None
    extension: Request
    """Part of the request for the Babelgate extension; empty if the request has none."""

    @property
    def metadata(self) -> JsonObject:
        """Metadata of the run, as the caller sent them.

        If the caller is another Babelgate, the extension has the metadata of that gateway's caller. They replace the
        member `metadata`, to which the LangGraph client adds members.
        """
        return (self.body.metadata or {}) if self.extension.metadata is None else self.extension.metadata

    @property
    def principal(self) -> Principal:
        return self.who.principal

    @property
    def config(self) -> JsonObject:
        """Configuration of the run for the hub. For a graph, it also has options such as `durability` and
        `interrupt_before`."""
        body = self.body
        config = body.config.model_dump(exclude_unset=True) if body.config is not None else {}
        if body.context:
            config["context"] = body.context
        if self.extension.tools is not None:
            config["tools"] = list(self.extension.tools)
        if not self.agent.stateful:
            return config
        # Options for graphs that are not part of their configuration.
        command = {name: value for name, value in (body.command or {}).items() if name in ("update", "goto")}
        config.pop("command", None)
        options = {
            "durability": body.durable,
            "interrupt_before": body.interrupt_before,
            "interrupt_after": body.interrupt_after,
            "command": command,
        }
        return config | {name: value for name, value in options.items() if value not in (None, {}, [])}

    def extra(self, *, ephemeral: bool = False, messages: Sequence[Message] = ()) -> JsonObject:
        """Return the `extra` of the run's input, which stores the request so that its run can be shown with the same
        `kwargs`.

        `ephemeral` is True if the thread is deleted after the run. If `messages` have files with bytes, the input is
        left out, because the log already stores it.
        """
        body = self.body
        kwargs = {
            name: value for name, value in body.model_dump(exclude_unset=True).items() if name not in _NOT_IN_KWARGS
        }
        if any(isinstance(part, FilePart) and part.inline for message in messages for part in message.parts):
            kwargs.pop("input", None)
            kwargs.pop("messages", None)
        if body.stream_subgraphs is not None:
            kwargs["subgraphs"] = body.stream_subgraphs
        if body.stream_resumable is not None:
            kwargs["resumable"] = body.stream_resumable
        if self.dialect == "langgraph":
            # langgraph-api 0.16.7 has this member in `kwargs`.
            kwargs["temporary"] = ephemeral
        request_extra: JsonObject = {"kwargs": kwargs, "dialect": self.dialect}
        if self.extension.metadata is not None and body.metadata:
            request_extra["metadata"] = body.metadata
        return {"langgraph": request_extra}

    def webhook(self, run_id: str) -> Webhook | None:
        """Return the webhook that the request demands for the run `run_id`, or None."""
        url = self.body.webhook
        if url is None:
            return None
        return Webhook(webhook_id=str(uuid4()), dialect=WEBHOOK, url=url, config={"run_id": run_id})


def _is_without_input(body: RunCreate) -> bool:
    """Return True if the request has no input and no messages, and is to start at once."""
    return body.input is None and body.messages is None and not body.after_seconds


async def _submission(common: _Common, checkpoint: str | None, resume: Json = None) -> Submission:
    """Return the submission of a new input. The run starts from `checkpoint`; None means the newest one. `resume` is an
    answer for a question that the graph will ask again during this run. Raises invalid for options that contradict each
    other or the thread, and unsupported for `on_completion: delete` where it has no effect."""
    body, thread_id = common.body, common.thread_id
    decoded = state.decode_input(body.input)
    messages = decoded.messages
    if body.messages is not None:
        messages = (*messages, *state.decode_messages(body.messages))
    messages = with_uploads(common.extension, messages_of(common.extension) or messages)
    messages = await resolve_own_files(common.hub, common.who, messages)
    # langgraph-api 0.16.7 ignores this member for a run on a thread.
    if body.on_completion not in (None, "delete", "keep") and (thread_id is None or common.dialect == "agent-protocol"):
        raise FaultError(FaultCode.INVALID, "on_completion: must be delete or keep")
    if body.on_completion == "delete" and thread_id is not None and common.dialect == "agent-protocol":
        raise FaultError(
            FaultCode.UNSUPPORTED,
            "on_completion: only a run without a thread_id can delete its thread; delete the thread instead",
        )
    if thread_id is None and checkpoint is not None:
        raise bad_request("You must provide a thread_id to start from a checkpoint.")
    # langgraph-api 0.16.7: a graph continues from its state, or from the checkpoint, and asks again.
    can_continue = common.agent.stateful or checkpoint is not None
    if thread_id is not None and not messages and decoded.data is None and not can_continue:
        await _check_questions(common, thread_id)
    config = common.config
    if resume is not None:
        config["command"] = {**as_object(config.get("command")), "resume": resume}
    # In both dialects, `on_completion` is `delete` by default.
    ephemeral = thread_id is None and body.on_completion != "keep"
    # Chat front ends find the threads of an assistant by these two names.
    marks = {"graph_id": common.agent.name, "assistant_id": common.assistant_id}
    run_id = common.run_id or (str(uuid4()) if body.webhook is not None else None)
    submission = Submission(
        agent=common.agent.name,
        protocol=common.dialect,
        input=RunInput(
            messages=messages,
            uploaded=len(common.extension.uploads),
            data=decoded.data,
            checkpoint=checkpoint,
            config=config,
            metadata=common.metadata,
            headers=common.who.headers,
            assistant=common.assistant,
            extra=common.extra(ephemeral=ephemeral, messages=messages),
        ),
        thread_id=thread_id,
        run_id=run_id,
        thread_metadata=marks if common.dialect == "langgraph" and not ephemeral else {},
        ephemeral=ephemeral,
        strategy=body.multitask_strategy or _DEFAULT_STRATEGY[common.dialect],
        supersede=True,
        start_in=round(body.after_seconds * 1_000_000) if body.after_seconds else None,
        # langgraph-api 0.16.7 refuses an unknown thread (404), unless the request asks to create it.
        if_missing="recreate" if thread_id is None or body.if_not_exists == "create" else "reject",
        webhook=None if run_id is None or body.webhook is None else common.webhook(run_id),
    )
    return common.extension.start.apply(submission)


async def _breakpoints(common: _Common) -> Sequence[str]:
    """Return the question ids of the breakpoints at which a graph on the thread has stopped. A request without an input
    resumes them. Return nothing if other questions are open, too."""
    if common.thread_id is None or not common.agent.stateful:
        return ()
    interrupt_ids = [
        question.interrupt_id for question in await open_questions(common.hub, common.principal, common.thread_id)
    ]
    return interrupt_ids if all(id_.startswith(BREAKPOINT) for id_ in interrupt_ids) else ()


async def _check_questions(common: _Common, thread_id: str) -> None:
    """Check a request without an input: the thread must not wait for an answer. The hub does not check this. Raises
    invalid if the thread waits for an answer."""
    if pending := await open_questions(common.hub, common.principal, thread_id):
        raise FaultError(
            FaultCode.INVALID,
            f"The thread waits for an answer, and neither an input nor command.resume is given. {_format_ids(pending)}",
            interrupts=[question.interrupt_id for question in pending],
        )


# Answers


async def _resume(common: _Common, command: JsonObject, checkpoint: str | None) -> Submission | tuple[Answers, ...]:
    """Return the answers to the thread's open questions. In two cases return a submission instead, whose graph asks the
    question again and gets the answer then.

    The cases are an older `checkpoint`, and a change of the state, which has closed the questions (langgraph-api
    0.16.7). `useStream` sends the newest checkpoint with each answer, so that checkpoint is no such case.
    """
    hub, principal, thread_id = common.hub, common.principal, common.thread_id
    if thread_id is None or not common.agent.stateful:
        return await _resume_answers(common, command, checkpoint)
    has_question = bool(await open_questions(hub, principal, thread_id))
    if checkpoint is None and has_question:
        return await _resume_answers(common, command)
    head = (await read_history(hub, principal, thread_id)).head
    if checkpoint is not None and (head is None or checkpoint != head.checkpoint_id):
        return await _resume_state(common, command, checkpoint)
    is_changed = head is not None and head.next and head.source in ("update", "fork")
    if is_changed and not has_question and (await hub.reads.thread_view(principal, thread_id)).status != "busy":
        await _check_names(common, thread_id, (), command["resume"])
        return await _resume_state(common, command, None)
    return await _resume_answers(common, command)


async def _resume_state(common: _Common, command: JsonObject, checkpoint: str | None) -> Submission:
    """Return a submission whose graph asks its question again and gets the answer of `command`. The run starts from
    `checkpoint`; None means the newest one. Raises unsupported if the run is delayed."""
    common.extension.start.check_absent()
    if common.body.after_seconds:
        raise _cannot_resume_later()
    value: Json = command["resume"]
    body = common.body.model_copy(update={"input": None, "messages": None})
    return await _submission(replace_fields(common, body=body), checkpoint, value)


def _cannot_resume_later() -> FaultError:
    return FaultError(
        FaultCode.UNSUPPORTED,
        "command.resume cannot be delayed (after_seconds), and takes a checkpoint only of a graph.",
    )


async def _resume_answers(common: _Common, command: JsonObject, checkpoint: str | None = None) -> tuple[Answers, ...]:
    """Return the answers of `command` to the thread's open questions, one `Answers` for each task. Raises unsupported
    with a `checkpoint`, and invalid, not_found, conflict."""
    body, thread_id = common.body, common.thread_id
    value: Json = command["resume"]
    common.extension.start.check_absent()
    if thread_id is None:
        # langgraph-api 0.16.7: 400, not 422.
        raise bad_request("You must provide a thread_id when resuming.")
    rest = {name: member for name, member in command.items() if name != "resume" and member not in ([], {})}
    if rest and not common.agent.stateful:
        raise _needs_state(rest)
    if body.after_seconds or checkpoint:
        raise _cannot_resume_later()
    questions = await open_questions(common.hub, common.principal, thread_id)
    if not questions:
        try:
            await common.hub.reads.thread(common.principal, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        raise FaultError(FaultCode.CONFLICT, "The thread has no open interrupt to resume.")
    # aegra 0.11.0 ignores the member, and runs both at once.
    if (body.multitask_strategy or _DEFAULT_STRATEGY[common.dialect]) == "reject":
        view = await common.hub.reads.thread_view(common.principal, thread_id)
        if view.status == "busy":
            raise FaultError(FaultCode.CONFLICT, f"Thread {thread_id} is busy.", reason=BUSY)
    await _check_names(common, thread_id, questions, value)
    by_task = _match_answers(questions, value)
    return tuple([await _answers(common, task_id, values, questions) for task_id, values in by_task.items()])


async def _check_names(common: _Common, thread_id: str, questions: Sequence[Interrupt], value: Json) -> None:
    """Check that all questions that an object names by id are open. Otherwise an answer that is sent twice would answer
    the next question. Raises conflict if one is not."""
    is_open = {question.interrupt_id for question in questions}
    if not isinstance(value, dict) or not value or value.keys() <= is_open or len(value) > _MAX_NAMES:
        return
    names = [*value, *(f"{CALL}{key}" for key in value)]
    # langgraph 1.2, pregel/_loop.py: an object with only such keys is answers by id.
    known_ids = await common.hub.reads.known_interrupts(common.principal, thread_id, names)
    if known_ids - is_open or not (known_ids or any(_GRAPH_ID.fullmatch(key) is None for key in value)):
        closed = ", ".join(key[:100] for key in value if key not in is_open)
        raise FaultError(
            FaultCode.CONFLICT,
            f"No question is open with the id {closed}: it was answered, or never asked. {_format_ids(questions)}",
            interrupts=[question.interrupt_id for question in questions],
        )


def _match_answers(pending: Sequence[Interrupt], value: Json) -> Mapping[str, Mapping[str, Json]]:
    """Return the answers by task id, then by question id. `value` has the answers by question id, or is the answer to
    the only question. Raises invalid if several questions are open and it names none."""
    if isinstance(value, dict) and value and value.keys() <= {question.interrupt_id for question in pending}:
        by_task: dict[str, dict[str, Json]] = {}
        for question in pending:
            if question.interrupt_id in value:
                answer = decode_result(question.message, value[question.interrupt_id])
                by_task.setdefault(question.task_id, {})[question.interrupt_id] = answer
        return by_task
    if len(pending) > 1:
        raise FaultError(
            FaultCode.INVALID,
            f"Several questions are open: command.resume must hold the answers by interrupt id. {_format_ids(pending)}",
            interrupts=[question.interrupt_id for question in pending],
        )
    return {pending[0].task_id: {pending[0].interrupt_id: decode_result(pending[0].message, value)}}


def _format_ids(questions: Sequence[Interrupt]) -> str:
    return f"Open interrupts: {', '.join(question.interrupt_id for question in questions)}"


async def _extension_answers(common: _Common) -> tuple[Answers, ...]:
    """Return the answers in the Babelgate extension's part of a request, one `Answers` for each task. They name their
    questions, and can decline them. Raises bad_request without a thread, and conflict."""
    extension, thread_id = common.extension, common.thread_id
    if thread_id is None:
        raise bad_request("You must provide a thread_id when resuming.")
    questions = await open_questions(common.hub, common.principal, thread_id)
    by_task: dict[str, list[str]] = {}
    for question in questions:
        if question.interrupt_id in extension.answered or question.interrupt_id in extension.declined:
            by_task.setdefault(question.task_id, []).append(question.interrupt_id)
    if not by_task:
        raise FaultError(FaultCode.CONFLICT, "The thread has no open interrupt of these ids.")
    return tuple([await _answers_of_task(common, task_id, names, questions) for task_id, names in by_task.items()])


async def _answers_of_task(
    common: _Common, task_id: str, names: Sequence[str], questions: Sequence[Interrupt]
) -> Answers:
    """Return the answers to questions of one task; `names` are the ids of the questions. If all of them are declined,
    the action is `decline`."""
    values = {name: common.extension.answered[name] for name in names if name in common.extension.answered}
    answers = await _answers(common, task_id, values, questions)
    return answers if values else replace(answers, values=None, action="decline")


async def _answers(
    common: _Common, task_id: str, values: Mapping[str, Json], questions: Sequence[Interrupt]
) -> Answers:
    """Return an `Answers` for one task with the `values` by question id, and the configuration, metadata and webhook of
    the request."""
    webhook = None
    if common.body.webhook is not None:
        stopped = next(question.run_id for question in questions if question.task_id == task_id)
        webhook = common.webhook(await _next_run(common, stopped))
    return Answers(
        task_id=task_id,
        values=values,
        input=RunInput(
            messages=await resolve_own_files(
                common.hub, common.who, (message for value in values.values() for message in _answer_messages(value))
            ),
            config=common.config,
            metadata=common.metadata,
            headers=common.who.headers,
            assistant=common.assistant,
            extra=common.extra(),
        ),
        protocol=common.dialect,
        webhook=webhook,
    )


def _answer_messages(value: Json) -> Sequence[Message]:
    """Return an answer as caller messages, for agents that take messages: text, the input of a chat `{"messages": …}`,
    or data."""
    if isinstance(value, str):
        return (Message.of(value, "user"),)
    if isinstance(value, dict) and value.keys() == {"messages"}:
        with suppress(FaultError):
            return state.decode_input(value).messages
    return (Message(role="user", parts=(DataPart(data=value),)),)


async def _next_run(common: _Common, stopped: str) -> str:
    """Return the id of the run that an answer will start, derived from `stopped`, the id of the run that asked. Derived
    ids that are in use are skipped: earlier answers to other questions of the same stop have started those runs."""
    run_id = next_run_id(stopped)
    while True:
        try:
            await common.hub.reads.run(common.principal, run_id)
        except FaultError as error:
            if error.fault.code is FaultCode.NOT_FOUND:
                return run_id
            raise
        run_id = next_run_id(run_id)


async def open_questions(hub: Hub, principal: Principal, thread_id: str) -> list[Interrupt]:
    """Return all open questions of a thread that any of its tasks asks, oldest first."""
    tasks: list[Task] = []
    cursor: str | None = None
    where = TaskFilter(thread_id=thread_id, states=WAITING)
    while True:
        page = await hub.reads.tasks(principal, where, limit=100, cursor=cursor)
        tasks += await page.tasks.all()
        cursor = page.next_cursor
        if cursor is None:
            break
    questions = [question for task in tasks for question in await hub.reads.open_interrupts(principal, task.task_id)]
    return sorted(questions, key=lambda question: question.raised_at)


def _needs_state(command: JsonObject) -> FaultError:
    """Return the fault for `command.update` or `command.goto`, which only agents with their own state accept."""
    names = ", ".join(sorted(f"command.{name}"[:50] for name in command))
    return FaultError(FaultCode.UNSUPPORTED, f"{names}: only an agent with a state of its own takes this.")


def _modes(value: str | list[str] | None) -> Json:
    return list(value) if isinstance(value, list) else value


def _checkpoint(configurable: JsonObject | None) -> Any:
    return (configurable or {}).get("checkpoint_id")


def _losses(body: RunCreate, agent: AgentInfo, *, resumed: bool) -> Sequence[Loss]:
    """Return the losses for options of the request that have no effect on this agent. `resumed` is True if the request
    answers a question."""
    losses: list[Loss] = []
    if (body.interrupt_before or body.interrupt_after) and not agent.stateful:
        losses.append(Loss(feature=Feature.QUESTION, how="interrupt_before, interrupt_after: the agent is not a graph"))
    if body.stream_subgraphs and not agent.stateful:
        losses.append(Loss(feature=Feature.STREAM, how="stream_subgraphs: the agent is not a graph"))
    if body.feedback_keys:
        losses.append(Loss(feature=Feature.METADATA, how="feedback_keys: there are no feedback URLs"))
    if resumed and body.input not in (None, {}, [], ""):
        losses.append(Loss(feature=Feature.STATE, how="input: ignored, because command.resume has the answer"))
    return losses

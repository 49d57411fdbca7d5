"""Creating runs: the body of a request → what the hub is asked for: a new input, or the answers that a paused task goes
on with.

`prepare` finds everything that is wrong with a request and changes nothing; `PreparedRun.start` commits it.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import replace

from babelgate.adapters.kit.extension import URI, Request, decode_request, given_messages, with_uploads
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
"""The dialect of the bodies that are posted when a run ends."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
"""How a graph names a question (langgraph 1.2, pregel/_utils.py, is_xxh3_128_hexdigest)."""
_NAMES: Final = 100
"""As many questions an answer may name."""
_NOT_KEPT: Final = frozenset(
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
"""Members of a request that its run shows elsewhere than in `kwargs`, or under another name."""


def bad_request(message: str) -> FaultError:
    """One of the few malformed requests that are answered 400 and not 422."""
    return FaultError(FaultCode.INVALID, message, reason=BAD_REQUEST)


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was committed, and how its caller wants to be told of it."""

    receipt: Receipt
    launch: "PreparedRun"

    @property
    def headers(self) -> dict[str, str]:
        return ids(self.receipt) | loss_header(self.launch.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    hub: Hub
    owner: str
    dialect: Dialect
    agent: AgentInfo
    modes: tuple[str, ...]
    subgraphs: bool
    cancels: bool
    """The run ends when its caller leaves."""
    losses: tuple[Loss, ...]
    extended: bool
    """The request says something by the Babelgate extension, which activates it."""
    ask: Submission | tuple[Answers, ...]

    async def start(self) -> Started:
        """Commit. Raises conflict, not_found, not_awaiting, queue_full."""
        if isinstance(self.ask, tuple):
            receipts = [await self._answer(answers) for answers in self.ask]
            return Started(receipts[-1], self)
        try:
            receipt = await self.hub.submit(self.owner, self.ask)
        except FaultError as error:
            raise thread_not_found(error, self.ask.thread_id or "") from error
        return Started(receipt, self)

    async def _answer(self, answers: Answers) -> Receipt:
        try:
            return await self.hub.answer(self.owner, answers)
        except FaultError as error:
            if error.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise FaultError(FaultCode.CONFLICT, "The question has been answered, or its run has ended.") from error
            raise


async def prepare(hub: Hub, connection: Connection, body: RunCreate, thread_id: str | None = None) -> PreparedRun:
    """Raises invalid, unsupported, not_found, conflict."""
    return await prepare_for(hub, caller(connection), dialect_of(connection), body, thread_id)


async def prepare_for(
    hub: Hub, who: Caller, base: Dialect, body: RunCreate, thread_id: str | None = None, run_id: str | None = None
) -> PreparedRun:
    """`base` = the dialect of the path; `run_id` = that of the run, where somebody has chosen one. Raises invalid,
    unsupported, not_found, conflict."""
    extended = URI in (body.metadata or {})
    body, told = _read_extension(body)
    dialect: Dialect = "agent-protocol"
    # At the root both are spoken: LangGraph names an `assistant_id` and the Agent Protocol an `agent_id`, or none.
    if body.assistant_id is not None and base == "langgraph":
        dialect = "langgraph"
    if thread_id is None and body.thread_id is not None:
        thread_id = uuid(body.thread_id, "thread")
    named = body.assistant_id if body.assistant_id is not None else body.agent_id
    agent, own = await find_assistant(hub, who.owner, who.need_agent() if named is None else named, dialect)
    configurable = body.config.configurable if body.config is not None else None
    # langgraph-api 0.16.7: 400, in these words.
    if configurable and body.context:
        raise bad_request("Cannot specify both configurable and context: use one of them.")
    if own is not None:
        body = _apply_assistant(body, own)
    modes = parse_modes(_modes(body.stream_mode), dialect)
    command = {name: value for name, value in (body.command or {}).items() if value is not None or name == "resume"}
    assistant_id = state.assistant_id(agent.name) if own is None else own.assistant_id
    checkpoint = checkpoint_of(body.checkpoint, body.checkpoint_id, _checkpoint(configurable))
    common = _Common(hub, who, dialect, agent, body, thread_id, named, assistant_id, run_id, told)
    if told.answered or told.declined:
        ask = await _extension_answers(common)
    elif "resume" in command:
        ask = await _resume(common, command, checkpoint)
    elif command and not agent.stateful:
        raise _needs_state(command)
    # langgraph-api 0.16.7: after interrupt_before a run without an input goes on. aegra 0.11.0 answers 422.
    elif checkpoint is None and _is_without_input(body) and (stopped := await _breakpoints(common)):
        ask = await _resume_answers(common, {"resume": dict.fromkeys(stopped)})
    else:
        ask = await _submission(common, checkpoint)
    return PreparedRun(
        hub=hub,
        owner=who.owner,
        dialect=dialect,
        agent=agent,
        modes=modes,
        subgraphs=bool(body.stream_subgraphs),
        cancels=(body.on_disconnect or _ON_DISCONNECT[dialect]) == "cancel",
        losses=tuple(_losses(body, agent, resumed="resume" in command)),
        extended=extended,
        ask=ask,
    )


def _read_extension(body: RunCreate) -> tuple[RunCreate, Request]:
    """The request without what it says by the extension, and that."""
    metadata = dict(body.metadata or {})
    told = decode_request(metadata.pop(URI, None))
    return body.model_copy(update={"metadata": metadata}) if body.metadata and URI in body.metadata else body, told


def _apply_assistant(body: RunCreate, own: Assistant) -> RunCreate:
    """With what the assistant says where the caller says nothing else, as langgraph-api 0.16.7 puts it together."""
    given = {} if body.config is None else body.config.model_dump(exclude_unset=True)
    config: JsonObject = {**own.config, **given}
    metadata = {**own.metadata, **as_object(given.get("metadata")), **(body.metadata or {})}
    configurable, context = as_object(given.get("configurable")), body.context or {}
    settings = {**as_object(own.config.get("configurable")), **own.context, **configurable, **context}
    # Each may be read under the other's name; said is only one of them.
    as_context = bool(context) or (bool(own.context) and not configurable)
    config.pop("configurable", None)
    if settings and not as_context:
        config["configurable"] = settings
    if metadata:
        config["metadata"] = metadata
    changes: JsonObject = {"config": Config.model_validate(config), "metadata": metadata}
    return body.model_copy(update={**changes, "context": settings} if as_context else changes)


# The README's layout: cancel. langgraph-api 0.16.7: continue.
_ON_DISCONNECT: Final[Mapping[Dialect, str]] = {"langgraph": "continue", "agent-protocol": "cancel"}
# The README's layout: reject. langgraph-api 0.16.7: enqueue.
_MULTITASK: Final[Mapping[Dialect, Any]] = {"langgraph": "enqueue", "agent-protocol": "reject"}


@dataclass(frozen=True, slots=True)
class _Common:
    """What inputs and answers are made from."""

    hub: Hub
    who: Caller
    dialect: Dialect
    agent: AgentInfo
    body: RunCreate
    thread_id: str | None
    assistant: str | None
    """As the caller named it."""
    assistant_id: str
    run_id: str | None
    told: Request
    """By the extension."""

    @property
    def metadata(self) -> JsonObject:
        """The run's: what is said by the extension is as its caller said it, without what its client has added."""
        return (self.body.metadata or {}) if self.told.metadata is None else self.told.metadata

    @property
    def owner(self) -> str:
        return self.who.owner

    @property
    def config(self) -> JsonObject:
        body = self.body
        config = body.config.model_dump(exclude_unset=True) if body.config is not None else {}
        if body.context:
            config["context"] = body.context
        if self.told.tools is not None:
            config["tools"] = list(self.told.tools)
        if not self.agent.stateful:
            return config
        # What a graph is told beside its configuration.
        command = {name: value for name, value in (body.command or {}).items() if name in ("update", "goto")}
        config.pop("command", None)
        told = {
            "durability": body.durable,
            "interrupt_before": body.interrupt_before,
            "interrupt_after": body.interrupt_after,
            "command": command,
        }
        return config | {name: value for name, value in told.items() if value not in (None, {}, [])}

    def extra(self, *, ephemeral: bool = False, messages: Sequence[Message] = ()) -> JsonObject:
        """The request as it was said, for the run's `kwargs`. Bytes of files are kept once, and not here."""
        body = self.body
        kept = {name: value for name, value in body.model_dump(exclude_unset=True).items() if name not in _NOT_KEPT}
        if any(isinstance(part, FilePart) and part.inline for message in messages for part in message.parts):
            kept.pop("input", None)
            kept.pop("messages", None)
        if body.stream_subgraphs is not None:
            kept["subgraphs"] = body.stream_subgraphs
        if body.stream_resumable is not None:
            kept["resumable"] = body.stream_resumable
        if self.dialect == "langgraph":
            # langgraph-api 0.16.7 has it among `kwargs`.
            kept["temporary"] = ephemeral
        own: JsonObject = {"kwargs": kept, "dialect": self.dialect}
        if self.told.metadata is not None and body.metadata:
            own["metadata"] = body.metadata
        return {"langgraph": own}

    def webhook(self, run_id: str) -> Webhook | None:
        url = self.body.webhook
        if url is None:
            return None
        return Webhook(webhook_id=str(uuid4()), dialect=WEBHOOK, url=url, config={"run_id": run_id})


def _is_without_input(body: RunCreate) -> bool:
    return body.input is None and body.messages is None and not body.after_seconds


async def _submission(common: _Common, checkpoint: str | None, resume: Json = None) -> Submission:
    """`resume` = the answer to a question that the graph asks on its way, where no open one is answered."""
    body, thread_id = common.body, common.thread_id
    given = state.decode_input(body.input)
    messages = given.messages
    if body.messages is not None:
        messages = (*messages, *state.decode_messages(body.messages))
    messages = with_uploads(common.told, given_messages(common.told) or messages)
    messages = await resolve_own_files(common.hub, common.who, messages)
    # langgraph-api 0.16.7 passes over the member of a run on a thread.
    if body.on_completion not in (None, "delete", "keep") and (thread_id is None or common.dialect == "agent-protocol"):
        raise FaultError(FaultCode.INVALID, "on_completion: must be delete or keep")
    if body.on_completion == "delete" and thread_id is not None and common.dialect == "agent-protocol":
        raise FaultError(
            FaultCode.UNSUPPORTED,
            "on_completion: only a run without a thread_id can delete its thread; delete the thread instead",
        )
    if thread_id is None and checkpoint is not None:
        raise bad_request("You must provide a thread_id to start from a checkpoint.")
    # langgraph-api 0.16.7: a graph goes on from its state, or from the checkpoint, and asks again.
    goes_on = common.agent.stateful or checkpoint is not None
    if thread_id is not None and not messages and given.data is None and not goes_on:
        await _check_questions(common, thread_id)
    config = common.config
    if resume is not None:
        config["command"] = {**as_object(config.get("command")), "resume": resume}
    # `on_completion` is `delete` unless the caller says otherwise, in either dialect.
    ephemeral = thread_id is None and body.on_completion != "keep"
    # Chat front ends look for the threads of an assistant by these two names.
    marks = {"graph_id": common.agent.name, "assistant_id": common.assistant_id}
    run_id = common.run_id or (str(uuid4()) if body.webhook is not None else None)
    submission = Submission(
        agent=common.agent.name,
        protocol=common.dialect,
        input=RunInput(
            messages=messages,
            uploaded=len(common.told.uploads),
            data=given.data,
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
        strategy=body.multitask_strategy or _MULTITASK[common.dialect],
        supersede=True,
        start_in=round(body.after_seconds * 1_000_000) if body.after_seconds else None,
        # langgraph-api 0.16.7 refuses an unknown thread (404) unless it is told to create it.
        if_missing="recreate" if thread_id is None or body.if_not_exists == "create" else "reject",
        webhook=None if run_id is None or body.webhook is None else common.webhook(run_id),
    )
    return common.told.start.apply(submission)


async def _breakpoints(common: _Common) -> Sequence[str]:
    """Where a graph stopped by itself on this thread: it goes on by a run without input."""
    if common.thread_id is None or not common.agent.stateful:
        return ()
    asked = [question.interrupt_id for question in await open_questions(common.hub, common.owner, common.thread_id)]
    return asked if all(each.startswith(BREAKPOINT) for each in asked) else ()


async def _check_questions(common: _Common, thread_id: str) -> None:
    """What the hub would not notice: an input of nothing where an answer is due."""
    if asked := await open_questions(common.hub, common.owner, thread_id):
        raise FaultError(
            FaultCode.INVALID,
            f"The thread waits for an answer, and neither an input nor command.resume is given. {_format_ids(asked)}",
            interrupts=[question.interrupt_id for question in asked],
        )


# Answers


async def _resume(common: _Common, command: JsonObject, checkpoint: str | None) -> Submission | tuple[Answers, ...]:
    """The answers to open questions; or a run of a graph, with the answer to what it asks on its way.

    The latter is a run from a checkpoint that is not the newest, and one after a change of the state, which has closed
    the questions (langgraph-api 0.16.7). `useStream` names the newest checkpoint with each answer.
    """
    hub, owner, thread_id = common.hub, common.owner, common.thread_id
    if thread_id is None or not common.agent.stateful:
        return await _resume_answers(common, command, checkpoint)
    has_question = bool(await open_questions(hub, owner, thread_id))
    if checkpoint is None and has_question:
        return await _resume_answers(common, command)
    head = (await read_history(hub, owner, thread_id)).head
    if checkpoint is not None and (head is None or checkpoint != head.checkpoint_id):
        return await _resume_state(common, command, checkpoint)
    is_changed = head is not None and head.next and head.source in ("update", "fork")
    if is_changed and not has_question and (await hub.reads.thread_view(owner, thread_id)).status != "busy":
        await _check_names(common, thread_id, (), command["resume"])
        return await _resume_state(common, command, None)
    return await _resume_answers(common, command)


async def _resume_state(common: _Common, command: JsonObject, checkpoint: str | None) -> Submission:
    common.told.start.check_absent()
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
    body, thread_id = common.body, common.thread_id
    value: Json = command["resume"]
    common.told.start.check_absent()
    if thread_id is None:
        # langgraph-api 0.16.7: 400, and not 422.
        raise bad_request("You must provide a thread_id when resuming.")
    rest = {name: given for name, given in command.items() if name != "resume" and given not in ([], {})}
    if rest and not common.agent.stateful:
        raise _needs_state(rest)
    if body.after_seconds or checkpoint:
        raise _cannot_resume_later()
    asked = await open_questions(common.hub, common.owner, thread_id)
    if not asked:
        try:
            await common.hub.reads.thread(common.owner, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        raise FaultError(FaultCode.CONFLICT, "The thread has no open interrupt to resume.")
    # aegra 0.11.0 drops the member, and runs both at once.
    if (body.multitask_strategy or _MULTITASK[common.dialect]) == "reject":
        view = await common.hub.reads.thread_view(common.owner, thread_id)
        if view.status == "busy":
            raise FaultError(FaultCode.CONFLICT, f"Thread {thread_id} is busy.", reason=BUSY)
    await _check_names(common, thread_id, asked, value)
    by_task = _match_answers(asked, value)
    return tuple([await _answers(common, task_id, values, asked) for task_id, values in by_task.items()])


async def _check_names(common: _Common, thread_id: str, asked: Sequence[Interrupt], value: Json) -> None:
    """Refuse an answer by ids of questions that are not open: one that comes twice does not answer the next question.

    Raises conflict.
    """
    is_open = {question.interrupt_id for question in asked}
    if not isinstance(value, dict) or not value or value.keys() <= is_open or len(value) > _NAMES:
        return
    names = [*value, *(f"{CALL}{key}" for key in value)]
    # langgraph 1.2, pregel/_loop.py: what has only such keys is answers by id.
    known = await common.hub.reads.known_interrupts(common.owner, thread_id, names)
    if known - is_open or not (known or any(_ID.fullmatch(key) is None for key in value)):
        closed = ", ".join(key[:100] for key in value if key not in is_open)
        raise FaultError(
            FaultCode.CONFLICT,
            f"No question is open with the id {closed}: it was answered, or never asked. {_format_ids(asked)}",
            interrupts=[question.interrupt_id for question in asked],
        )


def _match_answers(asked: Sequence[Interrupt], value: Json) -> Mapping[str, Mapping[str, Json]]:
    """Task → question → answer. Raises invalid where it is not clear what is answered."""
    if isinstance(value, dict) and value and value.keys() <= {question.interrupt_id for question in asked}:
        by_task: dict[str, dict[str, Json]] = {}
        for question in asked:
            if question.interrupt_id in value:
                answer = decode_result(question.message, value[question.interrupt_id])
                by_task.setdefault(question.task_id, {})[question.interrupt_id] = answer
        return by_task
    if len(asked) > 1:
        raise FaultError(
            FaultCode.INVALID,
            f"Several questions are open: command.resume must hold the answers by interrupt id. {_format_ids(asked)}",
            interrupts=[question.interrupt_id for question in asked],
        )
    return {asked[0].task_id: {asked[0].interrupt_id: decode_result(asked[0].message, value)}}


def _format_ids(asked: Sequence[Interrupt]) -> str:
    return f"Open interrupts: {', '.join(question.interrupt_id for question in asked)}"


async def _extension_answers(common: _Common) -> tuple[Answers, ...]:
    """By the extension: by the ids of questions, which may be declined. Raises bad_request, conflict."""
    told, thread_id = common.told, common.thread_id
    if thread_id is None:
        raise bad_request("You must provide a thread_id when resuming.")
    asked = await open_questions(common.hub, common.owner, thread_id)
    by_task: dict[str, list[str]] = {}
    for question in asked:
        if question.interrupt_id in told.answered or question.interrupt_id in told.declined:
            by_task.setdefault(question.task_id, []).append(question.interrupt_id)
    if not by_task:
        raise FaultError(FaultCode.CONFLICT, "The thread has no open interrupt of these ids.")
    return tuple([await _answers_of_task(common, task_id, names, asked) for task_id, names in by_task.items()])


async def _answers_of_task(common: _Common, task_id: str, names: Sequence[str], asked: Sequence[Interrupt]) -> Answers:
    values = {name: common.told.answered[name] for name in names if name in common.told.answered}
    answers = await _answers(common, task_id, values, asked)
    return answers if values else replace(answers, values=None, action="decline")


async def _answers(common: _Common, task_id: str, values: Mapping[str, Json], asked: Sequence[Interrupt]) -> Answers:
    webhook = None
    if common.body.webhook is not None:
        stopped = next(question.run_id for question in asked if question.task_id == task_id)
        webhook = common.webhook(await _next_run(common, stopped))
    return Answers(
        task_id=task_id,
        values=values,
        input=RunInput(
            messages=await resolve_own_files(
                common.hub, common.who, (said for value in values.values() for said in _answer_messages(value))
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
    """The answer for agents that take messages. What a chat sends is one, too."""
    if isinstance(value, str):
        return (Message.of(value, "user"),)
    if isinstance(value, dict) and value.keys() == {"messages"}:
        with suppress(FaultError):
            return state.decode_input(value).messages
    return (Message(role="user", parts=(DataPart(data=value),)),)


async def _next_run(common: _Common, stopped: str) -> str:
    """The id of the run that an answer will be: a stop with several questions may have been answered in part."""
    run_id = next_run_id(stopped)
    while True:
        try:
            await common.hub.reads.run(common.owner, run_id)
        except FaultError as error:
            if error.fault.code is FaultCode.NOT_FOUND:
                return run_id
            raise
        run_id = next_run_id(run_id)


async def open_questions(hub: Hub, owner: str, thread_id: str) -> list[Interrupt]:
    """All of the thread, oldest first."""
    tasks: list[Task] = []
    cursor: str | None = None
    where = TaskFilter(thread_id=thread_id, states=WAITING)
    while True:
        page = await hub.reads.tasks(owner, where, limit=100, cursor=cursor)
        tasks += await page.tasks.all()
        cursor = page.next_cursor
        if cursor is None:
            break
    found = [question for task in tasks for question in await hub.reads.open_interrupts(owner, task.task_id)]
    return sorted(found, key=lambda question: question.raised_at)


def _needs_state(command: JsonObject) -> FaultError:
    names = ", ".join(sorted(f"command.{name}"[:50] for name in command))
    return FaultError(FaultCode.UNSUPPORTED, f"{names}: only an agent with a state of its own takes this.")


def _modes(value: str | list[str] | None) -> Json:
    return list(value) if isinstance(value, list) else value


def _checkpoint(configurable: JsonObject | None) -> Any:
    return (configurable or {}).get("checkpoint_id")


def _losses(body: RunCreate, agent: AgentInfo, *, resumed: bool) -> Sequence[Loss]:
    losses: list[Loss] = []
    if (body.interrupt_before or body.interrupt_after) and not agent.stateful:
        losses.append(Loss(feature=Feature.QUESTION, how="interrupt_before, interrupt_after: the agent is no graph"))
    if body.stream_subgraphs and not agent.stateful:
        losses.append(Loss(feature=Feature.STREAM, how="stream_subgraphs: the agent is no graph"))
    if body.feedback_keys:
        losses.append(Loss(feature=Feature.METADATA, how="feedback_keys: there are no feedback URLs"))
    if resumed and body.input not in (None, {}, [], ""):
        losses.append(Loss(feature=Feature.STATE, how="input: beside command.resume only the answer counts"))
    return losses

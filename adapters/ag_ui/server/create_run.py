"""Decision of what a request for a run means: a new run, answers to open questions, or a replay of an earlier run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.carries import VERSION
from babelgate.adapters.ag_ui.codec.messages import decode_messages, result_of
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, WireIds, encode_ids
from babelgate.adapters.ag_ui.codec.questions import called_part, can_take_text
from babelgate.adapters.ag_ui.server.thread_index import ThreadIndex
from babelgate.adapters.kit.json import ABSENT, parse_text, validate
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.empty_state import save_empty_state
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.canonical import (
    AgentInfo,
    Answers,
    FaultCode,
    FaultError,
    Fork,
    Hub,
    Interrupt,
    Message,
    Principal,
    Receipt,
    RunInput,
    StateHistory,
    Submission,
    Task,
    TaskFilter,
)
from babelgate.canonical.json import as_object, is_equal
from babelgate.canonical.state import WAITING
from babelgate.canonical.value import Json, JsonObject, is_uuid

_TYPED: Final = frozenset({"user", "system", "developer"})
"""Roles of messages that a caller adds to a conversation. Messages of all other roles come from the agent, or are
results for it."""


class RunSource(NamedTuple):
    """Run whose stream answers the request."""

    task: Task
    run_id: str
    receipt: Receipt | None
    """Receipt of the run if this request began it. None if the run existed before the request."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Valid request for a run, and the state of its thread, which decides what the request means."""

    hub: Hub
    who: Caller
    agent: AgentInfo
    body: w.RunAgentInput
    options: w.GatewayOptions
    messages: Sequence[Message]
    """All messages of the request, without activities."""
    index: ThreadIndex | None
    """Index of the thread; None if the thread is new, or has no runs and messages yet."""
    thread_id: str | None
    """Gateway's id of the thread; None if the thread does not exist."""
    is_first: bool = False
    """True if the thread was not looked up, because the request looks like the first one of a new thread."""
    open: Sequence[Interrupt] = field(default_factory=tuple[Interrupt, ...])
    """Open questions of the agent's newest waiting task on the thread; empty if no task waits."""

    @property
    def principal(self) -> Principal:
        return self.who.principal

    async def start(self) -> RunSource:
        """Start a run, answer questions, or find the run that the request repeats. Raises invalid, not_awaiting, and
        not_found for an unknown `parentRunId`."""
        answers = self._answers()
        added = self._added_messages()
        if answers:
            return await self._answer(answers, added)
        if added:
            return await self._take_words(added)
        repeated = self._repeated_run()
        if repeated is not None:
            assert self.index is not None
            task = await self.hub.reads.task(self.principal, self.index.tasks[repeated])
            return RunSource(task, repeated, None)
        self._check_left()
        is_again, fork = self._regeneration()
        return await self._submit((), fork=fork, is_again=is_again)

    def _check_left(self) -> None:
        """Refuse a request without new messages or usable answers if the thread has open questions, or if the request
        answers questions that are not open. Raises invalid, not_awaiting."""
        if self.open:
            raise _waiting_fault(self.open)
        if self.body.resume:
            raise FaultError(FaultCode.NOT_AWAITING, "resume: no question of these ids is open on the thread")

    # What the request brings

    def _added_messages(self) -> Sequence[Message]:
        """Return the messages that the caller has added to the conversation. They follow the last message that the log
        has, or whose role shows that the caller did not write it."""
        known_ids: Collection[str] = () if self.index is None else self.index.messages
        first = 0
        for number, message in enumerate(self.body.messages):
            if message.role not in _TYPED or (message.id is not None and message.id in known_ids):
                first = number + 1
        # Activities are in the body, but not among the decoded messages. None is among the last ones.
        count = len(self.body.messages) - first
        return self.messages[len(self.messages) - count :] if count else ()

    def _history(self, added: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages before the `added` ones, to store them as history. The result is empty if the gateway
        already has the thread."""
        return () if self.index is not None else tuple(self.messages[: len(self.messages) - len(added)])

    def _answers(self) -> Mapping[str, tuple[Json, bool]]:
        """Return the answers of the request to open questions, by question id: the value, and True if the caller
        declines. They are in `resume` and in tool messages. Raises invalid."""
        found: dict[str, tuple[Json, bool]] = {}
        calls = {each.interrupt_id: each for each in self.open if called_part(each) is not None}
        for number, message in enumerate(self.body.messages):
            question = calls.get(message.tool_call_id or "") if message.role == "tool" else None
            if question is not None:
                result = message.error if message.error is not None else result_of(message, f"messages.{number}")
                found[question.interrupt_id] = (_decode_result(result, question), False)
        names = {each.interrupt_id for each in self.open}
        for item in self.body.resume or ():
            if item.interrupt_id in names:
                found[item.interrupt_id] = (item.payload, item.status == "cancelled")
        return found

    def _repeated_run(self) -> str | None:
        """Return the gateway's id of the run that an earlier, equal request began, or None. It is the run that the
        answers began, or the run with the client's run id."""
        if self.index is None:
            return None
        answered = [item.interrupt_id for item in self.body.resume or ()]
        answered += [message.tool_call_id or "" for message in self.body.messages[-1:] if message.role == "tool"]
        begun = [self.index.answered[name] for name in answered if name in self.index.answered]
        return begun[-1] if begun else self.index.runs.get(self.body.run_id)

    def _regeneration(self) -> tuple[bool, Fork | None]:
        """Return True if the last message started an earlier run, because the client then requests another answer to
        it, and the state before the message. The state is None if no run precedes it."""
        last = self.body.messages[-1] if self.body.messages else None
        if self.index is None or last is None or last.id not in self.index.inputs:
            return False, None
        before = self.index.run_before(self.index.inputs[last.id])
        return True, None if before is None else Fork(run_id=before)

    # What is begun

    async def _take_words(self, added: Sequence[Message]) -> RunSource:
        """Answer the only open question with the text of the user's new messages, if the question accepts text.
        Otherwise start a run with the messages."""
        is_typed = all(message.role == "user" for message in added)
        if len(self.open) == 1 and is_typed and can_take_text(self.open[0]):
            question = self.open[0]
            messages = await resolve_own_files(self.hub, self.who, added)
            text = "\n".join(message.text for message in messages)
            answers = Answers(
                task_id=question.task_id,
                values={question.interrupt_id: text},
                input=self._input(messages),
                is_text=True,
                protocol=PROTOCOL,
            )
            return _source(await self.hub.answer(self.principal, answers))
        return await self._submit(added, fork=self._edit(added))

    def _edit(self, added: Sequence[Message]) -> Fork | None:
        """Return the state that new messages continue from: after `parentRunId`, or before the user's messages that the
        client has removed. Return None for the newest state. Raises not_found."""
        index, parent = self.index, self.body.parent_run_id
        if index is None:
            return None
        if parent is not None:
            run_id = index.runs.get(parent) or (parent if parent in index.tasks else None)
            if run_id is None:
                raise FaultError(FaultCode.NOT_FOUND, f"parentRunId: the thread has no run {parent[:100]}")
            return Fork(run_id=run_id)
        common_ids = [message.id for message in self.body.messages if message.id in index.messages]
        if not common_ids:
            return None
        order = list(index.messages)
        later = [name for name in order[order.index(common_ids[-1] or "") + 1 :] if name in index.inputs]
        before = index.run_before(index.inputs[later[0]]) if later else None
        return None if before is None else Fork(run_id=before)

    async def _submit(self, added: Sequence[Message], *, fork: Fork | None, is_again: bool = False) -> RunSource:
        """Start a run with the new messages. With `is_again`, start it with the last message again, to regenerate the
        answer. A run that an equal request has just started is returned."""
        body = self.body
        is_repeated = self.index is not None and body.run_id in self.index.runs
        if is_again:
            added = [each for each in self.messages if each.message_id == body.messages[-1].id]
            # The log holds the message itself under its id.
            added = [message.replace(message_id=None) for message in added]
        run_input = self._input(await resolve_own_files(self.hub, self.who, added))
        if is_again and fork is None and self.thread_id is not None and self.index is not None:
            state = await save_empty_state(self.hub, self.principal, self.thread_id, list(self.index.tasks)[-1:])
            run_input = run_input.replace(checkpoint=state)
        submission = Submission(
            agent=self.agent.name,
            protocol=PROTOCOL,
            version=VERSION,
            input=run_input,
            thread_id=thread_uuid(body.thread_id),
            alias=None if is_uuid(body.thread_id) else body.thread_id,
            run_id=None if is_repeated else run_uuid(self.who, self.agent.name, body.thread_id, body.run_id),
            history=await resolve_own_files(self.hub, self.who, self._history(added)),
            state=await self._changed_state(),
            strategy=self.options.strategy,
            supersede=True,
            fork=fork,
            if_exists="reject" if self.is_first else "continue",
        )
        try:
            return _source(await self.hub.submit(self.principal, submission))
        except FaultError as error:
            # The same request, sent twice at once.
            if error.fault.code is not FaultCode.CONFLICT or submission.run_id is None or error.fault.details:
                raise
            run = await self.hub.reads.run(self.principal, submission.run_id)
            return RunSource(await self.hub.reads.task(self.principal, run.task_id), run.run_id, None)

    async def _answer(self, answers: Mapping[str, tuple[Json, bool]], added: Sequence[Message]) -> RunSource:
        """Answer open questions, first those that are declined. If others stay open, the run stops at once, and its
        outcome raises them again."""
        declined = [name for name, (_, is_declined) in answers.items() if is_declined]
        values = {name: value for name, (value, is_declined) in answers.items() if not is_declined}
        task_id = self.open[0].task_id
        messages = await resolve_own_files(self.hub, self.who, added)
        run_input = self._input(messages)
        if values:
            checked = Answers(task_id=task_id, values=values, input=run_input, protocol=PROTOCOL)
            await self.hub.check_answers(self.principal, checked)
        receipt: Receipt | None = None
        if declined:
            refusal: dict[str, Json] = dict.fromkeys(declined)
            answers_now = Answers(task_id=task_id, values=refusal, input=run_input, action="decline", protocol=PROTOCOL)
            receipt = await self.hub.answer(self.principal, answers_now)
        if values:
            answers_now = Answers(task_id=task_id, values=values, input=run_input, protocol=PROTOCOL)
            receipt = await self.hub.answer(self.principal, answers_now)
        assert receipt is not None
        return _source(receipt)

    def _input(self, messages: tuple[Message, ...]) -> RunInput:
        body = self.body
        config: JsonObject = {}
        if body.tools:
            config["tools"] = [tool.model_dump(by_alias=True, exclude_none=True) for tool in body.tools]
        marks: JsonObject = {}
        if body.context:
            marks["context"] = [item.model_dump(by_alias=True) for item in body.context]
        props = body.forwarded_props
        if isinstance(props, dict):
            props = {name: value for name, value in props.items() if name != w.OWN}  # pyright: ignore[reportUnknownVariableType]
        if props:
            marks["forwardedProps"] = props
        if marks:
            config[PROTOCOL] = marks
        ids = WireIds(body.thread_id, body.run_id, body.protocol_version is None)
        return RunInput(
            messages=messages,
            config=config,
            metadata=self.options.metadata or {},
            headers=self.who.headers,
            extra={PROTOCOL: encode_ids(ids)},
        )

    async def _changed_state(self) -> JsonObject:
        """Return the members of the request's shared state that differ from the newest revision of the thread. For a
        new thread, these are all members."""
        state = as_object(self.body.state)
        if not state or self.thread_id is None:
            return state
        history = await read_history(self.hub, self.principal, self.thread_id)
        before = {} if history.head is None else history.head.values
        return {name: value for name, value in state.items() if name not in before or not is_equal(before[name], value)}


def _source(receipt: Receipt) -> RunSource:
    return RunSource(receipt.task, receipt.run_id, receipt)


def _waiting_fault(left: Sequence[Interrupt]) -> FaultError:
    ids = [each.interrupt_id for each in left]
    words = f"The thread waits for answers that the request does not have: {', '.join(ids)}"
    return FaultError(FaultCode.INVALID, words, interrupts=ids)


def _decode_result(result: Json, question: Interrupt) -> Json:
    """Return the result of a caller's tool. A JSON object or list that was sent as text is parsed, unless the schema of
    the answer demands a string."""
    is_text = (question.answer_schema or {}).get("type") == "string"
    if not isinstance(result, str) or is_text:
        return result
    value = parse_text(result)
    return value if value is not ABSENT and isinstance(value, dict | list) else result


# Lookup


def thread_uuid(name: str) -> str | None:
    """Return the gateway's id of the thread if the client's name of it is a UUID. Any other name is stored as an alias,
    and gives None."""
    return str(UUID(name)) if is_uuid(name) else None


def run_uuid(who: Caller, agent: str, thread_id: str, run_id: str) -> str:
    """Return the gateway's id of the run that a request begins, derived from the caller's ids. A request that is sent
    twice gets the same id."""
    return str(uuid5(NAMESPACE_OID, f"ag-ui\0{who.owner}\0{agent}\0{thread_id}\0{run_id}"))


async def find_thread(hub: Hub, who: Caller, agent: str, name: str) -> str | None:
    """Return the id of a thread by the client's name, or None if it does not exist."""
    thread_id = thread_uuid(name)
    if thread_id is None:
        return await hub.reads.thread_of(who.principal, PROTOCOL, agent, name)
    try:
        await hub.reads.thread(who.principal, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return None
    return thread_id


async def read_index(hub: Hub, principal: Principal, thread_id: str) -> ThreadIndex:
    """Return the index of a thread. Raises not_found."""
    return await hub.reads.snapshot(principal, thread_id, ThreadIndex, ThreadIndex)


async def read_history(hub: Hub, principal: Principal, thread_id: str) -> StateHistory:
    """Return the revisions of a thread. Raises not_found."""
    return await hub.reads.snapshot(
        principal, thread_id, (PROTOCOL, StateHistory), lambda: StateHistory(thread_id, principal.owner)
    )


async def open_questions(hub: Hub, principal: Principal, agent: str, thread_id: str) -> Sequence[Interrupt]:
    """Return the open questions of the agent's newest task that waits on a thread."""
    where = TaskFilter(agent=agent, thread_id=thread_id, states=WAITING)
    for task in await (await hub.reads.tasks(principal, where, limit=1)).tasks.all():
        return await hub.reads.open_interrupts(principal, task.task_id)
    return ()


def parse_request(hub: Hub, who: Caller, agent: AgentInfo, value: Any) -> RunRequest:
    """Return the validated request for a run, before its thread is looked up. Raises invalid, unsupported."""
    body = validate(w.RunAgentInput, value)
    check_version(body.protocol_version)
    for name, text in (("threadId", body.thread_id), ("runId", body.run_id)):
        if not text:
            raise FaultError(FaultCode.INVALID, f"{name}: must not be empty")
    options = validate(w.GatewayOptions, as_object(as_object(body.forwarded_props).get(w.OWN)))
    messages = decode_messages(body.messages)
    is_first = bool(body.messages) and not body.resume and all(each.role in _TYPED for each in body.messages)
    return RunRequest(hub, who, agent, body, options, messages, None, None, is_first)


async def start_run(request: RunRequest) -> RunSource:
    """Start the run of a request, answer questions, or find the run that the request repeats. The index and the open
    questions of the thread decide which. Raises invalid, not_awaiting, and not_found for an unknown `parentRunId`.

    A request with messages of the user alone is mostly the first one of its thread. So it is first submitted as such,
    before the thread is looked up: the lookup would take a sixth of the CPU time of such a call.
    """
    if request.is_first:
        try:
            return await request.start()
        except FaultError:
            pass  # mostly because the thread exists; any other reason is found again
    hub, principal, agent, name = request.hub, request.principal, request.agent.name, request.body.thread_id
    thread_id = await find_thread(hub, request.who, agent, name)
    index = None if thread_id is None else await read_index(hub, principal, thread_id)
    if index is not None and not index.tasks and not index.messages:
        index = None  # another protocol has created the thread, and nothing has run on it
    questions = () if thread_id is None else await open_questions(hub, principal, agent, thread_id)
    found = replace(request, index=index, thread_id=thread_id, is_first=False, open=questions)
    return await found.start()


def check_version(version: str | None) -> None:
    """Refuse a `protocolVersion` whose major version is not the gateway's. Raises unsupported."""
    if version is not None and version.partition(".")[0] != w.VERSION.partition(".")[0]:
        words = f"protocolVersion: expected {w.VERSION}, got {version[:20]!r}"
        raise FaultError(FaultCode.UNSUPPORTED, words)

"""Methods of A2A for messages and tasks. They are the same for all versions and bindings; the dialect implements the
differences."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import replace

from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.a2a.frameworks import langgraph_api
from babelgate.adapters.a2a.wire.requests import Listing, Send, activation_extra
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.a2a.write.recorded import RecordedWriter
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.extension import START_HEADER, URI, decode_request, with_uploads
from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.kit.server.caller import loss_header, run_headers
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.tracing import note_hops
from babelgate.canonical import (
    Answers,
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Part,
    Receipt,
    RunInput,
    Scope,
    Submission,
    Task,
    TaskFilter,
    TaskState,
    TextPart,
)
from babelgate.canonical.listed import Listed
from babelgate.canonical.value import Json, JsonObject, is_uuid

from .call import EXTENSION_HEADERS, Answer, Call, Stream, context_of, find_task
from .follow import TaskStream, fold_task, is_of_task, wait_for_stop
from .push import make_webhook

_PAGE: Final = 16
"""Number of tasks in a list whose logs are read with one query. Chosen."""
_ACTIVE: Final = frozenset({TaskState.SUBMITTED, TaskState.WORKING, TaskState.CANCELLING})

# Sending


async def send(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    call, ask = _read_extension(call, dialect.decode_send(params))
    receipt, context_id = await _submit_message(call, dialect, ask)
    if ask.wait or await _may_reply(call, ask, receipt):
        writer = (EventWriter if call.extension is None else RecordedWriter)(receipt.task, context_id)
        await wait_for_stop(call.hub, call.principal, receipt, writer, until=None if ask.wait else is_of_task)
    else:
        extended = call.extension is not None
        writer = await fold_task(call.hub, call.principal, receipt.task, context_id, extended=extended)
    headers = {**run_headers(receipt), **loss_header(writer.losses), **_extension_header(call)}
    reply = writer.reply if ask.task_id is None else None
    if reply is not None:
        return Answer(dialect.encode_reply(reply, context_id), headers)
    return Answer(dialect.encode_sent(writer.snapshot(), ask.history_length), headers)


async def stream(call: Call, dialect: Dialect, params: JsonObject) -> Stream:
    call, ask = _read_extension(call, dialect.decode_send(params))
    receipt, context_id = await _submit_message(call, dialect, ask)
    reading = _reading(call, receipt.task, context_id, dialect, in_pieces=_takes_text(ask.output_modes))
    headers = {**run_headers(receipt), **_extension_header(call)}
    if await _may_reply(call, ask, receipt):
        return Stream(reading.stream_answer(receipt, ask.history_length), headers)
    return Stream(reading.follow(receipt.run_id, ask.history_length), headers)


def _takes_text(output_modes: Sequence[str]) -> bool:
    """Return True if a caller accepts text, and so can receive an answer in pieces.

    crewai 1.15.30 accepts only `application/json`, joins the texts of all updates with blanks, and ignores `append`: it
    needs whole answers.
    """
    types = [mode.partition(";")[0].partition("/")[0].strip().lower() for mode in output_modes]
    return not types or "text" in types or "*" in types


def _reading(call: Call, task: Task, context_id: str, dialect: Dialect, *, in_pieces: bool = True) -> TaskStream:
    extended = call.extension is not None
    return TaskStream(
        call.hub, call.principal, task, context_id, dialect, call.lines, extended, in_pieces=extended or in_pieces
    )


def _extension_header(call: Call) -> dict[str, str]:
    """Return the header that lists the activated extensions, by the name that the caller used (topics/extensions)."""
    active = [*(() if call.extension is None else (URI,)), *call.activated]
    return {call.extension or call.activates_by: ", ".join(active)} if active else {}


def _read_extension(call: Call, ask: Send) -> tuple[Call, Send]:
    """Apply the Babelgate extension's entry in the metadata of a request. Return the call and the send with it.

    The entry also activates the extension, because a proxy may have removed the header that does.
    """
    if URI not in ask.metadata:
        return call, ask
    metadata = {name: value for name, value in ask.metadata.items() if name != URI}
    extension = decode_request(ask.metadata[URI])
    message = ask.message if extension.message is None else ask.message.replace(parts=extension.message.parts)
    (message,) = with_uploads(extension, (message,))
    ask = replace(
        ask,
        metadata=metadata,
        message=message,
        tools=extension.tools,
        declined=extension.declined,
        uploaded=len(extension.uploads),
        start=extension.start,
    )
    return replace(call, extension=call.extension or EXTENSION_HEADERS[0]), ask


async def _may_reply(call: Call, ask: Send, receipt: Receipt) -> bool:
    """Return True if the agent may answer with a message instead of a task, so that the response to a send must wait
    for the decision.

    A send that should return at once waits, too, as it does on the servers of the official SDKs. While another run of
    the context is open, the answer is always a task, because a task can be reported before its run starts.
    """
    if not call.agent.replies or ask.task_id is not None:
        return False
    if ask.context_id is None:
        return True
    before = TaskFilter(thread_id=receipt.thread_id, states=_ACTIVE)
    return (await call.hub.reads.tasks(call.principal, before, limit=1)).total <= 1


async def _submit_message(call: Call, dialect: Dialect, ask: Send) -> tuple[Receipt, str]:
    """Submit the message of a send to the hub. Return the receipt, and the id that the caller has for the context."""
    note_hops(ask.message.metadata)
    (message,) = await resolve_own_files(call.hub, call.caller, (ask.message,))
    ask = replace(ask, message=message)
    _check_types(call, message)
    if ask.task_id is not None:
        return await _continue_task(call, dialect, ask, ask.task_id)
    submission = _submission(call, dialect, ask)
    try:
        # A contextId that the caller chose is stored as an alias: the server must accept or reject it, and never
        # replace it (specification 1.0, 3.4.1).
        receipt = await call.hub.submit(call.principal, submission)
    except FaultError as error:
        if error.fault.code is FaultCode.NOT_FOUND and ask.start.fork is not None:
            raise a2a_error("TASK_NOT_FOUND", error.fault.message) from error
        if error.fault.code is FaultCode.NOT_FOUND:  # the context was deleted: its id is not free again
            raise FaultError(FaultCode.INVALID, error.fault.message) from error
        raise
    return receipt, ask.context_id or receipt.thread_id


def _check_types(call: Call, message: Message) -> None:
    """Check that the agent accepts the media types of a message's parts. Raises unsupported_type (specification 1.0,
    3.3.2).

    Text and data are checked only if they have a media type that not every agent reads.
    """
    accepted = call.agent.input_types
    for part in message.parts:
        media_type = _type_of(part)
        # Media types of HTTP: `text/*` is a pattern, and case is ignored (RFC 9110, 8.3.1).
        if media_type is None or not accepted or any(fnmatchcase(media_type, item.lower()) for item in accepted):
            continue
        what = "files" if isinstance(part, FilePart) else "parts"
        raise FaultError(
            FaultCode.UNSUPPORTED_TYPE, f"The agent takes no {what} of type {media_type}, only {', '.join(accepted)}."
        )


def _type_of(part: Part) -> str | None:
    """Return the media type of a part, in lower case and without parameters. Return None if every agent reads it, so
    that it needs no check."""
    media_type = (part.media_type or "").partition(";")[0].strip().lower()
    if isinstance(part, FilePart):
        return media_type or "application/octet-stream"
    return None if any(fnmatchcase(media_type, pattern) for pattern in _READ_BY_ALL) else media_type


_READ_BY_ALL: Final = ("", "text/*", "application/json", "application/*+json")


def _submission(call: Call, dialect: Dialect, ask: Send, follow_up: Task | None = None) -> Submission:
    # The gateway's ids are in lower case: every other spelling is an id that the caller chose, and is returned
    # unchanged.
    context_id = ask.context_id
    is_thread_id = context_id is not None and is_uuid(context_id) and context_id == context_id.lower()
    thread_id = context_id if is_thread_id else None
    alias = None if is_thread_id else context_id
    if follow_up is not None:
        thread_id, alias = follow_up.thread_id, None
    submission = Submission(
        agent=call.agent.name,
        protocol=PROTOCOL,
        version=dialect.version,
        input=RunInput(
            messages=(ask.message,),
            uploaded=ask.uploaded,
            data=_data(ask.message),
            config=_config(ask),
            metadata=ask.metadata,
            headers=call.caller.headers,
            extra=activation_extra(call.activated),
        ),
        thread_id=thread_id,
        alias=alias,
        follow_up=None if follow_up is None else follow_up.task_id,
        references=ask.references,
        webhook=None if ask.push is None else make_webhook(call, dialect, ask.push),
    )
    return ask.start.apply(submission)


def _config(ask: Send) -> JsonObject:
    config: JsonObject = {"accepted_output_modes": list(ask.output_modes)} if ask.output_modes else {}
    return config if ask.tools is None else {**config, "tools": list(ask.tools)}


def _data(message: Message) -> Json:
    """Return the data in a message as the data of the run's input: its objects merged into one, or the first value if
    it has no objects with members. Return None if there are no data parts."""
    values = [part.data for part in message.parts if isinstance(part, DataPart)]
    if not values:
        return None
    merged: JsonObject = {}
    for value in values:
        if isinstance(value, dict):
            merged |= value
    return merged or values[0]


async def _continue_task(call: Call, dialect: Dialect, ask: Send, task_id: str) -> tuple[Receipt, str]:
    """Submit a message to an existing task: as an answer if the task waits, and as its next input if it is running.
    Return the receipt and the contextId for the response. Raises invalid, not_awaiting, and the protocol's error for a
    task that has ended."""
    task = await find_task(call, task_id)
    context_id = await context_of(call, task)
    if ask.context_id is not None and ask.context_id not in (context_id, task.thread_id):
        # The two ids must match; only a missing contextId is inferred from the task (specification 1.0, 3.4.3).
        raise FaultError(
            FaultCode.INVALID, "message.contextId is not the context of the task: send the task's contextId, or none."
        )
    # Specification 1.0, 3.4.3: a task that has ended never changes; a new task of the same context names it in
    # `referenceTaskIds`.
    if task.is_terminal:
        raise _task_ended_error(dialect)
    # Several answers at once, for which A2A has no form.
    resumed = langgraph_api.read_answers(ask.message.parts)
    try:
        if task.is_waiting:
            ask.start.check_absent()
            receipt = await call.hub.answer(call.principal, _answers(call, dialect, ask, task, resumed))
        elif resumed is not None:
            raise FaultError(FaultCode.NOT_AWAITING, "The task does not wait for answers.")
        else:
            receipt = await call.hub.submit(call.principal, _submission(call, dialect, ask, task))
    except FaultError as error:
        if error.fault.code is FaultCode.TASK_ENDED:
            raise _task_ended_error(dialect) from error
        raise
    return receipt, ask.context_id or context_id


def _task_ended_error(dialect: Dialect) -> FaultError:
    """Return the error for a message to a task that has ended: -32004 in 1.0 (3.4.3), and -32602 in 0.3, as in its
    SDK."""
    message = "The task has ended; send a message without taskId to start another."
    return a2a_error("UNSUPPORTED_OPERATION" if dialect.version == "1.0" else "INVALID_PARAMS", message)


def _answers(call: Call, dialect: Dialect, ask: Send, task: Task, resumed: dict[str, Json] | None) -> Answers:
    parts = ask.message.parts
    data = [part for part in parts if isinstance(part, DataPart)]
    has_text = any(isinstance(part, TextPart) for part in parts)
    return Answers(
        task_id=task.task_id,
        values=resumed,
        bare=data[0].data if len(data) == 1 and not has_text else ask.message.text,
        is_text=resumed is None,
        action="decline" if ask.declined else "answer",
        input=RunInput(
            messages=(ask.message,),
            config={} if ask.tools is None else {"tools": list(ask.tools)},
            headers=call.caller.headers,
            extra=activation_extra(call.activated),
        ),
        protocol=PROTOCOL,
        webhook=None if ask.push is None else make_webhook(call, dialect, ask.push),
    )


# Tasks


async def get(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    ask = dialect.decode_get(params)
    task = await find_task(call, ask.task_id)
    return await _encode_task(call, dialect, task, ask.history_length)


async def _encode_task(call: Call, dialect: Dialect, task: Task, history_length: int | None = None) -> Answer:
    extended = call.extension is not None
    writer = await fold_task(call.hub, call.principal, task, await context_of(call, task), extended=extended)
    headers = {**run_headers(task, writer.run_id), **loss_header(writer.losses), **_extension_header(call)}
    return Answer(dialect.encode_task(writer.snapshot(), history_length), headers)


async def cancel(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    """Cancel a task, wait for its end, and return it. Raises TASK_NOT_FOUND for an unknown task, and
    TASK_NOT_CANCELABLE for one that has ended."""
    task = await find_task(call, dialect.decode_task_id(params))
    try:
        task = await call.hub.cancel(call.principal, task.task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.TASK_ENDED:
            raise
        # Specification 1.0, 3.1.5. 3.3.1 calls a cancel idempotent; a2a-sdk 0.3.26 and 1.3.0 refuse the second one.
        raise a2a_error("TASK_NOT_CANCELABLE", "The task has ended and cannot be cancelled.") from error
    if task.state is TaskState.CANCELLING:
        # A2A has no state for a pending cancel: wait for the end of the task, which comes once the agent has stopped.
        task = await _end_of(call, task)
    return await _encode_task(call, dialect, task)


async def _end_of(call: Call, task: Task) -> Task:
    async with aclosing(call.hub.reads.follow(call.principal, Scope.task(task), task.last_seq)) as batches:
        async for _ in batches:
            pass
    return await call.hub.reads.task(call.principal, task.task_id)


async def list_tasks(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    ask = dialect.decode_list(params)
    thread_id: str | None = None
    if ask.context_id is not None:
        # An unknown context is an empty page and no error: this does not reveal whether another caller has it
        # (specification 1.0, 13.1).
        thread_id = await call.hub.reads.thread_of(call.principal, PROTOCOL, call.agent.name, ask.context_id)
        if thread_id is None and is_uuid(ask.context_id):
            thread_id = ask.context_id
        if thread_id is None:
            return Answer(dialect.encode_page([], ask, "", 0))
    # Specification 1.0, 3.1.4, lists "tasks the client has access to". No client can return to a stateless run.
    where = TaskFilter(
        agent=call.agent.name,
        thread_id=thread_id,
        states=ask.states,
        changed_after=ask.changed_after,
        stateless=False,
    )
    page = await call.hub.reads.tasks(call.principal, where, limit=ask.page_size, cursor=ask.page_token)
    result = dialect.encode_page([], ask, page.next_cursor or "", page.total)
    return Answer(result, tasks=_encode_tasks(call, dialect, ask, page.tasks))


async def _encode_tasks(
    call: Call, dialect: Dialect, ask: Listing, tasks: Listed[Task]
) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(aiter(tasks)) as source:
        while batch := [task async for task in _take(source, _PAGE)]:
            logs = await call.hub.reads.logs(call.principal, [task.task_id for task in batch], inline=True)
            names = await call.hub.reads.aliases(call.principal, PROTOCOL, [task.thread_id for task in batch])
            for task in batch:
                context_id = names.get(task.thread_id, task.thread_id)
                writer = EventWriter(task, context_id)
                try:
                    if task.task_id in logs:
                        for record in logs[task.task_id]:
                            writer.write(record)
                    else:
                        writer = await fold_task(call.hub, call.principal, task, context_id)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
                        raise
                    continue
                yield encode(dialect.encode_task(writer.snapshot(), ask.history_length, artifacts=ask.artifacts))


async def _take(tasks: AsyncGenerator[Task], most: int) -> AsyncGenerator[Task]:
    for _ in range(most):
        task = await anext(tasks, None)
        if task is None:
            return
        yield task


async def subscribe(call: Call, dialect: Dialect, params: JsonObject) -> Stream:
    """Return a stream that begins with the task, and continues with its updates.

    With the header `Babelgate-From` the stream first replays the events since that seq. This also works for a task that
    has ended, to which a caller cannot subscribe otherwise (specification 1.0, 3.1.6). Raises TASK_NOT_FOUND for an
    unknown task, and UNSUPPORTED_OPERATION for one that has ended, without that header.
    """
    task = await find_task(call, dialect.decode_task_id(params))
    start = _start(call)
    if start is None and task.is_terminal:
        raise a2a_error(
            "UNSUPPORTED_OPERATION",
            f"The task has ended; get it, or send the header {START_HEADER}: 0 to see its events again.",
        )
    reading = _reading(call, task, await context_of(call, task), dialect)
    return Stream(reading.replay(start), {**run_headers(task), **_extension_header(call)})


def _start(call: Call) -> int | None:
    if call.replay_from is None:
        return None
    if (start := parse_integer(call.replay_from, 18)) is None:
        raise FaultError(FaultCode.INVALID, f"{START_HEADER} must be the number of an event, or 0.")
    return start

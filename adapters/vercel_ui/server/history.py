"""Messages of a chat in the form of the SDK, with which a page can start `useChat({messages})`."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from babelgate.adapters.kit.server.empty_state import message_ids
from babelgate.adapters.vercel_ui.codec import encode_user_message
from babelgate.adapters.vercel_ui.server.chat_log import ChatLog, ChatRun
from babelgate.adapters.vercel_ui.wire import OWN
from babelgate.adapters.vercel_ui.write.reply import ReplyWriter
from babelgate.adapters.vercel_ui.write.ui_message import UiMessageBuilder
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical import Hub, Message, Principal, Record, Scope, StateHistory
from babelgate.canonical.event import RunCreated, RunEnded
from babelgate.canonical.value import JsonObject


class ChatHistoryReader:
    """Reader of the messages of one chat. Only the current branch of the thread is shown.

    An assistant message with an active run is left out. The page reads it as a stream, which SDKs before 5.0.233 would
    append to a copy of the message that the page already has.
    """

    def __init__(self, hub: Hub, principal: Principal, thread_id: str, view: ReplyView) -> None:
        self._hub = hub
        self._principal = principal
        self._thread_id = thread_id
        self._view = view
        """Template for the view of each assistant message, which replaces its message id and task id."""
        self._replies: dict[str, _Reply] = {}

    async def read(self, log: ChatLog) -> list[JsonObject]:
        """Return the messages of the chat as `UIMessage` objects, oldest first."""
        visible_runs = {run.run_id: run for run in await self._branch(log)}
        by_task: dict[str, list[_Reply]] = {}
        scope = Scope(self._thread_id)
        async with aclosing(self._hub.reads.log(self._principal, scope, inline=True)) as batches:
            async for batch in batches:
                for record in batch:
                    self._read(record, visible_runs, by_task.setdefault(record.task_id or "", []))
        return [message for reply in self._replies.values() for message in reply.messages()]

    async def _branch(self, log: ChatLog) -> Sequence[ChatRun]:
        """Return the runs on the current branch: runs that lead to the newest state, runs without any state, and all
        other runs of the same assistant messages."""
        thread_id, owner = self._thread_id, self._principal.owner
        history = await self._hub.reads.snapshot(
            self._principal, thread_id, StateHistory, partial(StateHistory, thread_id, owner)
        )
        line: set[str] = set()
        checkpoint = history.head_id
        while checkpoint is not None and (revision := history.get(checkpoint)) is not None:
            if revision.run_id is None and not message_ids(revision):  # a page that began again (`ChatPost`)
                break
            line.add(revision.run_id or "")
            checkpoint = revision.parent_id
        run_ids = {revision.run_id for revision in history.all()}
        # A question that was answered makes a state of each of its runs, so the runs of a message stay together.
        messages = {run.message_id for run in log.runs.values() if run.run_id in line or run.run_id not in run_ids}
        return [run for run in log.runs.values() if run.message_id in messages]

    def _read(self, record: Record, visible_runs: dict[str, ChatRun], replies: "list[_Reply]") -> None:
        event = record.event
        if isinstance(event, RunCreated) and (run := visible_runs.get(event.run_id)) is not None:
            if run.message_id not in self._replies:
                writer = ReplyWriter(_replace_ids(self._view, run))
                if replies:
                    writer.open_questions |= replies[-1].writer.open_questions
                reply = _Reply(writer, event.run_id)
                self._replies[run.message_id] = reply
                replies.append(reply)
            reply = self._replies[run.message_id]
            if run.user_ids:
                reply.inputs += [message for message in event.messages if message.role in ("user", "system")]
        for reply in replies:
            reply.add(record)


class _Reply:
    """One assistant message that is built from records, with the user messages that precede it."""

    def __init__(self, writer: ReplyWriter, run_id: str) -> None:
        self.inputs: list[Message] = []
        self.writer = writer
        self._builder = UiMessageBuilder()
        self._builder.add([writer.start(run_id)])
        self._active: set[str] = set()
        """Ids of the message's runs that have not ended."""

    def add(self, record: Record) -> None:
        """Add the next record of the task to the assistant message."""
        self._builder.add(self.writer.write(record))
        if isinstance(record.event, RunCreated) and record.event.run_id in self.writer.run_ids:
            self._active.add(record.event.run_id)
            if record.event.metadata:
                metadata = {OWN: {"metadata": record.event.metadata}}
                self._builder.add([{"type": "message-metadata", "messageMetadata": metadata}])
        elif isinstance(record.event, RunEnded):
            self._active.discard(record.run_id or "")

    def messages(self) -> list[JsonObject]:
        """Return the user messages and the assistant message, but only the user messages if a run is active."""
        users = [encode_user_message(message, self.writer.view.file_url) for message in self.inputs]
        return users if self._active else [*users, self._builder.message]


def _replace_ids(view: ReplyView, run: ChatRun) -> ReplyView:
    return msgspec.structs.replace(view, message_id=run.message_id, task_id=run.task_id)

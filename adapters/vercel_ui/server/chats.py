"""Lookup of chats: the thread that belongs to a page's chat id, the index of its log, and views of its messages."""

from collections.abc import Sequence
from uuid import UUID

from babelgate.adapters.vercel_ui.codec import PROTOCOL
from babelgate.adapters.vercel_ui.server.chat_log import ChatLog, ChatRun
from babelgate.adapters.vercel_ui.server.options import StreamOptions
from babelgate.adapters.vercel_ui.write.view import ReplyView, Restart
from babelgate.canonical import FaultCode, FaultError, Hub, Principal
from babelgate.canonical.value import is_uuid


def place_of(chat_id: str) -> tuple[str | None, str | None]:
    """Return the thread id and the alias for a chat id; one of them is None. A UUID is the id of a thread, and any
    other chat id is an alias."""
    return (str(UUID(chat_id)), None) if is_uuid(chat_id) else (None, chat_id)


async def find_thread(hub: Hub, principal: Principal, agent: str, chat_id: str) -> str | None:
    """Return the id of a chat's thread, or None if the principal has no such chat with the agent."""
    thread_id, alias = place_of(chat_id)
    if alias is not None:
        return await hub.reads.thread_of(principal, PROTOCOL, agent, alias)
    return await or_none(hub, principal, thread_id or "")


async def or_none(hub: Hub, principal: Principal, thread_id: str) -> str | None:
    """Return `thread_id` if the principal has such a thread, and None otherwise."""
    try:
        await hub.reads.thread(principal, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return None
    return thread_id


async def read_log(hub: Hub, principal: Principal, thread_id: str) -> ChatLog:
    """Return the index of a thread's log, up to its newest record. Raises not_found."""
    return await hub.reads.snapshot(principal, thread_id, ChatLog, ChatLog)


def make_view(
    options: StreamOptions, base_url: str, run: ChatRun, thread_id: str, restarts: Sequence[Restart] = ()
) -> ReplyView:
    """Return the view that encodes the assistant message of `run`. Content that `restarts` made void is left out."""
    return ReplyView(
        message_id=run.message_id,
        agent=run.agent,
        base_url=base_url,
        thread_id=thread_id,
        task_id=run.task_id,
        sdk=options.sdk,
        restarts=tuple(restarts),
        steps=options.steps,
    )

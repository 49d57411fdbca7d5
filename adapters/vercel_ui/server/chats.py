"""Lookup of chats: the thread that a page's id of a chat names, and the runs behind it."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from litestar.connection import ASGIConnection

from babelgate.adapters.kit.integer import read_integer
from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import PROTOCOL
from babelgate.adapters.vercel_ui.server.chat_log import ChatLog, ChatRun
from babelgate.adapters.vercel_ui.write.view import ReplyView, Restart
from babelgate.canonical import FaultCode, FaultError, Hub, Principal
from babelgate.canonical.history import Revision
from babelgate.canonical.json import objects_in
from babelgate.canonical.value import is_uuid

SDK_HEADER: Final = "Babelgate-Sdk"
"""Request header with the major version of the page's SDK. A query parameter of the transport's URL would get lost when
the page reconnects."""
_TRUE: Final = frozenset({"1", "true"})


def sdk_of(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """Return the major version of the SDK that a request names, in its query or header. Raises invalid."""
    text = connection.query_params.get("sdk") or connection.headers.get(SDK_HEADER)
    if text is None:
        return w.DEFAULT_SDK
    found = next((sdk for sdk in w.SDKS if str(sdk) == text), None)
    if found is None:
        raise FaultError(FaultCode.INVALID, f"sdk: expected 5, 6 or 7, got {text[:20]!r}")
    return found


def flag(connection: ASGIConnection[Any, Any, Any, Any], name: str) -> bool:
    """Return True if a parameter of the query is `true` or `1`."""
    return connection.query_params.get(name, "") in _TRUE


def start_index(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """Return the number of chunks to skip. A negative number counts from the end, which is unknown: then all chunks are
    sent, as `WorkflowChatTransport` expects without a header for the end. Raises invalid."""
    text = connection.query_params.get("startIndex", "0")
    is_from_end = text.startswith("-")
    skip = read_integer(text.removeprefix("-"), "startIndex", 0)
    return 0 if is_from_end else skip


def place_of(chat_id: str) -> tuple[str | None, str | None]:
    """Return the thread id and the alias of a chat. A chat whose id is a UUID is the thread with that id."""
    return (str(UUID(chat_id)), None) if is_uuid(chat_id) else (None, chat_id)


async def find_thread(hub: Hub, principal: Principal, agent: str, chat_id: str) -> str | None:
    """Return the id of a chat's thread, or None if there is none."""
    thread_id, alias = place_of(chat_id)
    if alias is not None:
        return await hub.reads.thread_of(principal, PROTOCOL, agent, alias)
    return await or_none(hub, principal, thread_id or "")


async def or_none(hub: Hub, principal: Principal, thread_id: str) -> str | None:
    """Return the id of a thread if it exists, and None otherwise."""
    try:
        await hub.reads.thread(principal, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return None
    return thread_id


async def read_log(hub: Hub, principal: Principal, thread_id: str) -> ChatLog:
    """Return the index of a thread's log. Raises not_found."""
    return await hub.reads.snapshot(principal, thread_id, ChatLog, ChatLog)


def make_view(
    connection: ASGIConnection[Any, Any, Any, Any],
    base_url: str,
    run: ChatRun,
    thread_id: str,
    restarts: Sequence[Restart] = (),
) -> ReplyView:
    """Return the view of the message of a run, without what `restarts` made void. Raises invalid."""
    return ReplyView(
        message_id=run.message_id,
        agent=run.agent,
        base_url=base_url,
        thread_id=thread_id,
        task_id=run.task_id,
        sdk=sdk_of(connection),
        restarts=tuple(restarts),
        steps=flag(connection, "steps"),
    )


def message_ids(state: Revision) -> tuple[str, ...]:
    """Return the ids of the messages of a state. An agent with its own state keeps them in a value."""
    messages = objects_in(state.values.get("messages"))
    ids = [message.message_id or "" for message in state.messages]
    return tuple(ids or [str(message["id"]) for message in messages if message.get("id")])

"""Request context: who calls, and how the caller sees the gateway; put into the request by the middleware, read by
every server."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from litestar.connection import ASGIConnection

from babelgate.canonical import FaultCode, FaultError, Receipt, Task
from babelgate.canonical.thread import Loss


class Caller(msgspec.Struct, frozen=True):
    owner: str
    base_url: str
    """Of the origin that the caller addressed, without a trailing slash: the public URL, or `…/agent/<name>` below
    it."""
    agent: str | None
    """The agent of calls that name none."""
    headers: Mapping[str, str] = {}
    """Those of the request that some agent's server may be sent, by lower-case name."""
    keyed: bool = False
    """Whether API keys exist: then nobody is anonymous, and extended cards are declared."""
    reads_only: bool = False
    """A HEAD, or a request that a page of another site may have had a browser make: a GET of it changes nothing, not
    even where its parameters ask for that."""

    def need_agent(self) -> str:
        """Raises not_found."""
        if self.agent is None:
            raise FaultError(FaultCode.NOT_FOUND, "No default agent: set default_agent, or name an agent in the path.")
        return self.agent


def caller(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    return connection.scope["state"]["caller"]


def has_siblings(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether the next request of this caller may come to another process, which knows nothing of what is kept here."""
    return connection.scope["state"].get("has_siblings", False)


def run_headers(made: Receipt | Task, run_id: str | None = None) -> dict[str, str]:
    """The gateway's own ids of what an answer is about: they lead to the same run in every other protocol."""
    headers = {"Babelgate-Thread": made.thread_id, "Babelgate-Task": made.task_id}
    if isinstance(made, Receipt):
        run_id = made.run_id
    if run_id is not None:
        headers["Babelgate-Run"] = run_id
    return headers


_UNPRINTABLE = re.compile(r'[^\x20-\x7e]|["\\]')


def loss_header(losses: Iterable[Loss]) -> dict[str, str]:
    """`Babelgate-Loss`, an RFC 8941 dictionary of feature → what got lost; no header where nothing did."""
    # RFC 8941, 3.3.3: a string is printable ASCII, without quotes and backslashes where none is escaped.
    value = ", ".join(f'{loss.feature}="{_UNPRINTABLE.sub("?", loss.how)}"' for loss in dict.fromkeys(losses))
    return {"Babelgate-Loss": value} if value else {}

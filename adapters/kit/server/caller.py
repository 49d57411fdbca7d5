"""Request context: who calls, and how the caller sees the gateway; put into the request by the middleware, read by
every server."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from litestar.connection import ASGIConnection

from babelgate.canonical import FaultCode, FaultError, Receipt, Task
from babelgate.canonical.printable import printable
from babelgate.canonical.thread import Loss, losses_by_feature


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


_LETTERS: Final = re.compile(r"[^a-z0-9_.*-]")
_FIRST: Final = re.compile(r"[a-z*]")
_NAME_LENGTH: Final = 64
"""Characters of the name of one feature. Chosen: the longest of our own has 17."""
_LOSS_LENGTH: Final = 1024
"""Characters of the losses of one feature. Chosen: all that ACP has no form for in one run are about 500."""
_HEADER_LENGTH: Final = 4096
"""Characters of the header. Chosen: nginx and Node.js refuse answers whose headers have more than 4 to 16 KiB."""
_MORE: Final = "others"


def loss_header(losses: Iterable[Loss]) -> dict[str, str]:
    """`Babelgate-Loss`, an RFC 8941 dictionary of feature → what got lost; no header where nothing did.

    The names and texts may come from agents and their servers, so they are escaped and bounded. The body and the
    log have them as they are.
    """
    members: list[str] = []
    length = 0
    found = list(losses_by_feature(losses).items())
    for done, (feature, how) in enumerate(found):
        member = f"{_key(feature)}={_quote(printable(how, _LOSS_LENGTH, is_ascii=True))}"
        length += len(member) + 2
        if length > _HEADER_LENGTH:
            members.append(f"{_MORE}={_quote(f'{len(found) - done} more features')}")
            break
        members.append(member)
    return {"Babelgate-Loss": ", ".join(members)} if members else {}


def _key(feature: str) -> str:
    """RFC 8941, 3.2: a key is lower-case ASCII and begins with a letter or an asterisk."""
    key = _LETTERS.sub("_", feature[:_NAME_LENGTH].lower())
    return key if _FIRST.match(key) else f"*{key}"


def _quote(text: str) -> str:
    """RFC 8941, 3.3.3: a string is printable ASCII, with quotes and backslashes escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

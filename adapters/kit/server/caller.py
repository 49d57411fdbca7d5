"""Request context: the caller, and the gateway's address as the caller sees it. The middleware stores it in the
request, and every server reads it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.jws import PayloadSigner
from babelgate.canonical import FaultCode, FaultError, Principal, Receipt, Task
from babelgate.canonical.printable import printable
from babelgate.canonical.thread import Loss, losses_by_feature


class Issuer(msgspec.Struct, frozen=True):
    """An issuer whose tokens the gateway accepts, such as an OpenID provider."""

    name: str
    url: str
    discovery_url: str
    """URL of the issuer's discovery document (OpenID Connect Discovery 1.0)."""
    audiences: tuple[str, ...] = ()
    """Audiences (`aud` claims) of which an accepted token must have one."""


class Authentication(msgspec.Struct, frozen=True):
    """The kinds of credentials that the gateway accepts from callers. By default it requires none."""

    accepts_keys: bool = False
    issuers: tuple[Issuer, ...] = ()
    scopes: tuple[str, ...] = ()
    """Names of all scopes that an operation may require of a token, for metadata that lists them."""

    @property
    def is_required(self) -> bool:
        """True if the gateway refuses callers without a credential."""
        return self.accepts_keys or bool(self.issuers)


class Caller(msgspec.Struct, frozen=True):
    """The authenticated caller of one request, with the base URL and the agent that the request addresses."""

    principal: Principal
    base_url: str
    """Base URL that the caller addressed, without a trailing slash: the public URL, or `…/agent/<name>` below it."""
    agent: str | None
    """Name of the agent for requests that name none: the agent in the path, or the default agent. None if there is no
    such agent."""
    headers: Mapping[str, str] = {}
    """Headers of the request that may be forwarded to agents' servers, by lower-case name."""
    authentication: Authentication = Authentication()
    """Kinds of credentials that the gateway accepts. If it requires one, the agents' A2A cards declare an extended
    card."""
    signer: PayloadSigner | None = None
    """Signer of the agents' cards. None if they are not signed."""
    rpc_address: str | None = None
    """Host and port at which the caller reaches the gateway's gRPC server; None if there is none."""
    reads_only: bool = False
    """True for a HEAD request, and for a request that a page of another site may have caused in a browser. Handlers
    must then change nothing, even if the parameters of a GET request a change."""

    @property
    def owner(self) -> str:
        """Name of the owner whose data the caller works on. Empty if the path needs no API key and none was sent."""
        return self.principal.owner

    @property
    def agent_path(self) -> str:
        """Path of the single agent that the caller addressed, such as `/agent/echo`. Empty if it addressed the whole
        gateway."""
        path = f"/agent/{self.agent}"
        return path if self.agent is not None and self.base_url.endswith(path) else ""

    @property
    def has_single_agent(self) -> bool:
        """True if the caller addressed a single agent, such as `/agent/echo`. It then sees no other agent."""
        return self.agent_path != ""

    @property
    def root_url(self) -> str:
        """Base URL of the whole gateway, also if the caller addressed a single agent."""
        return self.base_url.removesuffix(self.agent_path)

    def need_agent(self) -> str:
        """Return the name of the agent for requests that name none. Raises not_found if there is no such agent."""
        if self.agent is None:
            raise FaultError(FaultCode.NOT_FOUND, "No default agent: set default_agent, or name an agent in the path.")
        return self.agent


def caller(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """Return the caller of a request."""
    return connection.scope["state"]["caller"]


def base_url(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the base URL that the caller addressed, also for a request that was refused."""
    return connection.scope["state"].get("base_url", "")


def authentication(connection: ASGIConnection[Any, Any, Any, Any]) -> Authentication:
    """Return the credentials that the gateway accepts, also for a request that was refused."""
    return connection.scope["state"].get("authentication", Authentication())


OPERATION: Final = "operation"
"""Key in the state of a request under which `note_operation` stores the name of the operation."""


def note_operation(connection: ASGIConnection[Any, Any, Any, Any], name: str) -> None:
    """Store the name of a request's operation for logs and metrics. It must be from a fixed set, such as the methods of
    the protocol."""
    connection.scope["state"][OPERATION] = name


def has_siblings(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Return True if the next request of the caller may reach another process of the gateway. Then a session must not
    be held in the memory of this process."""
    return connection.scope["state"].get("has_siblings", False)


def run_headers(target: Receipt | Task, run_id: str | None = None) -> dict[str, str]:
    """Return the response headers with the gateway's ids of a thread, a task and its run, which are the same in every
    protocol. The id of the run is that of the receipt, or `run_id` for a task; None omits its header."""
    headers = {"Babelgate-Thread": target.thread_id, "Babelgate-Task": target.task_id}
    if isinstance(target, Receipt):
        run_id = target.run_id
    if run_id is not None:
        headers["Babelgate-Run"] = run_id
    return headers


_LETTERS: Final = re.compile(r"[^a-z0-9_.*-]")
"""Pattern of characters that the key of an RFC 8941 dictionary must not contain."""
_FIRST: Final = re.compile(r"[a-z*]")
"""Pattern of the first character of a key in an RFC 8941 dictionary."""
_NAME_LENGTH: Final = 64
"""Maximum length of a feature's name, in characters. Chosen: the longest built-in name has 17."""
_LOSS_LENGTH: Final = 1024
"""Maximum length of one feature's losses, in characters. Chosen: all losses of a run in ACP take about 500."""
_HEADER_LENGTH: Final = 4096
"""Maximum length of the header `Babelgate-Loss`, in characters. Chosen: nginx and Node.js reject responses whose
headers exceed 4 to 16 KiB."""
_MORE: Final = "others"
"""Key in the header `Babelgate-Loss` for the number of features that did not fit."""


def loss_header(losses: Iterable[Loss]) -> dict[str, str]:
    """Return the header `Babelgate-Loss`: an RFC 8941 dictionary of features, with a description of what was lost.
    Return no header if there are no losses.

    The names and texts may come from agents and their servers, so they are escaped and truncated. The body and the log
    hold the originals.
    """
    members: list[str] = []
    length = 0
    by_feature = list(losses_by_feature(losses).items())
    for done, (feature, how) in enumerate(by_feature):
        member = f"{_key(feature)}={_quote(printable(how, _LOSS_LENGTH, is_ascii=True))}"
        length += len(member) + 2
        if length > _HEADER_LENGTH:
            members.append(f"{_MORE}={_quote(f'{len(by_feature) - done} more features')}")
            break
        members.append(member)
    return {"Babelgate-Loss": ", ".join(members)} if members else {}


def _key(feature: str) -> str:
    """Return the name of a feature as the key of an RFC 8941 dictionary (section 3.2): lower-case ASCII that begins
    with a letter or an asterisk."""
    key = _LETTERS.sub("_", feature[:_NAME_LENGTH].lower())
    return key if _FIRST.match(key) else f"*{key}"


def _quote(text: str) -> str:
    """Return a text as a string of RFC 8941 (section 3.3.3), with escaped quotes and backslashes. The text must be
    printable ASCII."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

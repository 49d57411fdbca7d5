"""Access to the console: the checks of every request to its API, and who is an operator."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.console.pages import is_switched
from babelgate.gateway.settings.console import ConsoleSettings
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.auditor import NO_AUDITOR, Auditor

IsOwnOrigin = Callable[[MutableMapping[str, Any], Mapping[bytes, bytes]], bool]
"""Returns True if the Origin of a request, by its scope and headers, is that of the gateway itself."""

GATE: Final = "console_gate"
"""Key of the `ConsoleGate` in the state of a request. It is not in the hooks, because hooks hold no state."""
_OFF: Final = "The console is off: set console: true in the settings."
_FOREIGN: Final = (
    "Origin: the console's API accepts requests only from the console's own page. Other pages must use a protocol of "
    "the gateway. If the console is behind a proxy, set public_url in the settings."
)
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""


class ConsoleGate:
    """Checks of requests to the console."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        policy: Policy,
        is_own_origin: IsOwnOrigin,
        auditor: Auditor = NO_AUDITOR,
    ) -> None:
        """Create the gate. `settings` returns the current settings. `auditor` receives the refused calls."""
        self._settings = settings
        self._policy = policy
        self._is_own_origin = is_own_origin
        self._auditor = auditor

    @property
    def console(self) -> ConsoleSettings:
        """The current settings of the console."""
        return self._settings().console

    def check_path(self, path: str) -> None:
        """Raise not_found for a path of the console, with any method, if the console is off. Raises not_found."""
        if not self.console.enabled and is_switched(path):
            raise FaultError(FaultCode.NOT_FOUND, _OFF)

    def check_request(self, request: AnyRequest) -> None:
        """Raise an error for a request that a page of another origin may have sent. Raises forbidden, invalid.

        A request that changes something needs JSON, which a form of another page cannot send.
        """
        headers = dict(request.scope["headers"])
        has_own_origin = b"origin" not in headers or self._is_own_origin(request.scope, headers)  # type: ignore[arg-type]
        if not has_own_origin or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise FaultError(FaultCode.FORBIDDEN, _FOREIGN)
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if request.method not in _READS and content_type != b"application/json":
            raise FaultError(
                FaultCode.INVALID,
                f"Content-Type: expected application/json, which each {request.method} of the console needs.",
            )

    def is_operator(self, principal: Principal) -> bool:
        """Return True if the principal may operate the gateway.

        With credentials, the policy decides. Without them, every caller is the operator, unless other machines can
        reach the gateway.
        """
        settings = self._settings()
        if not settings.has_credentials:
            return settings.is_local
        try:
            self._policy.check(principal, "admin", "", "")
        except FaultError:
            return False
        return True

    def need_operator(self, principal: Principal) -> None:
        """Raise forbidden if the principal may not operate the gateway, and report it for the audit log. Raises
        forbidden."""
        settings = self._settings()
        if settings.has_credentials:
            try:
                self._policy.check(principal, "admin", "", "")
            except FaultError as error:
                self._auditor.note_denial("admin", "", error.fault.message)
                raise
        elif not settings.is_local:
            raise FaultError(
                FaultCode.FORBIDDEN,
                "This gateway has no operator, because other machines reach it and callers need no credential. Set "
                'keys or issuers in the settings, and a rule of access such as {who: "key:ops", allow: [admin]}.',
            )


async def check_request(request: AnyRequest) -> Response[Any] | None:
    """Refuse requests to the API that the console itself does not send. Raises forbidden, invalid."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.check_request(request)
    return None


def is_operator(request: AnyRequest) -> bool:
    """Return True if the caller of a request may operate the gateway."""
    gate: ConsoleGate = request.scope["state"][GATE]
    return gate.is_operator(caller(request).principal)


def need_operator(request: AnyRequest) -> None:
    """Raise forbidden if the caller of a request may not operate the gateway. Raises forbidden."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.need_operator(caller(request).principal)

"""Access to the console: the checks of every request to its API, and the check that a caller is an operator."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol, cast

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
"""Function that returns True if the Origin of a request, given its scope and headers, is that of the gateway itself."""

GATE: Final = "console_gate"
"""Name of the `ConsoleGate` in the state of a request. The hooks find it there, because hooks hold no state."""
_OFF: Final = "The console is off: set console: true in the settings."
_FOREIGN: Final = (
    "Origin: the console's API accepts requests only from the console's own page. Other pages must use a protocol of "
    "the gateway. If the console is behind a proxy, set public_url in the settings."
)
_ELSEWHERE: Final = (
    "Operators use the console on the address of admin.listen. On this port, every caller of the console is a caller "
    "of agents."
)
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods of requests that change nothing."""


class OperatorAddress(Protocol):
    """Separate address (`admin.listen`) on which operators use the console."""

    callers: tuple[str, int] | None
    """Host and port on which the protocols are served; None if they are not known."""

    def is_called(self, scope: MutableMapping[str, Any]) -> bool:
        """Return True if the request with this ASGI scope has arrived on this address."""
        ...


class ConsoleGate:
    """Access checks of requests to the console."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        policy: Policy,
        is_own_origin: IsOwnOrigin,
        auditor: Auditor = NO_AUDITOR,
        operator_address: OperatorAddress | None = None,
    ) -> None:
        """Create the gate. `settings` returns the current settings. `auditor` receives the refused requests. On an
        `operator_address`, callers can be operators; if it is None, they can be on every address."""
        self._settings = settings
        self._policy = policy
        self._is_own_origin = is_own_origin
        self._auditor = auditor
        self._operator_address = operator_address

    @property
    def console(self) -> ConsoleSettings:
        """Current settings of the console."""
        return self._settings().console

    def check_path(self, path: str) -> None:
        """Check that the console is enabled, if a path belongs to it. Raises not_found if it is not, for any HTTP
        method."""
        if not self.console.enabled and is_switched(path):
            raise FaultError(FaultCode.NOT_FOUND, _OFF)

    def check_request(self, request: AnyRequest) -> None:
        """Check that a request was not sent by a page of another origin. Raises forbidden if it was, and invalid for a
        change without the content type of JSON.

        A request that changes something needs the content type of JSON, which a form of another page cannot send.
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

    def is_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> bool:
        """Return True if the principal is an operator. The `scope` of the request shows on which address it arrived."""
        try:
            self._check_operator(scope, principal)
        except FaultError:
            return False
        return True

    def need_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> None:
        """Check that the principal is an operator, and report a refusal for the audit log. Raises forbidden for any
        other principal."""
        try:
            self._check_operator(scope, principal)
        except FaultError as error:
            self._auditor.note_denial("admin", "", error.fault.message)
            raise

    def _check_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> None:
        """Check that the principal is an operator. Raises forbidden for any other principal, and for a request to
        another address than `admin.listen`, if that is set.

        With credentials, the policy decides. Without them, every caller is an operator, unless other machines can reach
        the gateway.
        """
        settings = self._settings()
        if self._operator_address is not None and not self._operator_address.is_called(scope):
            raise FaultError(FaultCode.FORBIDDEN, _ELSEWHERE)
        if settings.has_credentials:
            self._policy.check(principal, "admin", "", "")
        elif not settings.is_local:
            raise FaultError(
                FaultCode.FORBIDDEN,
                "This gateway has no operator, because other machines reach it and callers need no credential. Set "
                'keys or issuers in the settings, and a rule of access such as {who: "key:ops", allow: [admin]}.',
            )

    def server_of(self, scope: MutableMapping[str, Any]) -> tuple[str, int | None]:
        """Return the host and port on which this process serves the protocols. By default, this is the address of the
        request."""
        address = self._operator_address
        if address is not None and address.callers is not None and address.is_called(scope):
            return address.callers
        return cast("tuple[str, int | None]", scope.get("server") or ("", None))


async def check_request(request: AnyRequest) -> Response[Any] | None:
    """Check that a request to the API was sent by the console's own page. It is a hook before the handlers. Raises
    forbidden for a request of another page, and invalid for a change without the content type of JSON."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.check_request(request)
    return None


def is_operator(request: AnyRequest) -> bool:
    """Return True if the caller of a request is an operator."""
    gate: ConsoleGate = request.scope["state"][GATE]
    return gate.is_operator(request.scope, caller(request).principal)  # type: ignore[arg-type]


def need_operator(request: AnyRequest) -> None:
    """Check that the caller of a request is an operator. Raises forbidden for any other caller."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.need_operator(request.scope, caller(request).principal)  # type: ignore[arg-type]


def server_of(request: AnyRequest) -> tuple[str, int | None]:
    """Return the host and port on which this process serves the protocols."""
    gate: ConsoleGate = request.scope["state"][GATE]
    return gate.server_of(request.scope)  # type: ignore[arg-type]

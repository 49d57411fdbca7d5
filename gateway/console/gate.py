"""Access to the console: the checks of every request to its API, and who is an operator."""

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
"""Returns True if the Origin of a request, by its scope and headers, is that of the gateway itself."""

GATE: Final = "console_gate"
"""Key of the `ConsoleGate` in the state of a request. It is not in the hooks, because hooks hold no state."""
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
"""Methods that change nothing."""


class OperatorAddress(Protocol):
    """Separate address on which operators use the console."""

    callers: tuple[str, int] | None
    """Address on which the protocols are served."""

    def is_called(self, scope: MutableMapping[str, Any]) -> bool:
        """Return True if a request has arrived on this address."""
        ...


class ConsoleGate:
    """Checks of requests to the console."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        policy: Policy,
        is_own_origin: IsOwnOrigin,
        auditor: Auditor = NO_AUDITOR,
        operator_address: OperatorAddress | None = None,
    ) -> None:
        """Create the gate. `settings` returns the current settings. `auditor` receives the refused calls.
        `operator_address` is the only address on which callers are operators; by default they are on every address."""
        self._settings = settings
        self._policy = policy
        self._is_own_origin = is_own_origin
        self._auditor = auditor
        self._operator_address = operator_address

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

    def is_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> bool:
        """Return True if the principal may operate the gateway with a request."""
        try:
            self._check_operator(scope, principal)
        except FaultError:
            return False
        return True

    def need_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> None:
        """Raise forbidden if the principal may not operate the gateway with a request, and report it for the audit log.
        Raises forbidden."""
        try:
            self._check_operator(scope, principal)
        except FaultError as error:
            self._auditor.note_denial("admin", "", error.fault.message)
            raise

    def _check_operator(self, scope: MutableMapping[str, Any], principal: Principal) -> None:
        """Raise forbidden if the principal may not operate the gateway with a request.

        With credentials, the policy decides. Without them, every caller is the operator, unless other machines can
        reach the gateway. Raises forbidden.
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
        """Return the address of this process on which it serves the protocols: by default, that of the request."""
        address = self._operator_address
        if address is not None and address.callers is not None and address.is_called(scope):
            return address.callers
        return cast("tuple[str, int | None]", scope.get("server") or ("", None))


async def check_request(request: AnyRequest) -> Response[Any] | None:
    """Refuse requests to the API that the console itself does not send. Raises forbidden, invalid."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.check_request(request)
    return None


def is_operator(request: AnyRequest) -> bool:
    """Return True if the caller of a request may operate the gateway."""
    gate: ConsoleGate = request.scope["state"][GATE]
    return gate.is_operator(request.scope, caller(request).principal)  # type: ignore[arg-type]


def need_operator(request: AnyRequest) -> None:
    """Raise forbidden if the caller of a request may not operate the gateway. Raises forbidden."""
    gate: ConsoleGate = request.scope["state"][GATE]
    gate.need_operator(request.scope, caller(request).principal)  # type: ignore[arg-type]


def server_of(request: AnyRequest) -> tuple[str, int | None]:
    """Return the address of this process on which it serves the protocols."""
    gate: ConsoleGate = request.scope["state"][GATE]
    return gate.server_of(request.scope)  # type: ignore[arg-type]

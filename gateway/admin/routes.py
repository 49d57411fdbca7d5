"""Routes of the administration API, below `/admin`. A hook before every handler checks the caller."""

from collections.abc import Callable
from typing import Any, Final

from litestar import Response, Router, delete, get, post, put

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.admin.agents import AgentHandlers
from babelgate.gateway.admin.audit_log import AuditHandlers
from babelgate.gateway.admin.budgets import BudgetHandlers
from babelgate.gateway.admin.configuration import ConfigurationHandlers
from babelgate.gateway.admin.keys import KeyHandlers
from babelgate.gateway.admin.usage import UsageHandlers
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.auditor import Auditor

PREFIX: Final = "/admin"
_OFF: Final = (
    "The administration API is off, because callers need no credential. Set keys or issuers in the settings, and a "
    "rule of access that allows admin."
)


GATE: Final = "admin_gate"
"""Name of the `AdminGate` in the state of a request. The hook finds it there, because hooks hold no state."""


class AdminGate:
    """Access check of every request to the administration API."""

    def __init__(self, settings: Callable[[], Settings], policy: Policy, auditor: Auditor) -> None:
        """Create the gate. `settings` returns the current settings. `auditor` receives the refused requests."""
        self._settings = settings
        self._policy = policy
        self._auditor = auditor

    def check(self, principal: Principal) -> None:
        """Check that the principal may use the administration API. Raises not_found if the API is off, and forbidden if
        the policy does not allow it."""
        if not self._settings().has_credentials:
            raise FaultError(FaultCode.NOT_FOUND, _OFF)
        try:
            self._policy.check(principal, "admin", "", "")
        except FaultError as error:
            self._auditor.note_denial("admin", "", error.fault.message)
            raise


async def _check(request: AnyRequest) -> Response[Any] | None:
    gate: AdminGate = request.scope["state"][GATE]
    gate.check(caller(request).principal)
    return None


def admin_routes(hub: GatewayHub, port: GatewayPort) -> Router:
    """Return the routes of the administration API. `port` has the functions of the gateway that its handlers call."""
    keys, agents, audit = KeyHandlers(hub), AgentHandlers(hub, port), AuditHandlers(hub)
    configuration, usage, budgets = ConfigurationHandlers(port), UsageHandlers(hub), BudgetHandlers(hub)
    key, agent = "/keys/{key_id:str}", "/agents/{name:str}"
    return Router(
        PREFIX,
        before_request=_check,
        route_handlers=[
            post("/keys")(keys.create_key),
            get("/keys")(keys.list_keys),
            get(key)(keys.get_key),
            delete(key, status_code=200)(keys.revoke_key),
            post(f"{key}/rotate", status_code=200)(keys.rotate_key),
            get("/agents")(agents.list_agents),
            get(agent)(agents.get_agent),
            put(agent)(agents.put_agent),
            delete(agent)(agents.delete_agent),
            post(f"{agent}/disable", status_code=200)(agents.disable),
            post(f"{agent}/enable", status_code=200)(agents.enable),
            post(f"{agent}/probe", status_code=200)(agents.probe),
            get("/audit")(audit.list_records),
            get("/audit/verify")(audit.verify),
            get("/config")(configuration.get_config),
            post("/reload", status_code=200)(configuration.reload),
            get("/usage")(usage.get_usage),
            get("/budgets")(budgets.list_budgets),
            post("/budgets/{name:str}/raise", status_code=200)(budgets.raise_budget),
        ],
    )

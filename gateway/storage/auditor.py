"""Audit of acts that happen outside of a transaction: refused calls, failed logins, reloads of the settings."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from babelgate.canonical.fault import FaultError
from babelgate.canonical.principal import Operation
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.exchange import ActOrigin, current_origin
from babelgate.gateway.storage.audit import Act, ActTarget, record_all, with_origin
from babelgate.gateway.storage.journal import Journal

log = logging.getLogger("babelgate.admin")

_MINUTE: Final = 60.0
"""Seconds for which equal acts are counted before one record with their number is written. Chosen."""
_MAX_COUNTED: Final = 1000
"""Maximum number of different acts that are counted at a time. Further ones share one count per action. Chosen: 1
MB."""


class Auditor:
    """Interface for reports of refused calls, failed logins and reloads. This base class ignores them."""

    async def stop(self, seconds: float = STOPPING) -> None:
        """Write the counted acts to the audit log within `seconds`."""

    def note_denial(self, operation: Operation, agent: str, reason: str) -> None:
        """Report that the access policy refused a call of the current request."""

    def note_failed_login(self, reason: str) -> None:
        """Report that the current request has no credential, or an invalid one."""

    def note_card(self, agent: str, reason: str, is_refused: bool) -> None:
        """Report that the signature of an agent's A2A card could not be verified, and whether the card was refused or
        used."""

    def note_reload(self, applied: Sequence[str], mistakes: Sequence[str]) -> None:
        """Report that the configuration was read again.

        `applied` are the keys of the changed settings. `mistakes` are error texts: if there are any, nothing was
        applied."""


NO_AUDITOR: Final = Auditor()


class CountingAuditor(Auditor):
    """Auditor that counts equal refusals for a minute, and then writes one record with their number.

    So a caller that is refused in a loop does not fill the database."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._counts: dict[Act, int] = {}
        """Number of occurrences of each act since the last record, with the act's request id and trace id left
        empty."""
        self._tasks = Tasks()

    def note_denial(self, operation: Operation, agent: str, reason: str) -> None:
        target = ActTarget("agent" if agent else "gateway", agent, agent=agent)
        self._count(Act(action=f"call.{operation}", target=target, outcome="deny", reason=reason, origin=_origin()))

    def note_failed_login(self, reason: str) -> None:
        self._count(Act(action="login", target=ActTarget("gateway"), outcome="deny", reason=reason, origin=_origin()))

    def note_card(self, agent: str, reason: str, is_refused: bool) -> None:
        target, outcome = ActTarget("agent", agent, agent=agent), "deny" if is_refused else "error"
        self._count(Act(action="card.verify", target=target, outcome=outcome, reason=reason, origin=_origin()))

    def note_reload(self, applied: Sequence[str], mistakes: Sequence[str]) -> None:
        outcome, reason = ("error", "; ".join(mistakes)) if mistakes else ("allow", ", ".join(applied))
        act = Act(action="settings.reload", target=ActTarget("settings"), outcome=outcome, reason=reason)
        self._tasks.spawn(self._record([with_origin(act)]), "audit of a reload")

    def _count(self, act: Act) -> None:
        if act not in self._counts and len(self._counts) >= _MAX_COUNTED:
            target, origin = ActTarget("gateway"), ActOrigin()
            act = Act(action=act.action, target=target, outcome="deny", reason="several", origin=origin)
        if not self._counts:
            self._tasks.spawn(self._record_later(), "audit of refusals")
        self._counts[act] = self._counts.get(act, 0) + 1

    async def _record_later(self) -> None:
        with suppress(asyncio.CancelledError):  # the gateway stops
            await asyncio.sleep(_MINUTE)
        await self.record_now()

    async def record_now(self) -> None:
        """Write one record for each act that was counted since the last call, and reset the counts."""
        counts, self._counts = self._counts, {}
        acts = [msgspec.structs.replace(act, count=count) for act, count in counts.items()]
        if acts:
            await self._record(acts)

    async def _record(self, acts: Sequence[Act]) -> None:
        try:
            await self._journal.write(record_all, acts)
        except FaultError as error:
            count = sum(act.count for act in acts)
            log.warning("acts not recorded in the audit log count=%d error=%s", count, error)

    async def stop(self, seconds: float = STOPPING) -> None:
        """Write the counted acts to the audit log within `seconds`."""
        await self._tasks.stop(seconds)


def _origin() -> ActOrigin:
    """Return the origin of the current request with an empty request id and trace id, so that equal requests count as
    one."""
    return msgspec.structs.replace(current_origin(), request_id="", trace_id="")

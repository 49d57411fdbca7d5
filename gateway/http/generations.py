"""Generations: the settings and agents with which the gateway works, and their replacement by a reload.

`Generations.current` is the only reference to them. A reload prepares everything that is new, and then replaces the
reference by one assignment. Requests and runs that have begun continue with the values that they have read.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from babelgate.canonical import Agent, FaultError, Principal
from babelgate.canonical.principal import Operation
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.access.rules import policy_of
from babelgate.gateway.admin.agent_specs import merge_agents, resolve_spec
from babelgate.gateway.admin.key_ring import KeyRing
from babelgate.gateway.agents.registry import Registry, close_agent, connect
from babelgate.gateway.background import Tasks
from babelgate.gateway.generation import HubGeneration, HubSettings
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.http.expiry import OpenStreams
from babelgate.gateway.http.front import Front
from babelgate.gateway.http.temporary_keys import TemporaryKeys
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.administration import AdminSettings
from babelgate.gateway.settings.changes import compute_digest, find_changes, is_fixed, without_restart
from babelgate.gateway.settings.load import ConfigError
from babelgate.gateway.settings.model import AgentSettings, Settings
from babelgate.gateway.storage.administration import Administration

log = logging.getLogger("babelgate.reload")

_CONNECT: Final = 3.0
"""Seconds that a reload waits for servers to list their agents. Chosen: a running server answers in less than one."""
_CONNECT_PER_SERVER: Final = 0.1
"""Additional seconds for each server that is asked. Chosen: one process asks all of them at once."""


def connect_patience(servers: int) -> float:
    """Return the seconds that a reload waits until this many servers have listed their agents."""
    return _CONNECT + _CONNECT_PER_SERVER * servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Settings of a gateway, its agents, and the objects that are built from both."""

    settings: Settings
    front: Front
    """Checks of requests by these settings."""
    hub: HubGeneration
    policy: Policy
    """Rules for what callers may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """Result of a reload: which settings were applied, and the mistakes."""

    applied: Sequence[str] = ()
    """Keys of the settings that were changed, such as `limits.run`."""
    needs_restart: Sequence[str] = ()
    """Keys of the settings that were changed in the configuration, but take effect only at the next start."""
    broken: Sequence[str] = ()
    """Agents that are new or changed and cannot be called, each with the reason."""
    mistakes: Sequence[str] = ()
    """Mistakes in the configuration, as `babelgate validate` prints them. If there are any, nothing was changed."""

    @property
    def is_ok(self) -> bool:
        """True if the configuration has no mistakes."""
        return not self.mistakes


def _list_newly_broken(before: Registry, after: Registry) -> Sequence[str]:
    reasons = {each.info.name: each.broken for each in before.all()}
    broken = [each for each in after.all() if each.broken is not None]
    return [f"{each.info.name}: {each.broken}" for each in broken if reasons.get(each.info.name) != each.broken]


class CurrentPolicy:
    """Policy that passes each check to the policy of the current generation."""

    def __init__(self, generations: "Generations") -> None:
        self._generations = generations

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        return self._generations.current.policy.has_rules_by_agent(principal, operation, protocol)

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        """Check that the principal may do the operation on an agent in a protocol. Raises forbidden if it may not."""
        self._generations.current.policy.check(principal, operation, agent, protocol)


def policy_of_settings(settings: Settings) -> Policy:
    """Return the policy that the setting `access` describes."""
    return policy_of(settings.access)


class Generations:
    """Holder of the current generation, which a reload replaces."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        make_policy: Callable[[Settings], Policy] = policy_of_settings,
        load: Callable[[], Settings] | None = None,
        loaded: Settings | None = None,
        spread: Callable[[], object] | None = None,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the first generation, with these settings and agents.

        `make_policy` returns the policy for settings. `load` reads the configuration again and raises ConfigError.
        `loaded` are the settings as they were read at the start, if `settings` differ from them. `spread` makes the
        other workers on the same port reload, too.
        """
        self._make_policy = make_policy
        self._load = load
        self._spread = spread
        self._loaded = settings if loaded is None else loaded
        self.connections: ConnectionTable | None = None
        """Table of callers' open connections; None if another program accepts them."""
        self.streams = OpenStreams()
        """Open streams of callers. A reload ends those whose credential is no longer accepted."""
        self.temporary_keys = TemporaryKeys()
        """Temporary API keys of programs that the gateway has started. A reload revokes those whose caller is no longer
        accepted."""
        self.key_ring = KeyRing(lambda changed: self._check_callers(lambda caller: changed.get(caller, caller)))
        """Keys of the administration API, which all generations share."""
        self.policy: Policy = CurrentPolicy(self)
        """Policy for all parts of the gateway. It passes each check to the policy of the current generation."""
        self._listeners: list[Callable[[Generation], object]] = []
        self._reloading = asyncio.Lock()
        self._retired: dict[int, Agent] = {}
        """Agents of earlier generations whose runs may not have ended, by the `id` of the object."""
        self._retirements = Tasks()
        self._refreshes = Tasks()
        self._hub: GatewayHub | None = None
        self._configured = self._loaded
        """Settings as they were last read, without the agents that were added by the administration API."""
        self._added: dict[str, AgentSettings] = {}
        """Settings of the agents that were added by the administration API, by name."""
        self.find_sources: Callable[[], Mapping[str, str]] = dict
        """Function that returns the source of each setting that is not at its default, by its key. A source is a file,
        an environment variable or an option, for example."""
        self.observer = observer
        """Receiver of reports for metrics."""
        self.reloaded_at = time.time()
        """Time of the last successful reload, or of the start, in seconds since 1970."""
        self.current = self._make(settings, registry, None)

    def hub_generation(self) -> HubGeneration:
        """Return the agents and settings with which the hub works now."""
        return self.current.hub

    def front(self) -> Front:
        """Return the checks that apply to new requests now."""
        return self.current.front

    def attach(self, hub: GatewayHub) -> None:
        """Connect the hub: it gets the agents and keys of the administration API, and is informed about reloads."""
        self._hub = hub
        self.current.hub.registry.cards.audit_to(hub.auditor.note_card)
        self.key_ring.follow(hub.administration, hub.journal)
        hub.before_recovery = self.refresh_agents
        hub.administration.add_listener(self._follow_agents)
        self.observer.note_reload(0)
        self._show_config(hub)

    def _show_config(self, hub: GatewayHub) -> None:
        if hub.cluster is not None:
            hub.show_config(compute_digest(self._loaded))

    def admin_port(self) -> GatewayPort:
        """Return the functions that the administration API and the console call."""
        return GatewayPort(
            settings=lambda: self.current.settings,
            sources=lambda: self.find_sources(),
            reload=self._reload_for_admin,
            refresh_agents=self.refresh_agents,
            added_agents=lambda: frozenset(self._added) - frozenset(self._configured.agents),
            count_streams=lambda: len(self.streams),
            count_connections=lambda: None if self.connections is None else self.connections.use,
            issue_key=self.temporary_keys.issue,
            revoke_key=self.temporary_keys.revoke,
        )

    async def _reload_for_admin(self) -> Mapping[str, Sequence[str]]:
        return asdict(await self.reload(everywhere=True))

    def _follow_agents(self, administration: Administration) -> None:
        """Start a task that applies the agents of the administration API, if they differ from the agents in force.
        Called after each change of these agents, by this node or another one."""
        if (
            self._hub is not None
            and self._hub.instance
            and self._resolve(administration, self._configured.admin) != self._added
        ):
            self._refreshes.spawn(self.refresh_agents(), "change of agents")

    async def refresh_agents(self) -> None:
        """Replace the current generation if the agents of the administration API differ from those in force."""
        assert self._hub is not None
        async with self._reloading:
            added = self._resolve(self._hub.administration.current, self._configured.admin)
            if added != self._added:
                self._report(await self._apply(self._configured))

    def _resolve(self, administration: Administration, admin: AdminSettings) -> dict[str, AgentSettings]:
        """Return the settings of the agents of the administration API, by name. Agents that the settings `admin` of
        this node do not allow are logged and left out."""
        agents: dict[str, AgentSettings] = {}
        for each in administration.agents:
            try:
                agents[each.name] = resolve_spec(each.spec, admin)
            except FaultError as error:
                log.error("agent of the administration API not used agent=%s error=%s", each.name, error)
        return agents if admin.agents else {}

    def on_change(self, listener: Callable[[Generation], object]) -> None:
        """Register a function that is called with each new generation, directly after it has become the current one."""
        self._listeners.append(listener)

    async def reload(self, *, everywhere: bool = False) -> ReloadReport:
        """Read the configuration again, and apply it if it has no mistakes. Reloads run one after the other.

        With `everywhere`, the other workers on the same port reload afterwards. Nodes on other machines do not: they
        have their own files.
        """
        if self._load is None:
            return ReloadReport(mistakes=("this gateway has no configuration to read again",))
        async with self._reloading:
            try:
                settings = await asyncio.to_thread(self._load)
            except ConfigError as error:
                report = ReloadReport(mistakes=tuple(error.problems))
            else:
                report = await self._apply(settings)
            self._report(report)
        if everywhere and report.is_ok and self._spread is not None:
            self._spread()
        return report

    async def apply(self, settings: Settings) -> ReloadReport:
        """Replace the current generation by one with these settings, which are valid.

        New and changed agents are connected first; meanwhile the current generation serves. Settings that only a start
        can change keep their values, and are named in the report. The agents that are no longer used are closed after
        `drain` seconds.
        """
        async with self._reloading:
            report = await self._apply(settings)
            self._report(report)
            return report

    async def _apply(self, settings: Settings) -> ReloadReport:
        configured = settings
        added = self._added if self._hub is None else self._resolve(self._hub.administration.current, settings.admin)
        if added:
            settings = settings.model_copy(update={"agents": merge_agents(settings.agents, added)})
        before, changes = self.current, [*find_changes(self._loaded, settings)]
        earlier = before.hub.registry
        registry = await connect(settings, patience=connect_patience(len(settings.agents)), previous=earlier)
        usable = without_restart(before.settings, settings)
        try:
            after = self._make(usable, registry, before)
        except FaultError as error:  # a secret that cannot sign
            await registry.close_others(earlier)
            return ReloadReport(mistakes=(error.fault.message,))
        if self._hub is not None:
            self._hub.attach(registry)
        registry.cards.permit(settings.network.allow)
        self.current = after  # no await follows: no request is handled in the middle of a reload
        self._added = added
        self._configured, self._loaded = configured, without_restart(self._loaded, settings)
        self.reloaded_at = time.time()
        if self._hub is not None:
            self._hub.handle_reload()
            self._show_config(self._hub)
        for listener in self._listeners:
            listener(after)
        self._check_callers(lambda principal: after.front.verifier.find_current(principal, before.front.verifier))
        registry.detect_broken()
        self._retire(before, after)
        return ReloadReport(
            applied=tuple(key for key in changes if not is_fixed(key)),
            needs_restart=tuple(key for key in changes if is_fixed(key)),
            broken=_list_newly_broken(earlier, registry),
        )

    def _check_callers(self, find: Callable[[Principal], Principal | None]) -> None:
        """End the streams and temporary keys of callers whose credential is no longer accepted.

        `find` returns the principal that an accepted credential has now, or None if the credential is no longer
        accepted.
        """
        self.streams.check(find)
        self.temporary_keys.check(find)

    def _make(self, settings: Settings, registry: Registry, before: Generation | None) -> Generation:
        if before is not None and before.settings.network == settings.network:
            fetcher = before.hub.delivery.fetcher
        else:
            fetcher = Fetcher(settings.network.allow)
        previous = None if before is None else before.front.verifier
        verifier = Verifier(
            settings, self.key_ring, previous=previous, observer=self.observer, temporary_keys=self.temporary_keys
        )
        secret, key = settings.webhook_secret, settings.secrets_key
        hub = HubGeneration.of(
            registry,
            fetcher,
            HubSettings(
                limits=settings.limits,
                budgets=settings.budgets,
                retention=settings.retention,
                patience=settings.recovery.patience,
                webhook_secret=None if secret is None else secret.get_secret_value(),
                webhook_retries=settings.webhooks.retries,
                wire=settings.console.wire if settings.console.enabled else "off",
                is_shared=settings.is_shared,
                public_url=settings.public_url,
                issuer_urls={name: each.issuer for name, each in settings.issuers.items()},
                secrets_key=None if key is None else key.get_secret_value(),
            ),
        )
        front = Front.of(settings, registry, verifier)
        return Generation(settings=settings, front=front, hub=hub, policy=self._make_policy(settings))

    def _report(self, report: ReloadReport) -> None:
        for mistake in report.mistakes:
            log.error("configuration not reloaded: %s", mistake)
        for key in report.needs_restart:
            log.warning("%s: needs a restart", key)
        for line in report.broken:
            log.warning("broken agent %s", line)
        for key in report.applied:
            log.info("%s: applied", key)
        if report.is_ok:
            log.info(
                "configuration reloaded applied=%d needs_restart=%d", len(report.applied), len(report.needs_restart)
            )
        self.observer.note_reload(len(report.mistakes))
        if self._hub is not None:
            self._hub.auditor.note_reload(report.applied, report.mistakes)

    # Agents of earlier generations

    def _retire(self, before: Generation, after: Generation) -> None:
        """Close the agents and issuers that the new generation does not use, after the runs of the earlier one had time
        to end."""
        used_ids = frozenset(id(each.agent) for each in after.hub.registry.all())
        self._retired |= {id(each): each for each in before.hub.registry.active_agents() if id(each) not in used_ids}
        self._retirements.spawn(self._close_later(before, after, used_ids), "drain of removed agents")

    async def _close_later(self, before: Generation, after: Generation, used_ids: frozenset[int]) -> None:
        drain = after.settings.drain
        await asyncio.sleep(drain)
        earlier = before.hub.registry
        await earlier.stop_detections()  # they may have found agents that only the earlier generation has
        unused = [agent for agent in earlier.active_agents() if id(agent) not in used_ids]
        self.current.hub.registry.forget_removed(unused)
        if self._hub is not None and unused:
            await self._hub.engine.end_runs_of(unused, drain)
        for agent in unused:
            self._retired.pop(id(agent), None)
            await close_agent(agent)
        await self.current.hub.registry.processes.retain(self.current.settings.agents)
        await before.front.verifier.aclose(after.front.verifier)

    async def aclose(self) -> None:
        """Close the agents of all generations, and cancel the fetches of keys."""
        await self._refreshes.stop()
        await self._retirements.stop()
        retired, self._retired = [*self._retired.values()], {}
        self.current.hub.registry.forget_removed(retired)
        for agent in retired:
            await close_agent(agent)
        await self.current.hub.registry.aclose()
        await self.current.front.verifier.aclose()

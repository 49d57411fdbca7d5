"""Verification of agent cards against the keys in `card.keys`, and its reports to metrics and the audit log."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from babelgate.adapters.kit.card_trust import CardTrust, KeysNotFetched
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.early_reports import EarlyReports
from babelgate.gateway.key_set import FETCH_TIMEOUT, MAX_DOCUMENT, KeySet, KeysUnavailable, parse_key_set, read_key_file
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.settings.fields import IPNetwork
from babelgate.gateway.settings.model import AgentSettings

log = logging.getLogger("babelgate.registry")

NoteCard = Callable[[str, str, bool], None]
"""Function that is called for a card which is not verified. Arguments: agent, reason, True if the card is refused."""


class CardChecks:
    """Verification of the cards of all agents. A reload keeps the object, and with it the key sets that were
    fetched."""

    def __init__(self, allow: Sequence[IPNetwork] = ()) -> None:
        """Create the checks. `allow` are the networks in `network.allow`, from which keys may be fetched although they
        are not public."""
        self._allow = tuple(allow)
        self._fetcher = self._open_fetcher()
        self._key_sets: dict[str, KeySet] = {}
        """Key sets by their URLs."""
        self.reports = EarlyReports()
        self._note: NoteCard | None = None
        self._early: list[tuple[str, str, bool]] = []
        """Arguments of the `NoteCard` calls that were due before `audit_to`: agents are connected before the audit log
        is open."""

    def trust_of(self, agent: str, settings: AgentSettings) -> CardTrust | None:
        """Return how the cards of an agent are verified, or None if its settings have no verification."""
        card = settings.card
        if not card.is_checked:
            return None
        is_required = card.verify == "require"
        return CardTrust(
            find_keys=partial(self._find_keys, card.keys),
            is_required=is_required,
            report=partial(self._report, agent, is_required),
        )

    def permit(self, allow: Sequence[IPNetwork]) -> None:
        """Allow key fetches from the networks in `allow`, in addition to public addresses, from now on."""
        if tuple(allow) != self._allow:
            self._allow = tuple(allow)
            self._fetcher = self._open_fetcher()

    def audit_to(self, note: NoteCard) -> None:
        """Call `note` for each card that is not verified. This includes the cards before this call."""
        self._note = note
        early, self._early = self._early, []
        for each in early:
            note(*each)

    async def aclose(self) -> None:
        """Cancel the fetches of keys."""
        for each in self._key_sets.values():
            await each.aclose()

    def _open_fetcher(self) -> Fetcher:
        return Fetcher(self._allow, connect_timeout=FETCH_TIMEOUT, total_timeout=2 * FETCH_TIMEOUT, limit=MAX_DOCUMENT)

    def _report(self, agent: str, is_required: bool, reason: str | None) -> None:
        self.reports.note_card_checked(agent, "verified" if reason is None else "unverified")
        if reason is None:
            return
        verify = "require" if is_required else "audit"
        log.warning("card not verified agent=%s verify=%s reason=%r", agent, verify, reason)
        if self._note is None:
            self._early.append((agent, reason, is_required))
        else:
            self._note(agent, reason, is_required)

    async def _find_keys(self, sources: Sequence[str], kid: str | None, algorithm: str) -> Sequence[Any]:
        """Return the keys of all sources that may have made a signature. `kid` and `algorithm` are those in the
        signature's header.

        Raises KeysNotFetched if a source cannot be read, and no other source has such a key.
        """
        found, is_missing = list[Any](), False
        for source in sources:
            try:
                found += await self._open(source).find_all(kid, algorithm)
            except KeysUnavailable:
                is_missing = True
        if is_missing and not found:
            raise KeysNotFetched("the keys in card.keys cannot be read now")
        return found

    def _open(self, source: str) -> KeySet:
        """Return the key set of a source in `card.keys`: the cached one of a URL, or a new one for a file, which is
        read each time."""
        if "://" not in source:
            return KeySet("card", source, partial(read_key_file, Path(source)))
        if source not in self._key_sets:
            self._key_sets[source] = KeySet("card", source, self._fetch_later(source))
        return self._key_sets[source]

    def _fetch_later(self, url: str) -> Callable[[], Awaitable[JsonObject]]:
        async def fetch() -> JsonObject:
            return parse_key_set(await self._fetcher.get(url), url)

        return fetch

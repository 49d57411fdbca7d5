"""Verification of the cards by which servers describe their agents: the keys to verify with, and what a failure means.

The gateway creates a `CardTrust` from its settings, and the client of a protocol with signed cards applies it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

FindKeys = Callable[[str | None, str], Awaitable[Sequence[Any]]]
"""(key id of a signature, algorithm) → public keys of the operator that may have made it. Raises KeysNotFetched."""


class KeysNotFetched(Exception):
    """Raised if keys of the operator cannot be had now. The message is the reason, without URLs and files."""


@dataclass(frozen=True, slots=True)
class CardTrust:
    """Verification of the cards of one agent's servers."""

    find_keys: FindKeys
    is_required: bool
    """True if a card that is not verified must not be used. Otherwise it is only reported."""
    report: Callable[[str | None], None]
    """Receiver of results: None for a verified card, or the reason why a card is not verified."""

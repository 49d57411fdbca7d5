"""Verification of signed agent cards, by which servers describe their agents: the keys to verify with, and the
consequence of a failure.

The gateway creates a `CardTrust` from its settings, and the client of a protocol with signed cards applies it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

FindKeys = Callable[[str | None, str], Awaitable[Sequence[Any]]]
"""Function that returns the public keys with which a signature may be verified: (key id in the signature or None,
algorithm) → keys that the operator trusts. Raises KeysNotFetched."""


class KeysNotFetched(Exception):
    """Raised if the keys that the operator trusts cannot be fetched at the moment. The message is the reason, without
    URLs and file names."""


@dataclass(frozen=True, slots=True)
class CardTrust:
    """Settings for the verification of the cards that the servers of one agent send."""

    find_keys: FindKeys
    is_required: bool
    """True if the gateway must not use a card that is not verified. If False, it uses the card, and only reports the
    failure."""
    report: Callable[[str | None], None]
    """Callback for the result of each verification: None for a verified card, or the reason why a card is not
    verified."""

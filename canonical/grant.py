"""Grants: threads that their owner shares with other callers."""

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

from babelgate.canonical.principal import Principal
from babelgate.canonical.value import Value

GrantLevel = Literal["read", "write"]
"""Rights of a grant. `read`: read the thread, its tasks, runs and files. `write`: also start, answer and cancel runs on
it. All other rights stay with the owner."""
GRANT_LEVELS: tuple[GrantLevel, ...] = get_args(GrantLevel)


class Grant(Value):
    """Grant: one thread that its owner shares with one grantee."""

    thread_id: str
    owner: str
    """Owner of the thread."""
    grantee: str
    """Owner or group of callers who get the rights: `owner:<name>` or `group:<name>`."""
    level: GrantLevel
    by: str
    """Subject (`Principal.subject`) of the caller who gave the grant."""
    at: int
    """Time at which the grant was given or last replaced, in microseconds since 1970, UTC."""
    expires: int | None = None
    """Time at which the grant ends, in microseconds since 1970, UTC; None if it does not."""


class Grants(Protocol):
    """Grants of threads. Only the owner of a thread gives, lists and deletes its grants."""

    async def give(
        self, principal: Principal, thread_id: str, grantee: str, level: GrantLevel, expires: int | None = None
    ) -> Grant:
        """Share a thread, or replace the grant of this grantee. The grant ends at the time `expires`, in microseconds
        since 1970, UTC; None means never. Raises not_found, invalid (the grantee or the time), queue_full (too many
        grants)."""
        ...

    async def delete(self, principal: Principal, thread_id: str, grantee: str) -> bool:
        """Delete a grant. Return True if it existed. Raises not_found."""
        ...

    async def list_given(self, principal: Principal, thread_id: str | None = None) -> Sequence[Grant]:
        """Return the grants of a thread, or of all threads of the owner if `thread_id` is None, the newest first.
        Raises not_found if the owner has no such thread."""
        ...

    async def list_received(self, principal: Principal) -> Sequence[Grant]:
        """Return the grants that apply to the caller, the newest first."""
        ...


def grantees_of(principal: Principal) -> frozenset[str]:
    """Return the values of `Grant.grantee` that include a caller: `owner:<owner>`, and `group:<name>` for each of the
    caller's groups."""
    owner = {f"owner:{principal.owner}"} if principal.owner else set[str]()
    return frozenset(owner | {f"group:{group}" for group in principal.groups})

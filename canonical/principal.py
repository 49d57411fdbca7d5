"""Principal: the caller of a request, and the owner whose data the call may use. The middleware authenticates the
caller, and every method of the hub has the principal as its first parameter."""

from typing import Literal, get_args

import msgspec

Operation = Literal["discover", "run", "answer", "read", "cancel", "write", "delete", "webhook", "admin"]
"""Kinds of calls that rules allow or deny, independent of the protocol.

- `discover`: list agents and read their descriptions.
- `run`: start a run.
- `answer`: answer the questions of a run.
- `read`: read threads, tasks, runs, files, store items, assistants and crons.
- `cancel`: cancel a run or a task.
- `write`: create or change threads, their state and files, store items, assistants and crons.
- `delete`: erase threads, runs, store items, assistants and crons.
- `webhook`: register and remove push notifications.
- `admin`: operate the gateway.
"""

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class Principal(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The authenticated caller of a request."""

    subject: str
    """Name of the caller, unique in the gateway: `key:<name>`, `user:<issuer>:<sub>`, or `anonymous`."""
    owner: str
    """Owner of the data that the caller works on. Several subjects may share an owner."""
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    issuer: str = ""
    """Name of the token's issuer in the settings, or `mtls` for a client certificate. Empty for API keys, and for
    callers without a credential."""
    credential_id: str = ""
    """Id of the API key or token, for logs. The id is not secret."""
    expires_at: float | None = None
    """Time at which the credential expires, in seconds since 1970, UTC; None if it does not."""

    @property
    def key_id(self) -> str:
        """Id of the caller's API key. Empty for callers without a credential, and for tokens, because their id changes
        with each login."""
        return "" if self.issuer else self.credential_id

    @property
    def token(self) -> str | None:
        """Token of the caller's request, for agents to which the gateway forwards it; None otherwise. The token is not
        a field of the struct, so nothing stores, compares or prints it."""
        return vars(self).get("_token")

    def with_token(self, token: str) -> "Principal":
        """Return a copy that holds the token of the caller's request. `msgspec.structs.replace` drops the token
        again."""
        copy = msgspec.structs.replace(self)
        vars(copy)["_token"] = token
        return copy

    @classmethod
    def of_owner(cls, owner: str) -> "Principal":
        """Return the principal for work that the gateway does for an owner, such as a cron."""
        return cls(subject=f"owner:{owner}", owner=owner)


def has_credential(subject: str) -> bool:
    """Return True if a subject names a caller with a credential: a key, a token or a client certificate."""
    return subject.startswith(("key:", "user:"))

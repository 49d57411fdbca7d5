"""Principal: who makes a call, and whose data the call works on. The middleware authenticates it, and every method of
the hub takes it first."""

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
- `delete`: erase any of them.
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
    """Name of the token's issuer in the settings; empty for API keys."""
    credential_id: str = ""
    """Id of the API key or token, for logs. It is no secret."""
    expires_at: float | None = None
    """Time at which the credential expires, in seconds since 1970, UTC; None if it does not."""

    @property
    def key_id(self) -> str:
        """Id of the API key; empty for a token, of which each login has another, and for callers without a
        credential."""
        return "" if self.issuer else self.credential_id

    @property
    def token(self) -> str | None:
        """Token that the caller has sent, if an agent may need it. It is not a field, so nothing stores, compares or
        prints it."""
        return vars(self).get("_token")

    def with_token(self, token: str) -> "Principal":
        """Return a copy with the token that the caller has sent. `msgspec.structs.replace` drops it again."""
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

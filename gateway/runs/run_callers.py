"""Bearer tokens of callers whose runs have not ended. They are in memory only, so a run that another process continues
has none."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from babelgate.canonical.principal import Principal
from babelgate.gateway.run_caller import DelegatingCaller, read_expiry
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.storage.agent_tokens import AgentTokenStore

_MAX_TOKENS: Final = 100_000
"""Maximum number of runs with a token in memory. Chosen: more than may wait; some 200 MB of tokens of 2 KiB."""


class RunCallers:
    """Tokens of the callers of runs in one gateway process, with which the gateway calls agents in the name of the
    caller."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        limit: int = _MAX_TOKENS,
        store: AgentTokenStore | None = None,
    ) -> None:
        """Create the collection. `clock` returns the time in seconds since 1970. `limit` is the maximum number of
        tokens. `store` has the tokens that users have granted to the gateway by consent."""
        self._store = store
        self._clock = clock
        self._limit = limit
        self._tokens: OrderedDict[tuple[int, str], tuple[str, float | None]] = OrderedDict()
        """Tokens by the key of the thread and the id of the run, each with its expiry in seconds since 1970 (None: it
        does not expire)."""

    def __len__(self) -> int:
        return len(self._tokens)

    def keep(self, pk: int, run_id: str, caller: Principal) -> None:
        """Store the caller's token for a committed run until it ends. A caller that has used no token, but an API key
        for example, is ignored."""
        if caller.token is None:
            return
        self._tokens[pk, run_id] = caller.token, read_expiry(caller.token)
        while self._tokens and (len(self._tokens) > self._limit or self._is_first_expired()):
            self._tokens.popitem(last=False)  # also of runs that were cancelled before they started

    def find(self, start: StartedRun) -> DelegatingCaller:
        """Return the caller of a run with its token. The token is None if the caller had none, or if it has expired."""
        token, expires_at = self._tokens.get((start.pk, start.run.run_id), (None, None))
        if expires_at is not None and expires_at <= self._clock():
            token = None
        return DelegatingCaller(owner=start.owner, subject=start.run.subject, token=token, store=self._store)

    def forget(self, pk: int, run_id: str) -> None:
        """Remove the token of a run that has ended."""
        self._tokens.pop((pk, run_id), None)

    def _is_first_expired(self) -> bool:
        expires_at = next(iter(self._tokens.values()))[1]
        return expires_at is not None and expires_at <= self._clock()

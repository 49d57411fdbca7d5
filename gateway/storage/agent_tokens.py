"""Encrypted storage of the access tokens with which users let agents act for them, and of open requests for consent.

A token is bound to its user, its agent and its purpose, which names the provider and the server. After a change of that
provider or server in the settings, or in the row of another user or agent, it cannot be decrypted."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Connection, delete, func, insert, select

from babelgate.gateway.exchange import ActOrigin
from babelgate.gateway.storage.audit import Act, ActTarget
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import AgentTokenRow, ConsentRow
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.tokens")

_TOKEN, _CONSENT = table_of(AgentTokenRow), table_of(ConsentRow)
_NONCE: Final = 12
"""Length of the nonce of AES-GCM, in bytes (NIST SP 800-38D, 8.2)."""


class Sealer:
    """Authenticated encryption of stored tokens: AES-256-GCM with a key that is derived from the settings."""

    def __init__(self, key: str) -> None:
        derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"babelgate agent tokens")
        self._cipher = AESGCM(derive.derive(key.encode()))

    def seal(self, content: bytes, context: str) -> bytes:
        """Return `content` encrypted. Only `open` with the same `context` can decrypt the result."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes | None:
        """Return the content that `seal` has encrypted. Return None if `seal` used another key or context, or `sealed`
        was changed."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except (InvalidTag, ValueError):
            return None


class GrantedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Access token, and refresh token if any, that a provider issued after a user's consent."""

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    """Time at which the access token expires, in seconds since 1970, UTC. None if the provider did not state it."""

    def __repr__(self) -> str:
        return f"GrantedTokens(expires_at={self.expires_at})"


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """An open request for a user's consent to an agent: the question of a task, and the login that would answer it."""

    state: str
    """SHA-256 digest, in hex digits, of the OAuth parameter `state` of the login."""
    owner: str
    subject: str
    agent: str
    task_id: str
    interrupt_id: str
    expires_at: int
    """Time at which the request expires, in microseconds since 1970, UTC."""


def digest_state(state: str) -> str:
    """Return the SHA-256 digest of an OAuth parameter `state`, in hex digits. It is the key of a stored `Consent`.

    The parameter itself is not stored, so a reader of the database cannot complete a login."""
    return hashlib.sha256(state.encode()).hexdigest()


class AgentTokenStore:
    """Database of the tokens of all users for all agents, which `babelgate.gateway.run_caller.DelegatingCaller.store`
    refers to.

    It also stores the open requests for consent.
    """

    def __init__(self, journal: Journal, key: Callable[[], str | None]) -> None:
        """Create the store. `key` returns the current encryption key of the settings, or None if no key is set."""
        self._journal = journal
        self._key = key
        self._sealer: tuple[str, Sealer] | None = None

    async def read(self, subject: str, agent: str, purpose: str) -> GrantedTokens | None:
        """Return the tokens of a user for an agent that are bound to a `purpose` (`TokenExchange.purpose`).

        Return None if none are stored, if the settings have no key, or if the stored ones cannot be decrypted.
        """
        sealer = self._current_sealer()
        body = None if sealer is None else await self._journal.query(_read_token, subject, agent)
        if sealer is None or body is None:
            return None
        content = sealer.open(body, _context(subject, agent, purpose))
        if content is None:
            log.warning("stored token not used: its key or its provider has changed agent=%s", agent)
        return None if content is None else msgspec.json.decode(content, type=GrantedTokens)

    async def write(self, subject: str, agent: str, purpose: str, tokens: GrantedTokens) -> None:
        """Store the tokens of a user for an agent, encrypted and bound to a `purpose` (`TokenExchange.purpose`). They
        replace earlier ones. Without a key, store nothing."""
        sealer = self._current_sealer()
        if sealer is not None:
            body = sealer.seal(msgspec.json.encode(tokens), _context(subject, agent, purpose))
            await self._journal.write(_write_token, subject, agent, body)

    async def delete(self, subject: str, agent: str) -> None:
        """Delete the tokens of a user for an agent."""
        await self._journal.write(_delete_token, subject, agent)

    async def note_exchange(self, subject: str, owner: str, agent: str, error: str = "") -> None:
        """Record in the audit log that the gateway exchanged a caller's token for one of the agent.

        `error` is the reason of a failure; empty for a success."""
        target = ActTarget("agent", agent, agent=agent)
        origin = ActOrigin(subject=subject, owner=owner)
        outcome = "error" if error else "allow"
        await self._journal.write_audited(
            Act(action="token.exchange", target=target, outcome=outcome, reason=error, origin=origin), _do_nothing
        )

    def _current_sealer(self) -> Sealer | None:
        key = self._key()
        if key is None:
            return None
        if self._sealer is None or self._sealer[0] != key:
            self._sealer = key, Sealer(key)
        return self._sealer[1]

    # Questions

    async def add(self, consent: Consent) -> None:
        """Store an open request for consent."""
        await self._journal.write(_add, consent)

    async def find(self, state: str) -> Consent | None:
        """Return the open request for consent whose login has this OAuth parameter `state`, or None."""
        return await self._journal.query(_find, digest_state(state))

    async def take(self, consent: Consent, action: str) -> Consent | None:
        """Remove a request for consent, record the `action` in the audit log, and return the request.

        The action is `consent.grant`, `consent.decline` or `consent.expire`. Return None if another call has already
        removed the request, so only one call acts on it."""
        origin = ActOrigin(subject=consent.subject, owner=consent.owner)
        target = ActTarget("task", consent.task_id, agent=consent.agent, owner=consent.owner)
        act = Act(action=action, target=target, origin=origin)
        return consent if await self._journal.write_audited(act, _take, consent.state) else None

    async def list_expired(self, now: int) -> Sequence[Consent]:
        """Return up to 100 requests for consent that had expired at `now`, in microseconds since 1970, the oldest
        first."""
        return await self._journal.query(_list_expired, now)

    async def next_expiry(self) -> int | None:
        """Return the time at which the next request for consent expires, in microseconds since 1970, or None if there
        are no requests."""
        return await self._journal.query(_next_expiry)


def _context(subject: str, agent: str, purpose: str) -> str:
    return "\n".join((subject, agent, purpose))


def _do_nothing(tx: Transaction) -> bool:
    return True


def _read_token(connection: Connection, subject: str, agent: str) -> bytes | None:
    where = (_TOKEN.c.subject == subject) & (_TOKEN.c.agent == agent)
    return connection.execute(select(_TOKEN.c.body).where(where)).scalar_one_or_none()


def _write_token(tx: Transaction, subject: str, agent: str, body: bytes) -> None:
    _delete_token(tx, subject, agent)
    row = {"subject": subject, "agent": agent, "changed_at": tx.now(), "body": body}
    tx.connection.execute(insert(_TOKEN).values(**row))


def _delete_token(tx: Transaction, subject: str, agent: str) -> None:
    tx.connection.execute(delete(_TOKEN).where((_TOKEN.c.subject == subject) & (_TOKEN.c.agent == agent)))


def _add(tx: Transaction, consent: Consent) -> None:
    tx.connection.execute(insert(_CONSENT).values(**msgspec.structs.asdict(consent)))


def _decode(row: Any) -> Consent:
    return Consent(**{name: getattr(row, name) for name in Consent.__struct_fields__})


def _find(connection: Connection, state: str) -> Consent | None:
    row = connection.execute(select(_CONSENT).where(_CONSENT.c.state == state)).first()
    return None if row is None else _decode(row)


def _take(tx: Transaction, state: str) -> bool:
    return tx.connection.execute(delete(_CONSENT).where(_CONSENT.c.state == state)).rowcount == 1


def _list_expired(connection: Connection, now: int) -> list[Consent]:
    selected = select(_CONSENT).where(_CONSENT.c.expires_at <= now).order_by(_CONSENT.c.expires_at).limit(100)
    return [_decode(row) for row in connection.execute(selected)]


def _next_expiry(connection: Connection) -> int | None:
    return connection.execute(select(func.min(_CONSENT.c.expires_at))).scalar_one_or_none()

"""Administration in the database: API keys, agents and disabled agents. Each command writes its audit record.

A command raises before it changes anything. It takes the lock of the audit log first, so that no other node changes the
administration between its reads and its commit. It increments the administration's revision, a counter in the table
`meta`. Other gateways on the database compare this counter, so they notice a change even if they miss its notice."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import Connection, Table, delete, func, insert, select, update

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.exchange import ActOrigin
from babelgate.gateway.storage.audit import Act, ActTarget, digest, lock_audit, record_act
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import AgentRow, ApiKeyRow, DisabledAgentRow
from babelgate.gateway.storage.transaction import Transaction, read_meta, write_meta

Running = Literal["drain", "cancel"]
"""Treatment of an agent's active runs when it is disabled: they may finish (`drain`), or are cancelled (`cancel`)."""

_KEY, _AGENT, _DISABLED = table_of(ApiKeyRow), table_of(AgentRow), table_of(DisabledAgentRow)
_REVISION: Final = "administration"
"""Key in the table `meta` of the counter that each change of the administration increments."""
_MAX_KEYS: Final = 10_000
"""Maximum number of keys that are not revoked, of all owners. Chosen: every node holds all of them in memory, 5 MB."""
_MAX_AGENTS: Final = 1000
"""Maximum number of agents that the administration API has created. Chosen."""


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """One API key as a row stores it: a digest of its secret, its owner and its rights.

    Times are in microseconds since 1970. The secret itself is not stored."""

    key_id: str
    owner: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    digest: str
    """SHA-256 digest of the key's secret, in hex digits."""
    created_at: int
    created_by: str
    """Subject of the caller that created the key."""
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    previous_digest: str | None = None
    previous_until: int | None = None
    """Time until which the secret before the last rotation (`previous_digest`) is still accepted. None if it is not."""


class StoredAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that an operator has created through the administration API, with its settings."""

    name: str
    spec: JsonObject
    """Settings of the agent, as in `agents` of babelgate.yaml."""
    revision: int
    changed_at: int
    changed_by: str


class DisabledAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that an operator has disabled: it starts no runs."""

    name: str
    running: Running
    reason: str
    changed_at: int
    changed_by: str


class Administration(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the administration, the same for all nodes that share the database: API keys, agents and disabled
    agents.

    Operators set it through the administration API."""

    revision: int = 0
    keys: tuple[StoredKey, ...] = ()
    """Keys that are not revoked."""
    agents: tuple[StoredAgent, ...] = ()
    disabled: tuple[DisabledAgent, ...] = ()


# Reading


def read_revision(connection: Connection) -> int:
    """Return the revision of the administration: the number of its changes so far."""
    return int(read_meta(connection, _REVISION) or 0)


def read_administration(connection: Connection) -> Administration:
    """Read all agents, all disabled agents and all keys that are not revoked."""
    keys = connection.execute(select(_KEY).where(_KEY.c.revoked_at.is_(None)).order_by(_KEY.c.key_id)).mappings()
    agents = connection.execute(select(_AGENT).order_by(_AGENT.c.name)).mappings()
    disabled = connection.execute(select(_DISABLED).order_by(_DISABLED.c.name)).mappings()
    return Administration(
        revision=read_revision(connection),
        keys=tuple(map(_key_of, keys)),
        agents=tuple(map(_agent_of, agents)),
        disabled=tuple(DisabledAgent(**row) for row in disabled),
    )


def read_keys(connection: Connection, limit: int, after: str = "") -> list[StoredKey]:
    """Return one page of all keys, including revoked ones: up to `limit` with an id above `after`, in order of their
    ids."""
    selected = select(_KEY).where(_KEY.c.key_id > after).order_by(_KEY.c.key_id).limit(limit)
    return list(map(_key_of, connection.execute(selected).mappings()))


def read_key(connection: Connection, key_id: str) -> StoredKey:
    """Return the key with an id, even if it is revoked. Raises not_found."""
    row = connection.execute(select(_KEY).where(_KEY.c.key_id == key_id)).mappings().first()
    if row is None:
        raise FaultError(FaultCode.NOT_FOUND, f"There is no API key {key_id[:100]!r}. GET /admin/keys lists them.")
    return _key_of(row)


def _key_of(row: Any) -> StoredKey:
    values = dict(row)
    return StoredKey(**msgspec.json.decode(values.pop("body")), **values)


def _agent_of(row: Any) -> StoredAgent:
    return StoredAgent(**{**row, "spec": msgspec.json.decode(row["spec"])})


# Keys


def create_key(tx: Transaction, key: StoredKey, origin: ActOrigin) -> StoredKey:
    """Insert a new key. Raises queue_full if there are already `_MAX_KEYS` keys that are not revoked."""
    lock_audit(tx)
    counted = select(func.count()).select_from(_KEY).where(_KEY.c.revoked_at.is_(None))
    if tx.connection.execute(counted).scalar_one() >= _MAX_KEYS:
        raise FaultError(FaultCode.QUEUE_FULL, f"There are {_MAX_KEYS} API keys: revoke some first.")
    values = msgspec.structs.asdict(key)
    body = msgspec.json.encode({name: values.pop(name) for name in ("groups", "scopes")})
    tx.connection.execute(insert(_KEY), {**values, "body": body})
    _note_key(tx, "key.create", None, key, origin)
    return key


def rotate_key(tx: Transaction, key_id: str, new_digest: str, grace: int, origin: ActOrigin) -> StoredKey:
    """Replace the secret of a key. The previous secret stays valid for `grace` microseconds.

    Raises not_found, and conflict if the key is revoked or has expired."""
    lock_audit(tx)
    key = _need_valid(tx, key_id)
    changed = msgspec.structs.replace(
        key,
        digest=new_digest,
        previous_digest=key.digest if grace else None,
        previous_until=tx.now() + grace if grace else None,
    )
    names = ("digest", "previous_digest", "previous_until")
    _update(tx, key_id, {name: getattr(changed, name) for name in names})
    _note_key(tx, "key.rotate", key, changed, origin)
    return changed


def revoke_key(tx: Transaction, key_id: str, origin: ActOrigin) -> StoredKey:
    """End the validity of a key, and return the key with its time of revocation. A revoked key is unchanged. Raises
    not_found."""
    lock_audit(tx)
    key = read_key(tx.connection, key_id)
    if key.revoked_at is not None:
        return key
    changed = msgspec.structs.replace(key, revoked_at=tx.now(), previous_digest=None, previous_until=None)
    names = ("revoked_at", "previous_digest", "previous_until")
    _update(tx, key_id, {name: getattr(changed, name) for name in names})
    _note_key(tx, "key.revoke", key, changed, origin)
    return changed


def note_use(tx: Transaction, key_id: str, at: int) -> None:
    """Store the time at which a key was last used, in microseconds since 1970.

    The administration's revision stays the same, because no other node needs to read this time."""
    later = _KEY.c.last_used_at.is_(None) | (_KEY.c.last_used_at < at)
    tx.touched += 1
    tx.connection.execute(update(_KEY).where(_KEY.c.key_id == key_id, later).values(last_used_at=at))


def _need_valid(tx: Transaction, key_id: str) -> StoredKey:
    key = read_key(tx.connection, key_id)
    if key.revoked_at is not None:
        raise FaultError(FaultCode.CONFLICT, f"The API key {key_id} is revoked: create another one.")
    if key.expires_at is not None and key.expires_at <= tx.now():
        raise FaultError(FaultCode.CONFLICT, f"The API key {key_id} has expired: create another one.")
    return key


def _update(tx: Transaction, key_id: str, values: dict[str, Any]) -> None:
    tx.connection.execute(update(_KEY).where(_KEY.c.key_id == key_id).values(**values))


def _note_key(tx: Transaction, action: str, before: StoredKey | None, after: StoredKey, origin: ActOrigin) -> None:
    target = ActTarget("key", after.key_id, owner=after.owner)
    _note_change(tx, Act(action=action, target=target, before=_digest(before), after=_digest(after), origin=origin))


# Disabled agents


def disable_agent(tx: Transaction, disabled: DisabledAgent, origin: ActOrigin) -> None:
    """Disable an agent. If it is already disabled, replace the reason and the treatment of its active runs."""
    lock_audit(tx)
    before = _find(tx, _DISABLED, disabled.name)
    tx.connection.execute(delete(_DISABLED).where(_DISABLED.c.name == disabled.name))
    tx.connection.execute(insert(_DISABLED), msgspec.structs.asdict(disabled))
    target = ActTarget("agent", disabled.name, agent=disabled.name)
    act = Act(
        action="agent.disable",
        target=target,
        reason=disabled.reason,
        before=digest(dict(before)) if before is not None else "",
        after=_digest(disabled),
        origin=origin,
    )
    _note_change(tx, act)


def enable_agent(tx: Transaction, name: str, origin: ActOrigin) -> bool:
    """Remove the mark with which an operator disabled an agent. Return False if the agent was not disabled."""
    lock_audit(tx)
    before = _find(tx, _DISABLED, name)
    if before is None:
        return False
    tx.connection.execute(delete(_DISABLED).where(_DISABLED.c.name == name))
    target = ActTarget("agent", name, agent=name)
    _note_change(tx, Act(action="agent.enable", target=target, before=digest(dict(before)), origin=origin))
    return True


# Agents


def put_agent(
    tx: Transaction, name: str, spec: JsonObject, subject: str, origin: ActOrigin, *, expected: Sequence[int] | None
) -> StoredAgent:
    """Create an agent, or replace its settings (`spec`). `subject` is the operator.

    `expected` lists acceptable current revisions, from the request's If-Match: 0 means that the agent must not exist,
    and -1 any existing revision. None skips the check. Raises conflict with the reason `revision` if none matches, and
    queue_full if there are already `_MAX_AGENTS` agents."""
    lock_audit(tx)
    row = _find(tx, _AGENT, name)
    before = None if row is None else _agent_of(row)
    _check_revision(name, before, expected)
    if before is None:
        counted = select(func.count()).select_from(_AGENT)
        if tx.connection.execute(counted).scalar_one() >= _MAX_AGENTS:
            raise FaultError(FaultCode.QUEUE_FULL, f"There are {_MAX_AGENTS} agents: delete some first.")
    # A revision is not used twice, so the ETag of a deleted agent never matches its successor.
    revision = read_revision(tx.connection) + 1
    agent = StoredAgent(name=name, spec=spec, revision=revision, changed_at=tx.now(), changed_by=subject)
    tx.connection.execute(delete(_AGENT).where(_AGENT.c.name == name))
    values = {**msgspec.structs.asdict(agent), "spec": msgspec.json.encode(spec)}
    tx.connection.execute(insert(_AGENT), values)
    action = "agent.create" if before is None else "agent.change"
    _note_agent(tx, action, name, before, agent, origin)
    return agent


def delete_agent(tx: Transaction, name: str, origin: ActOrigin, *, expected: Sequence[int] | None) -> None:
    """Delete an agent of the administration API. `expected` lists acceptable current revisions, as in `put_agent`.

    Raises not_found, and conflict with the reason `revision` if the agent has another revision."""
    lock_audit(tx)
    row = _find(tx, _AGENT, name)
    if row is None:
        raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {name[:100]!r} that the administration API created.")
    before = _agent_of(row)
    _check_revision(name, before, expected)
    tx.connection.execute(delete(_AGENT).where(_AGENT.c.name == name))
    _note_agent(tx, "agent.delete", name, before, None, origin)


def _check_revision(name: str, before: StoredAgent | None, expected: Sequence[int] | None) -> None:
    revision = 0 if before is None else before.revision
    if expected is None or revision in expected or (revision and -1 in expected):
        return
    what = f"it has the revision {revision}" if revision else "it does not exist"
    raise FaultError(
        FaultCode.CONFLICT,
        f"The agent {name} was changed meanwhile: {what}. Read it again, and send its ETag as If-Match.",
        reason="revision",
    )


def _note_agent(
    tx: Transaction, action: str, name: str, before: StoredAgent | None, after: StoredAgent | None, origin: ActOrigin
) -> None:
    target = ActTarget("agent", name, agent=name)
    _note_change(tx, Act(action=action, target=target, before=_digest(before), after=_digest(after), origin=origin))


# Changes


def _find(tx: Transaction, table: Table, name: str) -> Any:
    return tx.connection.execute(select(table).where(table.c.name == name)).mappings().first()


def _digest(value: msgspec.Struct | None) -> str:
    return "" if value is None else digest(value)


def _note_change(tx: Transaction, act: Act) -> None:
    """Record an act in the audit log, increment the administration's revision, and notify the other nodes after the
    commit."""
    record_act(tx, act)
    write_meta(tx.connection, _REVISION, str(read_revision(tx.connection) + 1))
    tx.announce_administration()

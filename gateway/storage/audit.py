"""Audit log: one row per change of the gateway, and one per refused call. Rows are never changed.

The row of a change is written in the same transaction as the change, so neither exists without the other. Each row
contains the hash of the previous row, and a hash over its content. `ChainVerifier` finds a row that was changed,
inserted or removed later. It cannot find the removal of the newest rows, so keep the last hash in another place.

Old rows are pruned from the beginning. The pruning writes a row with the number and the hash of the last pruned row. So
the oldest remaining row can still be checked against its predecessor."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import Connection, delete, insert, select, text

from babelgate.gateway.exchange import ActOrigin, current_origin
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import AuditRow
from babelgate.gateway.storage.transaction import Transaction

Outcome = Literal["allow", "deny", "error"]

PRUNED: Final = "audit.prune"
"""Action of the record that a deletion of old records writes."""
_AUDIT: Final = table_of(AuditRow)
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext('babelgate audit'), hashtext(current_schema()))")
"""Statement for the advisory lock that lets one node at a time append records, until its transaction ends."""
_PAGE: Final = 1000
"""Number of rows that one query reads or deletes. Chosen: a transaction of a few milliseconds."""
_PRUNED_TOGETHER: Final = 86_400_000_000
"""Time for which old records are collected before they are deleted together, in microseconds: one day, so that there is
at most one deletion, and one record of it, a day."""
_MAX_TEXT: Final = 1000
"""Maximum length of each text column of a record, in characters; the rest is cut. Chosen: callers supply some texts."""
_FIELDS: Final = (
    "seq",
    "at",
    "node",
    "request_id",
    "trace_id",
    "protocol",
    "address",
    "subject",
    "owner",
    "issuer",
    "credential",
    "action",
    "kind",
    "target",
    "agent",
    "target_owner",
    "outcome",
    "reason",
    "count",
    "before",
    "after",
    "previous_hash",
)
"""Columns that the hash of a row covers, in this order."""


class ActTarget(msgspec.Struct, frozen=True):
    """Object of an act: the key, agent, thread or setting that was changed or protected."""

    kind: str
    """Kind of the object, such as `key`, `agent`, `thread` or `settings`."""
    target_id: str = ""
    agent: str = ""
    """Name of the agent that the act concerned."""
    owner: str = ""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One act to record in the audit log: an action, its target and its outcome."""

    action: str
    """Name of the action, such as `key.create`."""
    target: ActTarget
    outcome: Outcome = "allow"
    reason: str = ""
    count: int = 1
    """Number of equal acts that this record summarizes."""
    before: str = ""
    """Digest of the target's content before the act, as `digest` computes it. Empty if the target did not exist."""
    after: str = ""
    origin: ActOrigin | None = None
    """Request that caused the act. None until `with_origin` sets it; a record without it names no caller."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of a search in the audit log. A member that is None matches all records."""

    action: str | None = None
    """Name of an action, or a prefix that ends with a dot: `key.` matches `key.create`."""
    subject: str | None = None
    kind: str | None = None
    target: str | None = None
    agent: str | None = None
    outcome: str | None = None
    since: int | None = None
    """Inclusive lower bound of a record's time, in microseconds since 1970."""
    until: int | None = None
    """Exclusive upper bound of a record's time, in microseconds since 1970."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of verifying the hashes of all records of the audit log."""

    records: int
    first: int | None
    """Number of the oldest record. None if the log is empty."""
    last: int | None
    head: str
    """Hash of the newest verified record. Keep it in another place to detect a later removal of the newest records."""
    problem: str | None = None
    """Description of the first record that does not match its hash or its predecessor. None if all match."""


def digest(value: object) -> str:
    """Return the SHA-256 of a value's JSON in hex digits, for `Act.before` and `Act.after`. The value must contain no
    secret."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def lock_audit(tx: Transaction) -> None:
    """Keep other nodes from extending the audit log until the transaction ends."""
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(_LOCK)


def record_act(tx: Transaction, act: Act) -> int:
    """Append an act to the audit log in the current transaction. Return the number of the record.

    Commands run on the writer's thread, where the current request is unknown. So the act must already name its origin:
    call `with_origin` on the event loop."""
    connection = tx.connection
    lock_audit(tx)
    last = connection.execute(select(_AUDIT.c.seq, _AUDIT.c.hash).order_by(_AUDIT.c.seq.desc()).limit(1)).first()
    origin = act.origin or ActOrigin()
    row: dict[str, Any] = {
        "seq": 1 if last is None else last.seq + 1,
        "at": tx.now(),
        "node": tx.node or "",
        "request_id": origin.request_id,
        "trace_id": origin.trace_id,
        "protocol": origin.protocol,
        "address": origin.address,
        "subject": origin.subject,
        "owner": origin.owner,
        "issuer": origin.issuer,
        "credential": origin.credential,
        "action": act.action,
        "kind": act.target.kind,
        "target": act.target.target_id,
        "agent": act.target.agent,
        "target_owner": act.target.owner,
        "outcome": act.outcome,
        "reason": act.reason,
        "count": act.count,
        "before": act.before,
        "after": act.after,
        "previous_hash": "" if last is None else last.hash,
    }
    row |= {name: _storable(value) for name, value in row.items() if isinstance(value, str)}
    tx.touched += 1
    connection.execute(insert(_AUDIT), {**row, "hash": _hash(row)})
    return row["seq"]


def deletion(kind: str, target_id: str, owner: str) -> Act:
    """Return the act `<kind>.delete` for an object of an owner, such as `thread.delete`."""
    return Act(action=f"{kind}.delete", target=ActTarget(kind, target_id, owner=owner))


def with_origin(act: Act) -> Act:
    """Return the act with the current request as its origin, unless it already has one. Called on the event loop."""
    return act if act.origin is not None else msgspec.structs.replace(act, origin=current_origin())


def record_all(tx: Transaction, acts: Sequence[Act]) -> None:
    """Append acts that change no data, such as refused calls. A command of the writer."""
    for act in acts:
        record_act(tx, act)


def _storable(value: str) -> str:
    """Return a text that both databases can store: cut to `_MAX_TEXT`, without NUL and lone surrogates."""
    return value[:_MAX_TEXT].replace("\0", "").encode("utf-8", "replace").decode()


def _hash(row: Any) -> str:
    return hashlib.sha256(msgspec.json.encode([row[name] for name in _FIELDS])).hexdigest()


# Reading


def read_records(
    connection: Connection, where: AuditFilter, limit: int, before: int | None = None
) -> list[dict[str, Any]]:
    """Return up to `limit` records that match the filter, the newest first.

    With `before`, return only records with a smaller number: the next page after the record with that number."""
    selected = select(_AUDIT).order_by(_AUDIT.c.seq.desc()).limit(limit)
    if before is not None:
        selected = selected.where(_AUDIT.c.seq < before)
    for name in ("subject", "kind", "target", "agent", "outcome"):
        if (wanted := getattr(where, name)) is not None:
            selected = selected.where(_AUDIT.c[name] == wanted)
    if where.action is not None:
        is_prefix = where.action.endswith(".")
        column = _AUDIT.c.action
        condition = column.startswith(where.action, autoescape=True) if is_prefix else column == where.action
        selected = selected.where(condition)
    if where.since is not None:
        selected = selected.where(_AUDIT.c.at >= where.since)
    if where.until is not None:
        selected = selected.where(_AUDIT.c.at < where.until)
    return [dict(row) for row in connection.execute(selected).mappings()]


def read_page_of_chain(connection: Connection, after: int) -> list[dict[str, Any]]:
    """Return up to `_PAGE` records with a number above `after`, in order. The list is empty at the end of the log."""
    selected = select(_AUDIT).where(_AUDIT.c.seq > after).order_by(_AUDIT.c.seq).limit(_PAGE)
    return [dict(row) for row in connection.execute(selected).mappings()]


class ChainVerifier:
    """Incremental check of the audit log: `add` takes its pages in order, and `finish` returns the result."""

    def __init__(self) -> None:
        self._records = 0
        self._first: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._pruned: dict[str, Any] | None = None
        """Newest record that documents a deletion of old records (`PRUNED`). None if none was added yet."""
        self._problem: str | None = None

    @property
    def position(self) -> int:
        """Number of the last verified record."""
        return 0 if self._last is None else self._last["seq"]

    def add(self, records: Sequence[dict[str, Any]]) -> bool:
        """Verify the next records. Return False at the first one that does not match its hash or its predecessor."""
        for row in records:
            last = self._last
            if row["hash"] != _hash(row):
                self._problem = f"record {row['seq']} was changed: its hash does not match its content"
            elif last is not None and row["seq"] != last["seq"] + 1:
                self._problem = f"records {last['seq'] + 1} to {row['seq'] - 1} are missing"
            elif last is not None and row["previous_hash"] != last["hash"]:
                self._problem = f"record {row['seq']} does not follow record {last['seq']}: one of them was replaced"
            if self._problem is not None:
                return False
            if row["action"] == PRUNED:
                self._pruned = row
            self._records += 1
            self._first = self._first or row
            self._last = row
        return True

    def finish(self) -> Verification:
        """Return the result, after checking that a documented deletion explains why records before the first one are
        missing."""
        first, last, problem = self._first, self._last, self._problem
        if problem is None and first is not None and first["seq"] > 1:
            # The record of the last pruning names the last pruned record and its hash.
            expected = f"{first['seq'] - 1}:{first['previous_hash']}"
            if self._pruned is None or self._pruned["target"] != expected:
                problem = f"records before {first['seq']} are missing, and no pruning has recorded it"
        return Verification(
            records=self._records,
            first=None if first is None else first["seq"],
            last=None if last is None else last["seq"],
            head="" if last is None else last["hash"],
            problem=problem,
        )


# Retention


def prune_records(tx: Transaction, until: int) -> bool:
    """Delete up to `_PAGE` of the oldest records, and record this deletion. Return True if there may be more to delete.

    Only records before `until`, in microseconds since 1970, are deleted, and never the newest one. Nothing happens
    until the oldest record is a day older than `until`."""
    connection = tx.connection
    lock_audit(tx)
    selected = select(_AUDIT.c.seq, _AUDIT.c.at, _AUDIT.c.hash).order_by(_AUDIT.c.seq).limit(_PAGE + 1)
    rows = connection.execute(selected).all()
    old = [row for row in rows[:-1] if row.at < until]
    if not old or old[0].at >= until - _PRUNED_TOGETHER:
        return False
    connection.execute(delete(_AUDIT).where(_AUDIT.c.seq <= old[-1].seq))
    tx.touched += 1
    target = ActTarget("audit", f"{old[-1].seq}:{old[-1].hash}")
    record_act(tx, Act(action=PRUNED, target=target, origin=ActOrigin(subject="gateway"), count=len(old)))
    return len(old) == _PAGE

"""Tables of the database. Times are integers, in microseconds since 1970, UTC.

The tables only store: canonical values are validated before. The log (`event`) is the source of truth for threads,
tasks, runs and questions, whose rows are caches of folds over it, written in the same transaction.

JSON that no query filters by is stored as bytes (`body`). Unlike text columns, these take any JSON in every database.
"""

import re
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, false, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

# SQLite assigns keys only in a column whose type is exactly INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


LIVE: Final = "status IN ('pending', 'running')"
"""Condition for runs that have not ended. A query uses a partial index only if it repeats the index's condition
literally, without parameters."""
OPEN: Final = "state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')"
"""Condition for tasks that are not terminal."""
ERRED: Final = "status IN ('error', 'timeout')"
"""Condition for runs that failed."""
DATED: Final = "created_at > 0"
"""Condition for all runs. Because of it, only lists use the index `run_created`. PostgreSQL would prefer that index to
the primary key for a lookup by owner and id while the table has no statistics."""
PASSING: Final = "expires"
"""Condition for threads that are ephemeral or have a time to live."""


def _partial(where: str, in_postgresql: str | None = None) -> dict[str, Any]:
    """Return the arguments of a partial index with the condition `where`. `in_postgresql` = the condition in
    PostgreSQL, if it is another one.

    The argument `postgresql_where` of SQLAlchemy would import its PostgreSQL dialect, 2 MB, also for SQLite.
    """
    return {"sqlite_where": text(where), "info": {"postgresql_where": in_postgresql or where}}


class TableRow(SQLModel):
    @declared_attr.directive
    def __tablename__(cls) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - SQLAlchemy's way to name tables
        """Return the name of the table: `blob_use` for `BlobUseRow`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


class MetaRow(TableRow, table=True):
    name: str = Field(primary_key=True)
    value: str


class NodeRow(TableRow, table=True):
    """A gateway that shares the database with others."""

    node_id: str = Field(primary_key=True)
    """UUID of one gateway process. A restart has another one."""
    name: str
    """Name for people, as in the log."""
    seen_at: int = Field(sa_type=BigInteger)
    """Time of the last heartbeat by the database's clock, because the clocks of machines differ."""
    config: str | None = None
    """Digest of the configuration that the node works with."""


class ThreadRow(TableRow, table=True):
    __table_args__ = (
        Index("thread_id", "owner", "thread_id", unique=True),
        Index("thread_created", "owner", "created_at"),
        Index("thread_updated", "owner", "updated_at"),
        Index("thread_status", "owner", "status", "created_at"),
        Index("thread_status_updated", "owner", "status", "updated_at"),
        Index("thread_expires", "pk", **_partial(PASSING)),
    )

    pk: int | None = Field(default=None, sa_column=Column(_KEY, primary_key=True, autoincrement=True))
    owner: str
    thread_id: str
    created_at: int = Field(sa_type=BigInteger)
    changed_at: int = Field(sa_type=BigInteger)
    ephemeral: bool
    expires: bool = Field(sa_column_kwargs={"server_default": false()})
    """True if the thread is ephemeral or has a time to live."""
    status: str = Field(sa_column_kwargs={"server_default": "idle"})
    """A `babelgate.canonical.thread.ThreadStatus`. It follows from the runs and tasks. The column allows sorting by
    it."""
    updated_at: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    """Time of the newest record."""
    body: bytes = Field(sa_type=LargeBinary)


class TombstoneRow(TableRow, table=True):
    """An erased thread, whose id is not assigned again."""

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class TallyRow(TableRow, table=True):
    """Row count of an owner, which lists return in addition to their page. Triggers update it."""

    __table_args__ = {"sqlite_with_rowid": False}

    owner: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    """`thread` or `task`. Ephemeral threads are not counted, because no list has them."""
    agent: str = Field(primary_key=True)
    """Agent of the tasks. Empty for threads."""
    rows: int


class RemnantRow(TableRow, table=True):
    """A long thread that was erased, and whose log is deleted in steps. Until then its key is not assigned again."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))


class EventRow(TableRow, table=True):
    """A record of a log. Rows are stored in the order of the key, so that a page of a thread is one sequential read."""

    __table_args__ = {"sqlite_with_rowid": False}

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    seq: int = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)
    task_id: str | None
    run_id: str | None
    attempt: int
    body: bytes = Field(sa_type=LargeBinary)


class TaskRow(TableRow, table=True):
    __table_args__ = (
        Index("task_changed", "owner", "changed_at", "task_id"),
        Index("task_thread", "thread_pk"),
        Index("task_open", "thread_pk", **_partial(OPEN)),
        Index("task_continues", "owner", "continues", **_partial("continues IS NOT NULL")),
        {"sqlite_with_rowid": False},
    )

    owner: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    thread_pk: int = Field(sa_type=BigInteger)
    thread_id: str
    agent: str
    state: str
    created_at: int = Field(sa_type=BigInteger)
    changed_at: int = Field(sa_type=BigInteger)
    first_seq: int
    last_seq: int
    continues: str | None
    body: bytes = Field(sa_type=LargeBinary)


class RunRow(TableRow, table=True):
    __table_args__ = (
        # One running run per thread: the database enforces this rule, too.
        Index(
            "run_active",
            "thread_pk",
            unique=True,
            **_partial("status = 'running'"),
        ),
        Index("run_live", "thread_pk", **_partial(LIVE)),
        Index("run_thread", "thread_pk", "first_seq"),
        Index("run_created", "owner", "created_at", "run_id", **_partial(DATED)),
        Index("run_newest", "created_at", "owner", "run_id"),
        Index("run_erred", "owner", "created_at", "run_id", **_partial(ERRED)),
        {"sqlite_with_rowid": False},
    )

    owner: str = Field(primary_key=True)
    run_id: str = Field(primary_key=True)
    thread_pk: int = Field(sa_type=BigInteger)
    task_id: str
    agent: str
    status: str
    attempt: int
    created_at: int = Field(sa_type=BigInteger)
    start_after: int | None = Field(sa_type=BigInteger)
    first_seq: int
    last_seq: int
    removed: bool = Field(sa_column_kwargs={"server_default": false()})
    node: str | None = None
    """Id of the node that executes the run, or will start it. None if no node does, or if one gateway has the
    database to itself."""
    body: bytes = Field(sa_type=LargeBinary)
    crashes: int = Field(default=0, sa_column=Column(Integer, server_default=text("0"), nullable=False))
    """Number of processes that ended during the run without releasing it. Only an UPDATE of this column changes it.
    Writing the row of the run does not."""


class InterruptRow(TableRow, table=True):
    __table_args__ = (
        Index(
            "interrupt_open",
            "thread_pk",
            "seq",
            **_partial("action IS NULL"),
        ),
        Index("interrupt_thread", "thread_pk"),
    )

    owner: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    interrupt_id: str = Field(primary_key=True)
    thread_pk: int = Field(sa_type=BigInteger)
    run_id: str
    seq: int
    """Sequence number of the record that raised it."""
    action: str | None
    body: bytes = Field(sa_type=LargeBinary)


class AliasRow(TableRow, table=True):
    """The name that a protocol has for a thread."""

    __table_args__ = (Index("alias_thread", "owner", "thread_id"),)

    owner: str = Field(primary_key=True)
    protocol: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    thread_id: str


class BlobUseRow(TableRow, table=True):
    """A stored file that a thread names. A blob is readable only through such a thread, and swept when none is left."""

    __table_args__ = (Index("blob_use_blob", "blob"),)

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    blob: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class GrantRow(TableRow, table=True):
    """A thread that is shared with a grantee."""

    __table_args__ = (Index("grant_grantee", "grantee"),)

    thread_pk: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    grantee: str = Field(primary_key=True)
    """Callers who may use the thread: `owner:<name>` or `group:<name>`."""
    level: str
    """A `babelgate.canonical.grant.GrantLevel`."""
    by: str
    at: int = Field(sa_type=BigInteger)
    expires: int | None = Field(default=None, sa_type=BigInteger)


class WebhookRow(TableRow, table=True):
    """A URL to which the events of a task are posted, and how far they were delivered."""

    __table_args__ = (Index("webhook_due", "task_id", **_partial("done IS 0", "done IS FALSE")),)

    owner: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    webhook_id: str = Field(primary_key=True)
    thread_id: str
    dialect: str
    url: str
    delivered_seq: int
    done: bool
    node: str | None = None
    """Id of the node that delivers to it. None as for a run."""
    body: bytes = Field(sa_type=LargeBinary)
    failures: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Number of failed attempts to deliver the body at the cursor. 0 after a delivery."""
    next_try: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the next attempt. None means at once, or never if `done`."""
    reason: str | None = None
    """Reason why the last attempt failed. None after a delivery."""
    given_up_at: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the last failed attempt, if the schedule of retries is exhausted. The webhook is then `done`, too."""


class ItemRow(TableRow, table=True):
    """An item of the key-value store.

    `namespace` has a dot after every label, so that a prefix of labels is a range of the key. The value is the last
    column, so that a search by the other columns does not read past it.
    """

    __table_args__ = (
        # The index has only items that can expire, so a sweep does not read the others.
        Index(
            "item_expires",
            "expires_at",
            **_partial("expires_at IS NOT NULL"),
        ),
    )

    owner: str = Field(primary_key=True)
    namespace: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)
    expires_at: int | None = Field(sa_type=BigInteger)
    ttl: int | None = Field(sa_type=BigInteger)
    """Microseconds from the last write or read to `expires_at`."""
    value: bytes = Field(sa_type=LargeBinary)


class CheckpointRow(TableRow, table=True):
    """State of a graph after one of its steps (`babelgate.gateway.storage.checkpoints`).

    Within a namespace, the ids sort in order of creation.
    """

    __table_args__ = (Index("checkpoint_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    """Namespace in the graph: empty, or the path to a subgraph."""
    checkpoint_id: str = Field(primary_key=True)
    parent_id: str | None
    run_id: str | None
    """Run that created it. None if a caller did."""
    form: str
    """Encoding of the body."""
    body: bytes = Field(sa_type=LargeBinary)
    channels: bytes | None = Field(sa_type=LargeBinary)
    """JSON object with the id of the checkpoint that each channel's value was stored with, by channel. None if all
    values are in the body, as before revision 0011."""


class CheckpointValueRow(TableRow, table=True):
    """Value of a graph's channel that changed with a checkpoint, whole or as a difference."""

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    base_id: str | None
    """Checkpoint with the value of the same channel that this one is a difference to. None if this one is complete."""
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class CheckpointWriteRow(TableRow, table=True):
    """Write of a graph's node on top of a checkpoint, before the checkpoint of its step exists."""

    __table_args__ = (Index("checkpoint_write_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    """LangGraph's id of the node's activation. It is not the id of a task of the gateway."""
    idx: int = Field(primary_key=True)
    task_path: str
    channel: str
    run_id: str | None
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class AssistantRow(TableRow, table=True):
    """An assistant, in the version that is in use."""

    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class AssistantVersionRow(TableRow, table=True):
    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class CronRow(TableRow, table=True):
    """A schedule of runs. The index finds those that are due without reading the others."""

    __table_args__ = (Index("cron_due", "next_run", **_partial("next_run IS NOT NULL")),)

    owner: str = Field(primary_key=True)
    cron_id: str = Field(primary_key=True)
    next_run: int | None = Field(sa_type=BigInteger)
    """Time of the next run. None if no run is scheduled."""
    body: bytes = Field(sa_type=LargeBinary)


class ThreadValueRow(TableRow, table=True):
    """Values of a thread's state as of one record, without messages (`babelgate.gateway.storage.thread_values`)."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))
    seq: int
    body: bytes | None = Field(sa_type=LargeBinary)
    """JSON of the values. None if it is too large for a row."""


class ApiKeyRow(TableRow, table=True):
    """An API key of the administration API. The key itself is not stored."""

    key_id: str = Field(primary_key=True)
    owner: str
    created_at: int = Field(sa_type=BigInteger)
    created_by: str
    """Subject of the caller that created the key."""
    digest: str = Field(unique=True)
    """SHA-256 digest of the key, in hex digits."""
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    revoked_at: int | None = Field(default=None, sa_type=BigInteger)
    last_used_at: int | None = Field(default=None, sa_type=BigInteger)
    """Time of a recent use. It is written once per minute and node at most."""
    previous_digest: str | None = None
    """Digest of the key before the last rotation. None if it is not accepted any more."""
    previous_until: int | None = Field(default=None, sa_type=BigInteger)
    """Time until which the key before the last rotation is accepted."""
    body: bytes = Field(sa_type=LargeBinary)
    """JSON object with the groups and scopes of the caller."""


class AgentRow(TableRow, table=True):
    """An agent of the administration API."""

    name: str = Field(primary_key=True)
    revision: int
    changed_at: int = Field(sa_type=BigInteger)
    changed_by: str
    """Subject of the caller that changed it last."""
    spec: bytes = Field(sa_type=LargeBinary)
    """JSON object as in `agents` of babelgate.yaml. Secrets are references."""


class DisabledAgentRow(TableRow, table=True):
    """An agent that the administration API has disabled. It starts no runs, also if the settings have it."""

    name: str = Field(primary_key=True)
    running: str
    """`drain` if its running runs may end, `cancel` if they were cancelled."""
    reason: str
    changed_at: int = Field(sa_type=BigInteger)
    changed_by: str


class ConsentRow(TableRow, table=True):
    """A question of the gateway that a user answers at an identity provider."""

    __table_args__ = (Index("consent_expires", "expires_at"),)

    state: str = Field(primary_key=True)
    """SHA-256 digest of the parameter `state`, in hex digits."""
    owner: str
    subject: str
    """Caller of the run, who gets the tokens."""
    agent: str
    task_id: str
    interrupt_id: str
    expires_at: int = Field(sa_type=BigInteger)


class AgentTokenRow(TableRow, table=True):
    """Tokens for an agent to which a user has agreed."""

    subject: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    changed_at: int = Field(sa_type=BigInteger)
    body: bytes = Field(sa_type=LargeBinary)
    """Encrypted tokens (`babelgate.gateway.storage.agent_tokens`)."""


class RateRow(TableRow, table=True):
    """State of one rate limit, shared by the nodes of a cluster. A single gateway keeps it in memory."""

    key: str = Field(primary_key=True)
    """The rule, and the caller, owner or agent whose runs are counted."""
    tat: float
    """Time at which the earlier runs are used up, in seconds since 1970, UTC."""


class SpendRow(TableRow, table=True):
    """Amounts that runs have used of a budget in one scope and period."""

    scope: str = Field(primary_key=True)
    """Name of the budget, and the value of what it is counted by: `month|planner`."""
    period: str = Field(primary_key=True)
    """Beginning of the period, such as `2026-11`. Empty for a budget that never begins again."""
    input: int = Field(sa_type=BigInteger)
    """Input tokens."""
    output: int = Field(sa_type=BigInteger)
    """Output tokens."""
    cost: int = Field(sa_type=BigInteger)
    """Cost, in millionths of the currency."""
    runs: int = Field(sa_type=BigInteger)
    unknown: int = Field(sa_type=BigInteger)
    """Number of runs without usage, of agents whose runs must report it."""
    extra_cost: int = Field(sa_type=BigInteger)
    """Amount by which an operator has raised the budget in this scope and period."""
    extra_tokens: int = Field(sa_type=BigInteger)
    extra_runs: int = Field(sa_type=BigInteger)
    changed_at: int = Field(sa_type=BigInteger)


class AuditRow(TableRow, table=True):
    """A record of the audit log. Triggers refuse every UPDATE, and a DELETE of a record of the last 30 days."""

    __table_args__ = (Index("audit_at", "at"),)

    seq: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))
    at: int = Field(sa_type=BigInteger)
    node: str
    request_id: str
    trace_id: str
    protocol: str
    address: str
    subject: str
    owner: str
    issuer: str
    credential: str
    action: str
    kind: str
    """Kind of the target, such as `key`, `agent` or `thread`."""
    target: str
    """Id or name of the target."""
    agent: str
    """Agent that the act concerned. Empty if there is none."""
    target_owner: str
    """Owner of the target. Empty if it has none."""
    outcome: str
    """`allow`, `deny` or `error`."""
    reason: str
    count: int
    """Number of equal acts within a minute that the record represents."""
    before: str
    """SHA-256 digest of the target before the act, in hex digits. Empty if it did not exist."""
    after: str
    previous_hash: str
    hash: str

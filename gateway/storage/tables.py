"""Tables of the database. Times are integers, in microseconds since 1970, UTC.

The tables validate nothing: the values that they store are validated before. The log (`event`) is the source of truth
for threads, tasks, runs and questions. Their rows are caches that are computed from the log, and written in the same
transaction.

JSON that no query filters by is stored as bytes (`body`). Unlike text columns, these take any JSON in every
database."""

import re
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, false, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

# SQLite assigns keys only in a column whose type is exactly INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


SEQ_BITS: Final = 31
"""Number of low bits of SQLite's key of a record that contain its sequence number. Chosen: two billion records per
thread, and four billion threads."""
LIVE: Final = "status IN ('pending', 'running')"
"""SQL condition for runs that have not ended. A partial index is used only by queries that repeat its condition
literally, without parameters."""
OPEN: Final = "state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')"
"""SQL condition for tasks that have not ended."""
ERRED: Final = "status IN ('error', 'timeout')"
"""SQL condition for runs that failed."""
DATED: Final = "created_at > 0"
"""SQL condition that is true for all runs. Only lists use it, so only lists use the partial index `run_created`.
Without it, PostgreSQL would prefer that index to the primary key for a lookup by owner and id, while the table has no
statistics."""
PASSING: Final = "expires"
"""SQL condition for threads that are ephemeral or have a time to live."""


def _partial(where: str, in_postgresql: str | None = None) -> dict[str, Any]:
    """Return the keyword arguments that make an index partial, with the condition `where`.

    `in_postgresql` is the condition for PostgreSQL, if it differs. SQLAlchemy's argument `postgresql_where` is avoided,
    because it imports the PostgreSQL dialect, 2 MB, also for SQLite."""
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
    """A running gateway of a cluster, which shares the database with others."""

    node_id: str = Field(primary_key=True)
    """UUID of one gateway process. A restarted gateway has a new one."""
    name: str
    """Name of the node for operators, as in log lines."""
    seen_at: int = Field(sa_type=BigInteger)
    """Time of the last heartbeat by the database's clock, because the clocks of machines differ."""
    config: str | None = None
    """Digest of the configuration that the node uses, to detect nodes with different configurations."""


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
    """A `babelgate.canonical.thread.ThreadStatus`, computed from the runs and tasks. The column exists for sorting and
    filtering."""
    updated_at: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    """Time of the thread's newest record."""
    body: bytes = Field(sa_type=LargeBinary)


class TombstoneRow(TableRow, table=True):
    """Id of an erased thread, so that the id is not used again by accident."""

    __table_args__ = (Index("tombstone_at", "at"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class TallyRow(TableRow, table=True):
    """Number of threads, or of tasks of one agent, of an owner. Lists return it with each page. Triggers update it."""

    __table_args__ = {"sqlite_with_rowid": False}

    owner: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    """Counted kind of rows: `thread` or `task`. Ephemeral threads are not counted, because no list has them."""
    agent: str = Field(primary_key=True)
    """Agent whose tasks are counted. Empty for threads."""
    rows: int


class RemnantRow(TableRow, table=True):
    """Key of an erased thread whose long log is being deleted in steps. Until then, no new thread receives this key."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))


class EventRow(TableRow, table=True):
    """A record of a log. Rows are stored in the order of the primary key, so that a page of a thread is one sequential
    read.

    In SQLite the primary key is another column, `id`: `thread_pk << SEQ_BITS | seq`. `thread_pk` and `seq` are computed
    from it (`babelgate.gateway.storage.log_key`)."""

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
    """Id of the node that executes the run, or on which it waits. None if no node has taken the run yet, or if only one
    gateway uses the database."""
    body: bytes = Field(sa_type=LargeBinary)
    crashes: int = Field(default=0, sa_column=Column(Integer, server_default=text("0"), nullable=False))
    """Number of gateway processes that were killed or crashed during the run. Only `run_rows.count_crashes` changes
    it."""


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
    """Sequence number of the record with which the agent raised the question."""
    action: str | None
    body: bytes = Field(sa_type=LargeBinary)


class AliasRow(TableRow, table=True):
    """Name that a protocol uses for a thread with an agent, instead of the thread's id."""

    __table_args__ = (Index("alias_thread", "owner", "thread_id"),)

    owner: str = Field(primary_key=True)
    protocol: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    thread_id: str


class BlobUseRow(TableRow, table=True):
    """Stored file to which a thread refers. A caller can read a file only through such a thread. The sweep deletes a
    file to which no thread refers."""

    __table_args__ = (Index("blob_use_blob", "blob"),)

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    blob: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class GrantRow(TableRow, table=True):
    """Grant by which an owner shares a thread with another owner or a group."""

    __table_args__ = (Index("grant_grantee", "grantee"),)

    thread_pk: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    grantee: str = Field(primary_key=True)
    """Owner or group that may use the thread: `owner:<name>` or `group:<name>`."""
    level: str
    """Permitted use: a `babelgate.canonical.grant.GrantLevel`."""
    by: str
    at: int = Field(sa_type=BigInteger)
    expires: int | None = Field(default=None, sa_type=BigInteger)


class WebhookRow(TableRow, table=True):
    """URL to which the events of a task are posted, and the progress of the delivery."""

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
    """Id of the node that delivers to the webhook. None if no node has taken it yet, or if only one gateway uses the
    database."""
    body: bytes = Field(sa_type=LargeBinary)
    failures: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Number of failed attempts since the last successful delivery."""
    next_try: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the next attempt. None means now, or never if `done` is true."""
    reason: str | None = None
    """Reason why the last attempt failed. None after a successful delivery."""
    given_up_at: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the last failed attempt, if no further attempt will be made. `done` is then true."""


class ItemRow(TableRow, table=True):
    """An item of the key-value store.

    `namespace` is text with a dot after every label, so that a prefix of labels is a range of the primary key. `value`
    is the last column, so that a search by the other columns need not read it."""

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
    """Time to live in microseconds: `expires_at` is the last write or read plus this. None if the item does not
    expire."""
    value: bytes = Field(sa_type=LargeBinary)


class CheckpointRow(TableRow, table=True):
    """State of a LangGraph graph after one of its steps (`babelgate.gateway.storage.checkpoints`).

    Within a namespace, the ids sort in order of creation."""

    __table_args__ = (Index("checkpoint_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    """LangGraph's namespace of the checkpoint: empty for the graph itself, or the path to a subgraph."""
    checkpoint_id: str = Field(primary_key=True)
    parent_id: str | None
    run_id: str | None
    """Id of the run that created the checkpoint. None if a caller changed the state."""
    form: str
    """LangGraph's name for the encoding of the body, such as `msgpack`."""
    body: bytes = Field(sa_type=LargeBinary)
    channels: bytes | None = Field(sa_type=LargeBinary)
    """JSON object: for each channel, the id of the checkpoint with which its value is stored. None if all values are in
    the body, as before revision 0011."""


class CheckpointValueRow(TableRow, table=True):
    """Value of one channel of a graph, stored with the checkpoint that changed it, whole or as a difference."""

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    base_id: str | None
    """Id of the checkpoint to whose value of this channel the body is a difference. None if the body is the whole
    value."""
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class CheckpointWriteRow(TableRow, table=True):
    """Write of a graph's node after a checkpoint, stored until the step ends and has a checkpoint itself."""

    __table_args__ = (Index("checkpoint_write_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    """LangGraph's id of one execution of a node. It is not the id of a task of the gateway."""
    idx: int = Field(primary_key=True)
    task_path: str
    channel: str
    run_id: str | None
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class AssistantRow(TableRow, table=True):
    """An assistant with the content of the version that is in use."""

    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class AssistantVersionRow(TableRow, table=True):
    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class CronRow(TableRow, table=True):
    """A cron and the time at which it is next due."""

    __table_args__ = (Index("cron_due", "next_run", **_partial("next_run IS NOT NULL")),)

    owner: str = Field(primary_key=True)
    cron_id: str = Field(primary_key=True)
    next_run: int | None = Field(sa_type=BigInteger)
    """Time at which the cron is next due. None if it is disabled or has ended."""
    body: bytes = Field(sa_type=LargeBinary)


class ThreadValueRow(TableRow, table=True):
    """Index row for searches: the values of a thread's state without messages
    (`babelgate.gateway.storage.thread_values`)."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))
    seq: int
    body: bytes | None = Field(sa_type=LargeBinary)
    """JSON of the values, as of the record `seq`. None if they are too large for a row."""


class ThreadMemberRow(TableRow, table=True):
    """Index row for searches: a thread has a member with a certain value in its metadata
    (`babelgate.gateway.storage.thread_members`)."""

    __table_args__ = (Index("thread_member_thread", "thread_pk"), {"sqlite_with_rowid": False})

    key: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    """Hash of the owner, the name of the member and its value."""
    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))


class ApiKeyRow(TableRow, table=True):
    """An API key that the administration API has created. Its secret is stored only as a digest."""

    key_id: str = Field(primary_key=True)
    owner: str
    created_at: int = Field(sa_type=BigInteger)
    created_by: str
    """Subject of the caller that created the key."""
    digest: str = Field(unique=True)
    """SHA-256 digest of the key's secret, in hex digits."""
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    revoked_at: int | None = Field(default=None, sa_type=BigInteger)
    last_used_at: int | None = Field(default=None, sa_type=BigInteger)
    """Time of a recent use. Each node writes it at most once per minute."""
    previous_digest: str | None = None
    """Digest of the secret before the last rotation. None if that secret is no longer accepted."""
    previous_until: int | None = Field(default=None, sa_type=BigInteger)
    """Time until which the secret before the last rotation is accepted."""
    body: bytes = Field(sa_type=LargeBinary)
    """JSON object with the groups and scopes that a caller with this key has."""


class AgentRow(TableRow, table=True):
    """An agent that an operator has created through the administration API."""

    name: str = Field(primary_key=True)
    revision: int
    changed_at: int = Field(sa_type=BigInteger)
    changed_by: str
    """Subject of the caller that last changed the agent."""
    spec: bytes = Field(sa_type=LargeBinary)
    """JSON object with the agent's settings, as under `agents` in babelgate.yaml. Secrets are references such as
    `${NAME}`."""


class DisabledAgentRow(TableRow, table=True):
    """Mark of an agent that an operator has disabled: it starts no runs. The agent may also come from the settings."""

    name: str = Field(primary_key=True)
    running: str
    """Treatment of the runs that were active when the agent was disabled: `drain` (they may finish) or `cancel`."""
    reason: str
    changed_at: int = Field(sa_type=BigInteger)
    changed_by: str


class ConsentRow(TableRow, table=True):
    """Open question of a task that a user answers with consent at an identity provider."""

    __table_args__ = (Index("consent_expires", "expires_at"),)

    state: str = Field(primary_key=True)
    """SHA-256 digest of the OAuth parameter `state` of the login, in hex digits."""
    owner: str
    subject: str
    """Caller of the run, for whom the tokens will be stored."""
    agent: str
    task_id: str
    interrupt_id: str
    expires_at: int = Field(sa_type=BigInteger)


class AgentTokenRow(TableRow, table=True):
    """Tokens with which one agent may act for one user who has consented."""

    subject: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    changed_at: int = Field(sa_type=BigInteger)
    body: bytes = Field(sa_type=LargeBinary)
    """Encrypted access and refresh token (`babelgate.gateway.storage.agent_tokens`)."""


class RateRow(TableRow, table=True):
    """Counter of one rate limit, shared by the nodes of a cluster. A single gateway has its counters in memory."""

    key: str = Field(primary_key=True)
    """Name of the limit, and the caller, owner or agent whose runs it counts."""
    tat: float
    """Theoretical arrival time of the GCRA algorithm, in seconds since 1970, UTC: the time from which on the earlier
    runs no longer count."""


class SpendRow(TableRow, table=True):
    """Amounts that runs have used of a budget in one scope and period."""

    scope: str = Field(primary_key=True)
    """Name of the budget and the value it is counted for, such as the agent `planner` in `month|planner`."""
    period: str = Field(primary_key=True)
    """Beginning of the period, such as `2026-11`. Empty for a budget that never resets."""
    input: int = Field(sa_type=BigInteger)
    """Number of input tokens."""
    output: int = Field(sa_type=BigInteger)
    """Number of output tokens."""
    cost: int = Field(sa_type=BigInteger)
    """Cost, in millionths of the currency."""
    runs: int = Field(sa_type=BigInteger)
    unknown: int = Field(sa_type=BigInteger)
    """Number of runs that reported no usage although their agent must report it."""
    extra_cost: int = Field(sa_type=BigInteger)
    """Cost by which operators have raised the budget in this scope and period, in millionths of the currency."""
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
    """Name of the agent that the act concerned. Empty if none."""
    target_owner: str
    """Owner of the target. Empty if it has none."""
    outcome: str
    """Outcome of the act: `allow`, `deny` or `error`."""
    reason: str
    count: int
    """Number of equal acts within a minute that this record summarizes."""
    before: str
    """SHA-256 digest of the target before the act, in hex digits. Empty if it did not exist."""
    after: str
    previous_hash: str
    hash: str

"""The tables. They are storage only: canonical values are validated before they come here, and rows other than `event`
are caches of folds over it, written in the same transaction. Times are integer microseconds, UTC.

JSON that nobody filters by is kept as bytes (`body`), which takes any text that JSON can hold in every database.
"""

import re
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, false, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

# SQLite numbers rows by itself only under a column that is called exactly INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


LIVE: Final = "status IN ('pending', 'running')"
"""Runs that have not ended. A query finds a partial index only by the index's own words, without parameters."""
OPEN: Final = "state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')"
"""Tasks that are not terminal."""
PASSING: Final = "expires"
"""Threads that are erased some day by themselves."""


def _partial(where: str, in_postgresql: str | None = None) -> dict[str, Any]:
    """Of an index: the rows that are in it. For the argument `postgresql_where` SQLAlchemy would import its dialect
    of PostgreSQL, 2 MB, in each gateway on SQLite."""
    return {"sqlite_where": text(where), "info": {"postgresql_where": in_postgresql or where}}


class Row(SQLModel):
    @declared_attr.directive
    def __tablename__(cls) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - SQLAlchemy's way to name tables
        """`BlobUseRow` is kept in `blob_use`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


class MetaRow(Row, table=True):
    name: str = Field(primary_key=True)
    value: str


class NodeRow(Row, table=True):
    """A gateway that shares the database with others."""

    node_id: str = Field(primary_key=True)
    """A UUID, of one life of its process."""
    name: str
    """For people."""
    seen_at: int = Field(sa_type=BigInteger)
    """Microseconds since 1970, UTC, by the database's clock: no two machines agree on the time."""


class ThreadRow(Row, table=True):
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
    """Ephemeral, or with a time to live."""
    status: str = Field(sa_column_kwargs={"server_default": "idle"})
    """A `babelgate.canonical.thread.ThreadStatus`. It follows from the runs and tasks; as a column it can be sorted
    by."""
    updated_at: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    """Of the newest record."""
    body: bytes = Field(sa_type=LargeBinary)


class TombstoneRow(Row, table=True):
    """A thread that was erased: its id is not given out again."""

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class TallyRow(Row, table=True):
    """How many rows an owner has: what a list says beside its page. Triggers keep it, in whatever transaction."""

    __table_args__ = {"sqlite_with_rowid": False}

    owner: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    """`thread` (without the ephemeral ones, which are in no list) or `task`."""
    agent: str = Field(primary_key=True)
    """Of the tasks; empty for threads."""
    rows: int


class RemnantRow(Row, table=True):
    """A long thread that was erased, and whose log goes bit by bit. Its key is not given to another one before."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))


class EventRow(Row, table=True):
    """The log. The key is the clustering order, so that a page of a thread is one sequential read."""

    __table_args__ = {"sqlite_with_rowid": False}

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    seq: int = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)
    task_id: str | None
    run_id: str | None
    attempt: int
    body: bytes = Field(sa_type=LargeBinary)


class TaskRow(Row, table=True):
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


class RunRow(Row, table=True):
    __table_args__ = (
        # One running run a thread: the rule is the database's, not only ours.
        Index(
            "run_active",
            "thread_pk",
            unique=True,
            **_partial("status = 'running'"),
        ),
        Index("run_live", "thread_pk", **_partial(LIVE)),
        Index("run_thread", "thread_pk", "first_seq"),
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
    """Of gateways that share the database, the one that runs it, or that starts it when its turn comes; None = it is
    nobody's, or the database is one gateway's."""
    body: bytes = Field(sa_type=LargeBinary)
    crashes: int = Field(default=0, sa_column=Column(Integer, server_default=text("0"), nullable=False))
    """How many times the process that executed the run ended without releasing it. Only an UPDATE of this column
    changes it: writing the run's row does not."""


class InterruptRow(Row, table=True):
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
    """Of the record that raised it."""
    action: str | None
    body: bytes = Field(sa_type=LargeBinary)


class AliasRow(Row, table=True):
    """A protocol's own name of a thread."""

    __table_args__ = (Index("alias_thread", "owner", "thread_id"),)

    owner: str = Field(primary_key=True)
    protocol: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    thread_id: str


class BlobUseRow(Row, table=True):
    """Which threads name a stored file: a blob is reached only through one, and swept when none is left."""

    __table_args__ = (Index("blob_use_blob", "blob"),)

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    blob: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class WebhookRow(Row, table=True):
    """Where a task's events are pushed, and up to which record they were."""

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
    """As of a run: the gateway that posts to it."""
    body: bytes = Field(sa_type=LargeBinary)
    failures: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Number of failed tries to deliver the body at the cursor; 0 after a delivery."""
    next_try: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the next try, in microseconds since 1970, UTC; None = at once, or never if `done`."""
    reason: str | None = None
    """Why the last try failed; None after a delivery."""
    given_up_at: int | None = Field(default=None, sa_type=BigInteger)
    """Time of the last failed try, if the schedule of retries is exhausted; the webhook is then `done`, too."""


class ItemRow(Row, table=True):
    """Memory. `namespace` holds every label with a dot after it, so that a prefix of labels is a range of the key. The
    value stands last: what only looks for an item does not read past it."""

    __table_args__ = (
        # Only what can end is in it: a sweep finds what has ended without a look at the rest.
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


class CheckpointRow(Row, table=True):
    """A graph's state after one of its steps (`babelgate.gateway.storage.checkpoints`). The ids of a place sort as
    they were made."""

    __table_args__ = (Index("checkpoint_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    """The place in the graph: empty, or the path to a graph within it."""
    checkpoint_id: str = Field(primary_key=True)
    parent_id: str | None
    run_id: str | None
    """None = a caller made it."""
    form: str
    """How the body is encoded."""
    body: bytes = Field(sa_type=LargeBinary)
    channels: bytes | None = Field(sa_type=LargeBinary)
    """By channel, the checkpoint with which its value was stored (JSON). None = all values are in the body, as before
    revision 0011."""


class CheckpointValueRow(Row, table=True):
    """The value that a channel of a graph got with a checkpoint, as what is new in it."""

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    base_id: str | None
    """The checkpoint with the value of the same channel that this one goes on from; None = it is whole."""
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class CheckpointWriteRow(Row, table=True):
    """What a node wrote on top of a checkpoint, before the step's own checkpoint was there."""

    __table_args__ = (Index("checkpoint_write_run", "owner", "run_id"),)

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    ns: str = Field(primary_key=True)
    checkpoint_id: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    """The graph's own name of the node's activation; no task of ours."""
    idx: int = Field(primary_key=True)
    task_path: str
    channel: str
    run_id: str | None
    form: str
    body: bytes = Field(sa_type=LargeBinary)


class AssistantRow(Row, table=True):
    """An agent that a caller configured: the version in use."""

    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class AssistantVersionRow(Row, table=True):
    owner: str = Field(primary_key=True)
    assistant_id: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class CronRow(Row, table=True):
    """Runs by a schedule. Which are due is found without a look at those that are not."""

    __table_args__ = (Index("cron_due", "next_run", **_partial("next_run IS NOT NULL")),)

    owner: str = Field(primary_key=True)
    cron_id: str = Field(primary_key=True)
    next_run: int | None = Field(sa_type=BigInteger)
    """Microseconds since 1970, UTC; None where it is not to run."""
    body: bytes = Field(sa_type=LargeBinary)


class ThreadValueRow(Row, table=True):
    """The values of a thread's state, without messages, as of a record (`babelgate.gateway.storage.thread_values`)."""

    thread_pk: int = Field(sa_column=Column(_KEY, primary_key=True, autoincrement=False))
    seq: int
    body: bytes | None = Field(sa_type=LargeBinary)
    """None where it is too large for a row."""

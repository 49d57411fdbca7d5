"""The tables. They are storage only: canonical values are validated before they come here, and rows other than `event`
are caches of folds over it, written in the same transaction. Times are integer microseconds, UTC.

JSON that nobody filters by is kept as bytes (`body`), which takes any text that JSON can hold in every database.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, text
from sqlmodel import Field, SQLModel

__all__ = (
    "AliasRow",
    "BlobUseRow",
    "EventRow",
    "InterruptRow",
    "MetaRow",
    "RunRow",
    "TaskRow",
    "ThreadRow",
    "TombstoneRow",
    "WebhookRow",
)

# SQLite numbers rows by itself only under a column that is called exactly INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


class MetaRow(SQLModel, table=True):
    __tablename__ = "meta"

    name: str = Field(primary_key=True)
    value: str


class ThreadRow(SQLModel, table=True):
    __tablename__ = "thread"
    __table_args__ = (Index("thread_id", "owner", "thread_id", unique=True),)

    pk: int | None = Field(default=None, sa_column=Column(_KEY, primary_key=True, autoincrement=True))
    owner: str
    thread_id: str
    created_at: int = Field(sa_type=BigInteger)
    changed_at: int = Field(sa_type=BigInteger)
    ephemeral: bool
    body: bytes = Field(sa_type=LargeBinary)


class TombstoneRow(SQLModel, table=True):
    """A thread that was erased: its id is not given out again."""

    __tablename__ = "tombstone"

    owner: str = Field(primary_key=True)
    thread_id: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class EventRow(SQLModel, table=True):
    """The log. The key is the clustering order, so that a page of a thread is one sequential read."""

    __tablename__ = "event"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - the name and shape that SQLAlchemy asks for

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    seq: int = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)
    task_id: str | None
    run_id: str | None
    attempt: int
    body: bytes = Field(sa_type=LargeBinary)


class TaskRow(SQLModel, table=True):
    __tablename__ = "task"
    __table_args__ = (
        Index("task_changed", "owner", "changed_at", "task_id"),
        Index("task_thread", "thread_pk", "state"),
        Index("task_continues", "owner", "continues", sqlite_where=text("continues IS NOT NULL")),
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


class RunRow(SQLModel, table=True):
    __tablename__ = "run"
    __table_args__ = (
        # One running run a thread: the rule is the database's, not only ours.
        Index(
            "run_active",
            "thread_pk",
            unique=True,
            sqlite_where=text("status = 'running'"),
            postgresql_where=text("status = 'running'"),
        ),
        Index(
            "run_live",
            "thread_pk",
            "status",
            sqlite_where=text("status IN ('reserved', 'pending', 'running')"),
            postgresql_where=text("status IN ('reserved', 'pending', 'running')"),
        ),
        Index("run_task", "owner", "task_id"),
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
    body: bytes = Field(sa_type=LargeBinary)


class InterruptRow(SQLModel, table=True):
    __tablename__ = "interrupt"
    __table_args__ = (
        Index(
            "interrupt_open",
            "thread_pk",
            "seq",
            sqlite_where=text("action IS NULL"),
            postgresql_where=text("action IS NULL"),
        ),
    )

    owner: str = Field(primary_key=True)
    interrupt_id: str = Field(primary_key=True)
    thread_pk: int = Field(sa_type=BigInteger)
    task_id: str
    run_id: str
    seq: int
    """Of the record that raised it."""
    action: str | None
    body: bytes = Field(sa_type=LargeBinary)


class AliasRow(SQLModel, table=True):
    """A protocol's own name of a thread."""

    __tablename__ = "alias"
    __table_args__ = (Index("alias_thread", "owner", "protocol", "thread_id"),)

    owner: str = Field(primary_key=True)
    protocol: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    thread_id: str


class BlobUseRow(SQLModel, table=True):
    """Which threads name a stored file: a blob is reached only through one, and swept when none is left."""

    __tablename__ = "blob_use"
    __table_args__ = (Index("blob_use_blob", "blob"),)

    thread_pk: int = Field(sa_type=BigInteger, primary_key=True)
    blob: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class WebhookRow(SQLModel, table=True):
    """Where a task's events are pushed, and up to which record they were."""

    __tablename__ = "webhook"

    owner: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    webhook_id: str = Field(primary_key=True)
    thread_id: str
    dialect: str
    url: str
    delivered_seq: int
    done: bool
    body: bytes = Field(sa_type=LargeBinary)

"""Rows that record which threads refer to which stored files. A file without such a row may be deleted."""

from collections.abc import Sequence

from sqlalchemy import select

from babelgate.canonical.message import FilePart, Message
from babelgate.gateway.storage.short_form import encode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import BlobUseRow
from babelgate.gateway.storage.transaction import ThreadState, Transaction


def use_blobs(tx: Transaction, state: ThreadState, messages: Sequence[Message]) -> None:
    for message in messages:
        for part in message.parts:
            if isinstance(part, FilePart) and part.blob is not None:
                use_blob(tx, state, part)


def use_blob(tx: Transaction, state: ThreadState, part: FilePart) -> None:
    """Record that the thread refers to the stored file of `part`. The sweep deletes no file that a thread refers to."""
    uses = table_of(BlobUseRow)
    existing = select(uses.c.blob).where(uses.c.thread_pk == state.pk, uses.c.blob == part.blob)
    if tx.connection.execute(existing).first() is None:
        tx.connection.execute(
            uses.insert(),
            {"thread_pk": state.pk, "blob": part.blob, "body": encode_row(part.replace(inline=None))},
        )

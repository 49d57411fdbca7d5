"""Rows that say which threads name which stored files. A file without a row can be deleted."""

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
    """Record that the thread names a stored file. The file stays readable and is not swept while a thread names it."""
    uses = table_of(BlobUseRow)
    existing = select(uses.c.blob).where(uses.c.thread_pk == state.pk, uses.c.blob == part.blob)
    if tx.connection.execute(existing).first() is None:
        tx.connection.execute(
            uses.insert(),
            {"thread_pk": state.pk, "blob": part.blob, "body": encode_row(part.replace(inline=None))},
        )

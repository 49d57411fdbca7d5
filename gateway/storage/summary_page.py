"""Pages of the console's lists: rows in descending order, filtered row by row up to a limit of examined rows.

A page may therefore have fewer rows than requested, or none, although more follow. Its cursor is then not None."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Integer, Select, func, tuple_

from babelgate.gateway.storage.page_cursor import decode_cursor, encode_cursor
from babelgate.gateway.storage.prepared import stream_rows

SEARCHED: Final = 64 * 1024
"""Maximum size of a row whose text is searched, in bytes. Chosen: only a structured output makes a row larger."""
PAGE_BYTES: Final = 4 * 2**20
"""Maximum total size of the rows of one page, in bytes. A larger row is a page alone. Chosen."""


def find_page(
    connection: Connection,
    wanted: Select[*tuple[Any, ...]],
    position: Sequence[ColumnElement[Any]],
    body: ColumnElement[bytes],
    is_match: Callable[[Any], bool],
    *,
    after: str | None,
    limit: int,
    scanned: int,
) -> tuple[list[Any], str | None]:
    """Return up to `limit` matching rows of a query, and the cursor of the next page, or None at the end.

    `position` are the columns to sort by, which together identify a row. `body` is the column whose size counts towards
    `PAGE_BYTES`. `after` is the cursor that the previous page returned, or None. At most `scanned` rows are examined.
    Raises invalid for a malformed cursor."""
    if after is not None:
        kinds = (int if isinstance(column.type, Integer) else str for column in position)
        wanted = wanted.where(tuple_(*position) < decode_cursor(after, *kinds))
    names = [f"position_{index}" for index in range(len(position))]
    places = (column.label(name) for column, name in zip(position, names, strict=True))
    wanted = wanted.add_columns(*places, func.length(body).label("size"))
    wanted = wanted.order_by(*(column.desc() for column in position)).limit(scanned)
    matches: list[Any] = []
    room, read, last = PAGE_BYTES, 0, None
    with closing(connection.execute(stream_rows(wanted))) as rows:
        for row in rows:
            read += 1
            is_wanted = is_match(row)
            if is_wanted and matches and (len(matches) == limit or row.size > room):
                return matches, _cursor_of(last, names)
            last = row
            if is_wanted:
                matches.append(row)
                room -= row.size
    return matches, _cursor_of(last, names) if read == scanned else None


def _cursor_of(row: Any, names: Sequence[str]) -> str:
    return encode_cursor([getattr(row, name) for name in names])


def has_words(line: str, words: str) -> bool:
    """Return True if a line contains the text `words`. Case is ignored."""
    return words.casefold() in line.casefold()

"""Pages of a conversation's items: of a long one only the turns are read that a page shows."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from babelgate.adapters.openai.server.page import encode_page, is_descending, limit_of, refuse_cursor
from babelgate.adapters.openai.write.conversation import ConversationItem, ConversationWriter
from babelgate.canonical import Hub
from babelgate.canonical.value import JsonObject

_TURNS: Final = 64
"""That are read at once, at most."""
_AT_ONCE: Final = 8
"""Pages that are read at once: each takes records that it does not share. Chosen: twice the readers of the database."""
_PLACES: Final = 10_000
"""Items at the ends of pages whose turns are remembered: the next page is asked for by them."""


class ItemPages:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._turns: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        """By owner, thread and item."""
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def read(self, owner: str, thread_id: str, query: Mapping[str, str]) -> JsonObject:
        """Raises not_found, invalid."""
        async with self._gate:
            return await self._read_page(owner, thread_id, query)

    async def _read_page(self, owner: str, thread_id: str, query: Mapping[str, str]) -> JsonObject:
        limit, descending = limit_of(query.get("limit")), is_descending(query.get("order"))
        after = query.get("after")
        turn = None if after is None else self._turns.get((owner, thread_id, after))
        found = None
        if turn is not None:
            found = await self._read(owner, thread_id, limit, after, turn, descending=descending)
        if found is None:  # it is not known where the cursor is, or it is there no more
            found = await self._read(owner, thread_id, limit, after, descending=descending)
        if found is None:
            refuse_cursor(after or "")
        if found:
            last = found[:limit][-1]
            self._turns[owner, thread_id, str(last.item["id"])] = last.turn
            if len(self._turns) > _PLACES:
                self._turns.popitem(last=False)
        return encode_page([each.item for each in found], limit)

    async def _read(
        self, owner: str, thread_id: str, limit: int, after: str | None, turn: int | None = None, *, descending: bool
    ) -> list[ConversationItem] | None:
        """The items of a page, and one more if there is one. None where the cursor is not found: in its `turn`, or
        anywhere."""
        found: list[ConversationItem] = []
        has_begun = after is None
        async with aclosing(self._items(owner, thread_id, limit, turn, descending=descending)) as items:
            async for each in items:
                if has_begun:
                    found.append(each)
                    if len(found) > limit:
                        break
                elif turn is not None and each.turn != turn:
                    return None
                else:
                    has_begun = each.item["id"] == after
        return found if has_begun else None

    async def _items(
        self, owner: str, thread_id: str, limit: int, turn: int | None, *, descending: bool
    ) -> AsyncGenerator[ConversationItem]:
        """From one turn on, or from the first in this order."""
        reads = self._hub.reads
        forgotten = await reads.removed_messages(owner, thread_id)
        beyond = turn if turn is None else turn + (1 if descending else -1)
        some = min(_TURNS, limit // 2 + 1)  # most turns have an input and an output
        while turns := await reads.turns(owner, thread_id, limit=some, beyond=beyond, descending=descending):
            writer = ConversationWriter(thread_id, owner, forgotten)
            async with aclosing(reads.turn_log(owner, thread_id, turns, inline=True)) as batches:
                async for batch in batches:
                    for record in batch:
                        writer.write(record)
            items = writer.items({each.seq for each in turns})
            for each in reversed(items) if descending else items:
                yield each
            beyond, some = turns[-1].seq, _TURNS

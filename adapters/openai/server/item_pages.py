"""Pages of a conversation's items. Only the turns that are on the page are read from the log."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from babelgate.adapters.openai.server.page import encode_page, is_descending, limit_of, refuse_cursor
from babelgate.adapters.openai.write.conversation import ConversationItem, ConversationWriter
from babelgate.canonical import Hub, Principal
from babelgate.canonical.value import JsonObject

_TURNS: Final = 64
"""Maximum number of turns that one query reads. Chosen."""
_AT_ONCE: Final = 8
"""Maximum number of pages that are read concurrently. Chosen: twice the readers of the database, because each page
holds its records in memory."""
_PLACES: Final = 10_000
"""Maximum number of cached last items of pages, with their turns. The next page usually starts after such an item.
Chosen."""


class ItemPages:
    """Reader of pages of items, with a cache that finds the start of the next page."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._turns: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        """Seq of the turn in which an item is, by owner, thread id and item id."""
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def read(self, principal: Principal, thread_id: str, query: Mapping[str, str]) -> JsonObject:
        """Return a page of items as JSON. `query` has the parameters `limit`, `order` and `after`. Raises not_found for
        an unknown thread, and invalid for wrong query parameters."""
        async with self._gate:
            return await self._read_page(principal, thread_id, query)

    async def _read_page(self, principal: Principal, thread_id: str, query: Mapping[str, str]) -> JsonObject:
        limit, descending = limit_of(query.get("limit")), is_descending(query.get("order"))
        after = query.get("after")
        turn = None if after is None else self._turns.get((principal.owner, thread_id, after))
        items = None
        if turn is not None:
            items = await self._read(principal, thread_id, limit, after, turn, descending=descending)
        if items is None:  # the cursor's turn is unknown, or no longer holds it
            items = await self._read(principal, thread_id, limit, after, descending=descending)
        if items is None:
            refuse_cursor(after or "")
        if items:
            last = items[:limit][-1]
            self._turns[principal.owner, thread_id, str(last.item["id"])] = last.turn
            if len(self._turns) > _PLACES:
                self._turns.popitem(last=False)
        return encode_page([each.item for each in items], limit)

    async def _read(
        self,
        principal: Principal,
        thread_id: str,
        limit: int,
        after: str | None,
        turn: int | None = None,
        *,
        descending: bool,
    ) -> list[ConversationItem] | None:
        """Return the items of a page, and one more if another page follows. The page begins after the item `after`;
        None means the first page. With `descending`, the newest item comes first.

        `turn` is the seq of the turn that should contain this item; None searches the whole conversation. Return None
        if the item is not there.
        """
        page: list[ConversationItem] = []
        has_begun = after is None
        async with aclosing(self._items(principal, thread_id, limit, turn, descending=descending)) as items:
            async for each in items:
                if has_begun:
                    page.append(each)
                    if len(page) > limit:
                        break
                elif turn is not None and each.turn != turn:
                    return None
                else:
                    has_begun = each.item["id"] == after
        return page if has_begun else None

    async def _items(
        self, principal: Principal, thread_id: str, limit: int, turn: int | None, *, descending: bool
    ) -> AsyncGenerator[ConversationItem]:
        """Yield items, beginning with the turn `turn` or, if it is None, with the first one. `descending`: the newest
        item comes first."""
        reads = self._hub.reads
        removed_messages = await reads.removed_messages(principal, thread_id)
        beyond = turn if turn is None else turn + (1 if descending else -1)
        turn_limit = min(_TURNS, limit // 2 + 1)  # most turns have an input and an output
        while turns := await reads.turns(principal, thread_id, limit=turn_limit, beyond=beyond, descending=descending):
            writer = ConversationWriter(thread_id, principal.owner, removed_messages)
            async with aclosing(reads.turn_log(principal, thread_id, turns, inline=True)) as batches:
                async for batch in batches:
                    for record in batch:
                        writer.write(record)
            items = writer.items({each.seq for each in turns})
            for each in reversed(items) if descending else items:
                yield each
            beyond, turn_limit = turns[-1].seq, _TURNS

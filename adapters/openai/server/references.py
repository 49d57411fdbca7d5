"""Item references in inputs: items that only name the id of an earlier item
(SPEC/responses/response_input_item_param.py, ItemReference).

@ai-sdk/openai 3.0.141 sends them from its second turn on, instead of the earlier items.
"""

import re
from collections import OrderedDict
from contextlib import aclosing
from typing import Any, Final, cast
from uuid import UUID

from babelgate.adapters.openai.write.conversation import ConversationWriter
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Scope, Task
from babelgate.canonical.value import JsonObject

_PLACES: Final = 10_000
"""Maximum number of items for which the id of the task is cached. Chosen: an entry takes 300 bytes."""
_TASKS: Final = 64
"""Maximum number of tasks that are searched for one item, among those that were active when the item was created.
Chosen: an owner rarely has more at the same time."""
_ID: Final = re.compile(r"[a-z]{1,8}_([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})(?:_\w{1,32})?")
"""Pattern of item ids that contain a UUID of version 7, which begins with the time in milliseconds (RFC 9562, section
5.7)."""
_CLOCKS: Final = 5_000_000
"""Assumed maximum difference between the clocks of gateways on one database, in microseconds. Chosen."""


class ItemReferences:
    """Finder of items of an owner's earlier responses by their ids."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._places: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Id of the task that has an item, by owner and item id."""

    async def expand(self, principal: Principal, raw_body: object, *, keeps: bool = False) -> object:
        """Return the parsed body with each reference in `input` replaced by the item that it names.

        `keeps`: unknown references are kept, because the agent's own server may know them. Otherwise they raise
        not_found.
        """
        items: Any = cast("JsonObject", raw_body).get("input") if isinstance(raw_body, dict) else None
        if not isinstance(items, list) or not any(map(_is_reference, cast("list[Any]", items))):
            return cast("object", raw_body)
        items_by_id: dict[str, JsonObject] = {}
        expanded: list[Any] = []
        for number, item in enumerate(cast("list[Any]", items)):
            if _is_reference(item):
                item_id = str(item["id"])
                if item_id not in items_by_id:
                    await self._find(principal, item_id, items_by_id)
                if item_id in items_by_id:
                    item = items_by_id[item_id]
                elif not keeps:
                    words = f"Item with id {item_id[:100]!r} not found."
                    where = f"input.{number}.id"
                    raise FaultError(FaultCode.NOT_FOUND, words, errors=[{"field": where, "description": words}])
            expanded.append(item)
        return {**cast("JsonObject", raw_body), "input": expanded}

    async def _find(self, principal: Principal, item_id: str, items_by_id: dict[str, JsonObject]) -> None:
        """Find the task that has the item, and add all items of this task to `items_by_id`. An unknown item adds
        nothing."""
        for task in await self._candidates(principal, item_id):
            items = await self._items_of(principal, task)
            items_by_id |= items
            for each in items:
                self._places[principal.owner, each] = task.task_id
            while len(self._places) > _PLACES:
                self._places.popitem(last=False)
            if item_id in items:
                return

    async def _candidates(self, principal: Principal, item_id: str) -> list[Task]:
        """Return the tasks that may have the item: the cached one, or those that were active at the time in its id."""
        reads = self._hub.reads
        if (task_id := self._places.get((principal.owner, item_id))) is not None:
            try:
                return [await reads.task(principal, task_id)]
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise
                return []
        match = _ID.fullmatch(item_id)
        if match is None:
            return []
        moment = (UUID(match[1]).int >> 80) * 1000
        return list(await reads.tasks_active_at(principal, moment, slack=_CLOCKS, limit=_TASKS))

    async def _items_of(self, principal: Principal, task: Task) -> dict[str, JsonObject]:
        """Return the items of all runs of a task, by item id. A task on an unstored thread has none."""
        reads = self._hub.reads
        try:
            if (await reads.thread(principal, task.thread_id)).ephemeral:
                return {}
            writer = ConversationWriter(
                task.thread_id, principal.owner, await reads.removed_messages(principal, task.thread_id)
            )
            async with aclosing(reads.log(principal, Scope.task(task), inline=True)) as batches:
                async for batch in batches:
                    for record in batch:
                        writer.write(record)
            return {str(each.item["id"]): each.item for each in writer.items()}
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
                raise
            return {}


def _is_reference(item: object) -> bool:
    """Return True if an item has only the id of another item. Its `type` may be missing."""
    if not isinstance(item, dict):
        return False
    members = cast("JsonObject", item)
    if not isinstance(members.get("id"), str):
        return False
    kind = members.get("type")
    return kind == "item_reference" or (kind is None and members.keys() <= {"id", "type"})

"""Pages of items."""

from collections.abc import Mapping, Sequence
from typing import Final

from adapters.openai.codec.messages import refuse
from canonical.value import JsonObject

_PAGE: Final = 20
_MOST: Final = 100


def limit_of(text: str | None) -> int:
    """Raises invalid."""
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _MOST):
        refuse("limit", f"It is not an integer from 1 to {_MOST}.")
    return int(text)


def page_of(items: Sequence[JsonObject], query: Mapping[str, str]) -> JsonObject:
    """Of items in the order in which they were said: the newest first, unless `order` says otherwise. Raises
    invalid."""
    # resources/responses/input_items.py, list.
    limit, order = limit_of(query.get("limit")), query.get("order", "desc")
    if order not in ("asc", "desc"):
        refuse("order", "It is neither asc nor desc.")
    found = list(items) if order == "asc" else list(items)[::-1]
    after = query.get("after")
    if after is not None:
        place = next((number for number, item in enumerate(found) if item["id"] == after), None)
        if place is None:
            refuse("after", f"There is no item with the id {after[:100]!r}.")
        found = found[place + 1 :]
    page = found[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(found) > limit,
    }

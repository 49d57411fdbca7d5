"""Cursor pagination of lists (`after`, `limit`, `order`)."""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.canonical.value import JsonObject

_PAGE: Final = 20
_MOST_ITEMS: Final = 100
"""Maximum size of a page (SPEC/conversations/item_list_params.py, limit: "between 1 and 100, and the default is
20")."""


def limit_of(text: str | None) -> int:
    """Return the page size in the query parameter `limit`, or the default for None. Raises invalid for any other
    text."""
    if text is None:
        return _PAGE
    if (limit := parse_integer(text, 5, 1, _MOST_ITEMS)) is None:
        refuse("limit", f"It must be an integer from 1 to {_MOST_ITEMS}.")
    return limit


def page_of(items: Sequence[JsonObject], query: Mapping[str, str]) -> JsonObject:
    """Return one page of `items`, which are oldest first. The page is newest first unless `order` is `asc`. Raises
    invalid for wrong query parameters, such as an `after` that no item has as its id."""
    limit, descending = limit_of(query.get("limit")), is_descending(query.get("order"))
    ordered = list(items)[::-1] if descending else list(items)
    after = query.get("after")
    if after is not None:
        position = next((number for number, item in enumerate(ordered) if item["id"] == after), None)
        if position is None:
            refuse_cursor(after)
        ordered = ordered[position + 1 :]
    return encode_page(ordered, limit)


def is_descending(order: str | None) -> bool:
    """Return True if the query parameter `order` means newest first, which is the default. Raises invalid for any other
    text than `asc` and `desc`."""
    if order not in (None, "asc", "desc"):
        refuse("order", "It must be asc or desc.")
    return order != "asc"


def refuse_cursor(after: str) -> NoReturn:
    """Raise invalid for a cursor `after` that names no item of the list."""
    refuse("after", f"There is no item with the id {after[:100]!r}.")


def encode_page(items: Sequence[JsonObject], limit: int) -> JsonObject:
    """Return a page as JSON. `items` are those of the page, and at least one more if another page follows."""
    # resources/responses/input_items.py, list.
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }

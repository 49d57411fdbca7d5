"""Patches of JSON values (RFC 6902), by which states and activities change."""

from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.canonical.json import is_identical
from babelgate.canonical.value import Json, JsonObject

_MAX_DEPTH: Final = 3
"""Number of levels of nested objects, with the outermost one, that are compared member by member. A deeper object that
differs is replaced as a whole. Chosen, as for differences in the log."""


def make_patch(before: JsonObject, after: JsonObject) -> list[JsonObject]:
    """Return the operations that turn `before` into `after`; empty if both are equal."""
    return list(_patch(before, after, "", _MAX_DEPTH))


def _patch(before: JsonObject, after: JsonObject, path: str, depth: int) -> Iterator[JsonObject]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": f"{path}/{_escape(name)}"}
    for name, value in after.items():
        place = f"{path}/{_escape(name)}"
        if name not in before:
            yield {"op": "add", "path": place, "value": value}
        elif not is_identical(before[name], value):
            yield from _change(before[name], value, place, depth - 1)


def _change(before: Json, after: Json, place: str, depth: int) -> Iterator[JsonObject]:
    if isinstance(before, dict) and isinstance(after, dict) and depth > 0:
        yield from _patch(cast("JsonObject", before), cast("JsonObject", after), place, depth)
    elif isinstance(before, list) and isinstance(after, list) and _is_longer(before, after):
        for item in after[len(before) :]:
            yield {"op": "add", "path": f"{place}/-", "value": item}
    else:
        yield {"op": "replace", "path": place, "value": after}


def _is_longer(before: list[Any], after: list[Any]) -> bool:
    """Return True if `after` consists of all items of `before` and further items after them."""
    return len(after) > len(before) and is_identical(before, after[: len(before)])


def _escape(name: str) -> str:
    """Return a member's name as a token of a JSON pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


def apply_patch(value: Any, patch: list[JsonObject]) -> Any:
    """Return the result of the operations on a value. The value itself is unchanged, and the result shares its
    unchanged parts.

    Raises:
        ValueError: if an operation is unknown or does not apply.
    """
    for operation in patch:
        value = _apply(value, operation)
    return value


def _apply(value: Any, operation: JsonObject) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    tokens = _tokens(path)
    match kind:
        case "add" | "replace":
            return _put(value, tokens, operation.get("value"), is_add=kind == "add")
        case "remove":
            return _remove(value, tokens)
        case "test":
            if not is_identical(_get(value, tokens), operation.get("value")):
                raise ValueError("a test of the patch failed")
            return value
        case "copy" | "move":
            source = _tokens(operation.get("from"))
            found = _get(value, source)
            return _put(_remove(value, source) if kind == "move" else value, tokens, found, is_add=True)
        case _:
            raise ValueError(f"unknown operation {str(kind)[:50]!r}")


def _tokens(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise ValueError("a path of the patch is no JSON pointer")
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def _index(items: list[Any], token: str, *, past_end: bool = False) -> int:
    if past_end and token == "-":
        return len(items)
    if not token.isdecimal() or int(token) > len(items) - (0 if past_end else 1):
        raise ValueError(f"there is no item {token[:20]!r}")
    return int(token)


def _get(value: Any, tokens: list[str]) -> Any:
    for token in tokens:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            value = items[_index(items, token)]
        elif isinstance(value, dict) and token in value:
            value = cast("JsonObject", value)[token]
        else:
            raise ValueError(f"there is no member {token[:50]!r}")
    return value


def _put(value: Any, tokens: list[str], new: Any, *, is_add: bool) -> Any:
    """Return a copy of the value with `new` at the path `tokens`. Unchanged parts are shared. With `is_add`, an item is
    inserted into a list and a member may be absent; without it, the path must exist. Raises ValueError."""
    if not tokens:
        return new
    token, rest = tokens[0], tokens[1:]
    if isinstance(value, list):
        items = list(cast("list[Any]", value))
        at = _index(items, token, past_end=is_add and not rest)
        if rest:
            items[at] = _put(items[at], rest, new, is_add=is_add)
        elif is_add:
            items.insert(at, new)
        else:
            items[at] = new
        return items
    if not isinstance(value, dict):
        raise ValueError("a path of the patch leads into a value that has no members")
    members = dict(cast("JsonObject", value))
    if token not in members and (rest or not is_add):
        raise ValueError(f"there is no member {token[:50]!r}")
    members[token] = _put(members[token], rest, new, is_add=is_add) if rest else new
    return members


def _remove(value: Any, tokens: list[str]) -> Any:
    if not tokens:
        return None
    _get(value, tokens)
    token, rest = tokens[0], tokens[1:]
    if isinstance(value, list):
        items = list(cast("list[Any]", value))
        at = _index(items, token)
        if rest:
            items[at] = _remove(items[at], rest)
        else:
            del items[at]
        return items
    members = dict(cast("JsonObject", value))
    if rest:
        members[token] = _remove(members[token], rest)
    else:
        del members[token]
    return members

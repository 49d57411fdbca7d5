"""Store of the scripted servers of the Agent Protocol and LangGraph Platform."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.servers.kit import Request
from tests.conformance.servers.langchain_work import ThreadServer, has, now

Key = tuple[str, tuple[str, ...], str]


class Store(ThreadServer):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.items: dict[Key, dict[str, Any]] = {}

    def _key(self, request: Request, namespace: Sequence[str], key: str) -> Key:
        owner = "" if self.does("the store is open to all callers") else request.caller
        return owner, tuple(namespace), key

    def put_item(self, request: Request) -> None:
        body = self.body(request)
        self.refuse_unless("no namespace is the root", 422, "namespace is missing", when="namespace" not in body)
        if not isinstance(body.get("value"), dict) and not self.does("values of any type are accepted"):
            raise self.error(422, "value is an object")
        at = self._key(request, body.get("namespace", []), body["key"])
        existing = self.items.get(at)
        value = body["value"]
        if existing is not None and self.does("values of items are merged"):
            value = {**existing["value"], **value}
        keeps_date = existing is not None and not self.does("replaced items are new")
        created = existing["created_at"] if keeps_date and existing is not None else now()
        self.items[at] = {
            "namespace": list(at[1]),
            "key": at[2],
            "value": value,
            "created_at": created,
            "updated_at": now(),
        }

    def get_item(self, request: Request, namespace: Sequence[str]) -> Mapping[str, Any] | None:
        found = self.items.get(self._key(request, namespace, request.query.get("key", "")))
        if found is None and self.does("missing items are empty"):
            return {"namespace": list(namespace), "key": "", "value": {}, "created_at": now(), "updated_at": now()}
        if found is not None and self.does("items lose their namespace"):
            return {**found, "namespace": []}
        if found is not None and self.does("an item has no date"):
            return {name: value for name, value in found.items() if name != "created_at"}
        return found

    def delete_item(self, request: Request) -> bool:
        """Delete an item. Return True if it existed."""
        body = self.body(request)
        at = self._key(request, body.get("namespace", []), body["key"])
        return at in self.items if self.does("deleted items stay") else self.items.pop(at, None) is not None

    def search_items(self, request: Request) -> list[Any]:
        body = self.body(request)
        prefix: tuple[str, ...] = tuple(body.get("namespace_prefix") or ())
        found = [each for at, each in self.items.items() if at[1][: len(prefix)] == prefix]
        if self.does("a prefix is a whole namespace"):
            found = [each for each in found if tuple(each["namespace"]) == prefix]
        if not self.does("filters are ignored"):
            found = [each for each in found if has(each["value"], body.get("filter") or {})]
        start = 0 if self.does("items have no pages") else body.get("offset", 0)
        return found[start : start + body.get("limit", 10)]

    def namespaces(self, request: Request) -> list[list[str]]:
        body = self.body(request)
        prefix: list[str] = body.get("prefix") or []
        suffix: list[str] = body.get("suffix") or []
        depth = body.get("max_depth")
        found: list[list[str]] = []
        for _, namespace, _ in self.items:
            cut = list(namespace)
            if cut[: len(prefix)] != prefix and not self.does("prefixes are ignored"):
                continue
            if suffix and cut[-len(suffix) :] != suffix and not self.does("suffixes are ignored"):
                continue
            if not self.does("depth is ignored"):
                cut = cut[:depth]
            if cut not in found:
                found.append(cut)
        return found[: body.get("limit", 100)]

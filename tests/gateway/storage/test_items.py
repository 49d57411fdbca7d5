"""Tests of the key-value store with namespaces, on a real database."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, event, select, text
from sqlalchemy.engine import Engine

from babelgate.canonical import FaultCode, FaultError, ItemQuery, NamespaceQuery
from babelgate.canonical.value import Json
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.items import ItemStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import ItemRow
from tests.empty import make_database

EACH_DATABASE: Final = True
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@dataclass
class Ticking:
    """Clock that advances by a microsecond with every read."""

    now: int = START

    def __call__(self) -> int:
        self.now += 1
        return self.now


@dataclass
class Memory:
    store: ItemStore
    clock: Ticking
    journal: Journal
    url: str

    async def put(self, *places: str, value: Mapping[str, Any] | None = None, owner: str = "alice") -> None:
        """Store items at places such as `a.b/key`. By default, the value contains the place."""
        for place in places:
            namespace, key = place.split("/")
            await self.store.put(owner, tuple(namespace.split(".")), key, dict(value or {"at": place}))

    async def found(self, *, owner: str = "alice", **query: Any) -> list[str]:
        items = await self.store.search(owner, ItemQuery(**query))
        return [f"{'.'.join(item.namespace)}/{item.key}" async for item in items]

    async def spaces(self, *, owner: str = "alice", **query: Any) -> list[str]:
        return [".".join(each) for each in await self.store.namespaces(owner, NamespaceQuery(**query))]

    async def rows(self) -> int:
        return len(await self.journal.query(lambda c: c.execute(select(table_of(ItemRow).c.key)).all()))


@pytest.fixture
async def memory(tmp_path: Path, postgres: str | None) -> AsyncGenerator[Memory]:
    url, clock = postgres or f"sqlite:///{tmp_path / 'store.db'}", Ticking()
    make_database(tmp_path / "store.db")
    journal = Journal(url)
    await journal.open()
    try:
        yield Memory(ItemStore(journal, Clock(clock, clock), lambda: 2**20), clock, journal, url)
    finally:
        await journal.close()


async def refused(doing: Any) -> str:
    with pytest.raises(FaultError) as error:
        await doing
    assert error.value.fault.code is FaultCode.INVALID
    return error.value.fault.message


# Items


async def test_an_item_is_read_back_with_its_times(memory: Memory) -> None:
    value = {"text": "é\u202e\0", "n": 10**20, "x": 0.1, "deep": [{"a": None}], "": True}
    await memory.store.put("alice", ("users", "jane"), "profile", value)
    item = await memory.store.get("alice", ("users", "jane"), "profile")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (("users", "jane"), "profile", value)
    assert item.created_at == item.updated_at > START


async def test_a_second_put_replaces_the_value_and_keeps_created_at(memory: Memory) -> None:
    await memory.put("a/x", value={"n": 1, "old": True})
    before = await memory.store.get("alice", ("a",), "x")
    await memory.put("a/x", value={"n": 2})
    after = await memory.store.get("alice", ("a",), "x")
    assert before is not None and after is not None
    assert after.value == {"n": 2}
    assert after.created_at == before.created_at < after.updated_at
    assert await memory.rows() == 1


async def test_deleting_a_deleted_item_reports_that_it_is_missing(memory: Memory) -> None:
    await memory.put("a/x", "a/y")
    assert await memory.store.delete("alice", ("a",), "x") is True
    assert await memory.store.delete("alice", ("a",), "x") is False
    assert await memory.store.get("alice", ("a",), "x") is None
    assert await memory.found() == ["a/y"]


async def test_items_survive_a_restart(memory: Memory) -> None:
    await memory.put("a/x", value={"n": 1})
    await memory.journal.close()
    journal = Journal(memory.url)
    await journal.open()
    item = await ItemStore(journal, Clock(memory.clock, memory.clock), lambda: 2**20).get("alice", ("a",), "x")
    assert item is not None and item.value == {"n": 1}
    await journal.close()


async def test_an_item_of_another_owner_is_not_visible(memory: Memory) -> None:
    await memory.put("a/x", value={"of": "alice"})
    await memory.put("a/x", value={"of": "bob"}, owner="bob")
    assert await memory.store.delete("eve", ("a",), "x") is False
    assert await memory.store.get("eve", ("a",), "x") is None
    assert await memory.found(owner="eve") == await memory.spaces(owner="eve") == []
    assert await memory.store.delete("bob", ("a",), "x") is True
    item = await memory.store.get("alice", ("a",), "x")
    assert item is not None and item.value == {"of": "alice"}


async def test_hundreds_of_concurrent_puts_are_stored(memory: Memory) -> None:
    await asyncio.gather(*(memory.store.put("alice", ("n",), str(n % 100), {"n": n}) for n in range(300)))
    items = await (await memory.store.search("alice", ItemQuery(limit=1000))).all()
    assert sorted(item.value["n"] for item in items) == list(range(200, 300))


# Names


@pytest.mark.sqlite
@pytest.mark.parametrize("labels", [("",), ("a", ""), ("a.b",), ("a", "."), ("\0",), ("a\0b",), ("\ud800",)])
async def test_an_invalid_label_is_refused_everywhere(memory: Memory, labels: tuple[str, ...]) -> None:
    store = memory.store
    assert "namespace" in await refused(store.put("alice", labels, "x", {}))
    assert "namespace" in await refused(store.get("alice", labels, "x"))
    assert "namespace" in await refused(store.delete("alice", labels, "x"))
    assert "namespace" in await refused(store.search("alice", ItemQuery(prefix=labels)))
    assert "namespace" in await refused(store.namespaces("alice", NamespaceQuery(prefix=labels)))
    assert "namespace" in await refused(store.namespaces("alice", NamespaceQuery(suffix=labels)))


async def test_an_item_needs_a_namespace_and_a_key(memory: Memory) -> None:
    assert "namespace" in await refused(memory.store.put("alice", (), "x", {}))
    assert "key" in await refused(memory.store.put("alice", ("a",), "", {}))
    assert "key" in await refused(memory.store.put("alice", ("a",), "x\0", {}))
    assert await memory.store.get("alice", (), "x") is None
    assert await memory.store.delete("alice", ("a",), "") is False


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": "\ud800"}, {"x": object()}, [], None, "text"])
async def test_a_value_must_be_a_json_object(memory: Memory, value: Any) -> None:
    assert "value" in await refused(memory.store.put("alice", ("a",), "x", value))
    assert await memory.rows() == 0


async def test_similar_namespaces_are_distinct(memory: Memory) -> None:
    places = [
        "a/x",
        "a.b/x",
        "ab/x",
        "a0/x",
        "a-/x",
        "a!/x",
        "a~/x",
        "A/x",
        "a b/x",
        "%/x",
        "_/x",
        "é/x",
        "*/x",
        "a\u0301/x",
    ]
    await memory.put(*places)
    assert sorted(await memory.found(limit=100)) == sorted(places)
    assert sorted(await memory.found(prefix=("a",))) == ["a.b/x", "a/x"]
    for wild in ("%", "_", "*"):
        assert await memory.found(prefix=(wild,)) == [f"{wild}/x"]


async def test_a_key_may_contain_characters_that_labels_cannot(memory: Memory) -> None:
    keys = ["a.b", ".", "..", "/etc/passwd", " ", "\n", "💡", "x" * 5000]
    for key in keys:
        await memory.store.put("alice", ("a",), key, {"key": key})
    for key in keys:
        item = await memory.store.get("alice", ("a",), key)
        assert item is not None and item.value == {"key": key}


# Time to live


async def test_an_expired_item_is_not_found(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "x", {}, ttl=60)
    memory.clock.now += 59 * SECOND
    assert await memory.found(refresh=False) == ["a/x"]
    memory.clock.now += SECOND
    assert await memory.store.get("alice", ("a",), "x") is None
    assert await memory.found() == await memory.found(filter={"y": {"$ne": 1}}) == await memory.spaces() == []
    assert await memory.store.delete("alice", ("a",), "x") is False


async def test_reading_renews_the_time_to_live_unless_disabled(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "read", {}, ttl=60)
    await memory.store.put("alice", ("a",), "looked at", {}, ttl=60)
    await memory.store.put("alice", ("b",), "found", {"n": 1}, ttl=60)
    memory.clock.now += 50 * SECOND
    assert await memory.store.get("alice", ("a",), "read") is not None
    assert await memory.store.get("alice", ("a",), "looked at", refresh=False) is not None
    assert await memory.found(filter={"n": 1}) == ["b/found"]
    memory.clock.now += 50 * SECOND
    assert sorted(await memory.found(refresh=False)) == ["a/read", "b/found"]
    memory.clock.now += 20 * SECOND
    assert await memory.found() == []


async def test_reading_does_not_change_updated_at(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "x", {}, ttl=60)
    first = await memory.store.get("alice", ("a",), "x")
    assert await memory.store.get("alice", ("a",), "x") == first


async def test_a_put_without_a_time_to_live_removes_it(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "x", {"n": 1}, ttl=60)
    await memory.store.put("alice", ("a",), "x", {"n": 2})
    memory.clock.now += 1000 * SECOND
    assert await memory.found() == ["a/x"]


async def test_an_item_that_replaces_an_expired_one_is_new(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "x", {"n": 1}, ttl=60)
    memory.clock.now += 60 * SECOND
    await memory.store.put("alice", ("a",), "x", {"n": 2})
    item = await memory.store.get("alice", ("a",), "x")
    assert item is not None and item.created_at == item.updated_at > START + 60 * SECOND


async def test_an_expired_unswept_item_does_not_block_others(memory: Memory) -> None:
    await asyncio.gather(*(memory.store.put("bob", ("old",), str(n), {}, ttl=1) for n in range(300)))
    await memory.store.put("alice", ("a",), "x", {"n": 1}, ttl=2)
    memory.clock.now += 60 * SECOND
    await memory.store.put("alice", ("a",), "x", {"n": 2})
    item = await memory.store.get("alice", ("a",), "x")
    assert item is not None and item.value == {"n": 2} and item.created_at == item.updated_at


async def test_an_invalid_time_to_live_is_refused(memory: Memory) -> None:
    for ttl in (0, -1, 2**62, 10**30):
        assert "ttl" in await refused(memory.store.put("alice", ("a",), "x", {}, ttl=ttl))


async def test_the_sweep_deletes_only_expired_rows_of_all_owners(memory: Memory) -> None:
    await asyncio.gather(*(memory.store.put("bob", ("old",), str(n), {}, ttl=1) for n in range(600)))
    await memory.put("a/stays", "a/lives")
    await memory.store.put("alice", ("a",), "lives", {}, ttl=1000)
    memory.clock.now += 10 * SECOND
    assert await memory.rows() == 602
    await memory.store.sweep()
    assert await memory.rows() == 2
    assert await memory.found() == ["a/lives", "a/stays"]


async def test_a_put_also_deletes_some_expired_rows(memory: Memory) -> None:
    await asyncio.gather(*(memory.store.put("bob", ("old",), str(n), {}, ttl=1) for n in range(20)))
    memory.clock.now += 10 * SECOND
    await memory.put("a/x")
    assert await memory.rows() == 1


# Search


async def test_items_are_listed_by_their_newest_change(memory: Memory) -> None:
    await memory.put("a/1", "b/2", "a/3", "c/4", value={"n": 1})
    await memory.put("b/2", value={"n": 1})
    order = ["b/2", "c/4", "a/3", "a/1"]
    filters: list[dict[str, Any]] = [{}, {"filter": {"n": 1}}]
    for query in filters:
        assert await memory.found(**query) == order
        pages = [await memory.found(limit=2, offset=offset, **query) for offset in (0, 2, 4, 2**62 - 5)]
        assert pages == [order[:2], order[2:], [], []]
        assert await memory.found(limit=0, **query) == []
        assert await memory.found(prefix=("a",), **query) == ["a/3", "a/1"]


@pytest.mark.sqlite
async def test_an_invalid_page_is_refused(memory: Memory) -> None:
    for limit, offset in ((-1, 0), (1, -1), (2**70, 0), (1, 2**70)):
        await refused(memory.store.search("alice", ItemQuery(limit=limit, offset=offset)))
        await refused(memory.store.namespaces("alice", NamespaceQuery(limit=limit, offset=offset)))


VALUES: Mapping[str, Json] = {
    "zero": 0,
    "one": 1,
    "float one": 1.0,
    "two": 2.5,
    "huge": 10**30,
    "true": True,
    "false": False,
    "null": None,
    "empty": "",
    "text": "abc",
    "number as text": "1",
    "list": [1, "a", {"x": 1}],
    "object": {"x": 1, "y": {"z": "w"}},
    "empty list": [],
    "empty object": {},
}


async def matching(memory: Memory, condition: Json) -> set[str]:
    places = await memory.found(filter={"v": condition}, limit=100)
    return {place.split("/")[1] for place in places}


@pytest.fixture
async def shelf(memory: Memory) -> Memory:
    for key, value in VALUES.items():
        await memory.put(f"a/{key}", value={"v": value})
    await memory.put("a/missing", value={"w": 1})
    return memory


async def test_a_filter_compares_values_as_json_does(shelf: Memory) -> None:
    ones = {"one", "float one"}
    same = {key: {key} for key in VALUES} | {"one": ones, "float one": ones}
    for key, value in VALUES.items():
        assert await matching(shelf, {"$eq": value}) == same[key], key
        assert await matching(shelf, {"$ne": value}) == ({*VALUES, "missing"} - same[key]), key
        if value != {}:
            assert await matching(shelf, value) == same[key], key


ORDERS: Sequence[tuple[Json, set[str]]] = [
    ({"$gt": 1}, {"two", "huge"}),
    ({"$gte": 1}, {"one", "float one", "two", "huge"}),
    ({"$lt": 1}, {"zero"}),
    ({"$lte": 1.0}, {"zero", "one", "float one"}),
    ({"$gt": 0, "$lt": 2}, {"one", "float one"}),
    ({"$gt": 0, "$ne": 1}, {"two", "huge"}),
    ({"$gt": ""}, {"text", "number as text"}),
    ({"$lte": "abc"}, {"empty", "text", "number as text"}),
    ({"$gte": None}, set()),
    ({"$gte": True}, set()),
    ({"$lte": []}, set()),
    ({"$lte": {}}, set()),
]


@pytest.mark.sqlite
@pytest.mark.parametrize(("condition", "keys"), ORDERS)
async def test_only_numbers_or_texts_can_be_ordered(shelf: Memory, condition: Json, keys: set[str]) -> None:
    assert await matching(shelf, condition) == keys


async def test_an_object_filter_ignores_other_members(shelf: Memory) -> None:
    assert await matching(shelf, {"x": 1}) == {"object"}
    assert await matching(shelf, {"y": {"z": {"$gte": "v"}}}) == {"object"}
    assert await matching(shelf, {"x": {"$ne": 1}}) == {"empty object"}
    assert await matching(shelf, {}) == {"object", "empty object"}
    assert await matching(shelf, [{"$lt": 2}, "a", {"x": 1}]) == {"list"}
    assert await shelf.found(filter={"v": 1, "w": 1}) == []
    assert await shelf.found(filter={"none": None}) == []


async def test_filters_accept_any_value(shelf: Memory) -> None:
    names = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")
    for name, operand in product(names, VALUES.values()):
        assert await matching(shelf, {name: operand}) <= {*VALUES, "missing"}


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "condition", [{"$in": [1]}, {"$gt": 1, "x": 2}, {"x": {"$regex": "a"}}, [{"$": 1}], {"$" * 999: 1}]
)
async def test_an_unknown_operator_is_refused(memory: Memory, condition: Json) -> None:
    assert "filter" in await refused(memory.found(filter={"v": condition}))


async def test_search_matches_words_of_texts_in_any_case(memory: Memory) -> None:
    await memory.put("a/1", value={"name": "Jane DOE", "likes": ["Green tea", {"and": "STRASSE"}]})
    await memory.put("a/2", value={"tea": "coffee", "n": 42})
    assert await memory.found(text="tea jane") == ["a/1"]
    assert await memory.found(text="straße") == ["a/1"]
    assert (
        await memory.found(text="42") == await memory.found(text="likes") == await memory.found(text="tea coff") == []
    )
    assert await memory.found(text="OFF") == ["a/2"]
    assert await memory.found(text=" \t") == await memory.found(text="") == ["a/2", "a/1"]
    assert await memory.found(text="o", filter={"n": {"$gt": 1}}) == ["a/2"]


# Namespaces


async def test_namespaces_are_listed_sorted_without_repetition(memory: Memory) -> None:
    await memory.put("b/1", "b/2", "a.x/1", "a/1", "a-b/1", "a.x.y/1")
    assert await memory.spaces() == ["a", "a.x", "a.x.y", "a-b", "b"]
    assert await memory.spaces(limit=2, offset=1) == ["a.x", "a.x.y"]
    assert await memory.spaces(prefix=("a",)) == ["a", "a.x", "a.x.y"]


async def test_a_star_matches_one_label_at_either_end(memory: Memory) -> None:
    await memory.put("u.1.mem/k", "u.2.mem/k", "u.2.log/k", "v.1.mem/k", "u/k", "*.1.mem/k")
    assert await memory.spaces(prefix=("u", "*", "mem")) == ["u.1.mem", "u.2.mem"]
    assert await memory.spaces(prefix=("*", "1")) == ["*.1.mem", "u.1.mem", "v.1.mem"]
    assert await memory.spaces(suffix=("mem",), prefix=("u",)) == ["u.1.mem", "u.2.mem"]
    assert await memory.spaces(suffix=("2", "*")) == ["u.2.log", "u.2.mem"]
    assert await memory.spaces(prefix=("*", "*", "*", "*")) == []


async def test_deep_namespaces_are_cut_after_matching(memory: Memory) -> None:
    await memory.put("a.b.c/1", "a.b.d/1", "a/1", "e.f/1")
    assert await memory.spaces(max_depth=2) == ["a", "a.b", "e.f"]
    assert await memory.spaces(max_depth=1, suffix=("d",)) == ["a"]
    assert await memory.spaces(max_depth=2, limit=1, offset=1) == ["a.b"]
    for depth in (0, -1):
        await refused(memory.spaces(max_depth=depth))


# Plans


@pytest.mark.sqlite
async def test_no_statement_of_the_store_scans_the_table(memory: Memory) -> None:
    statements: list[tuple[str, Any]] = []

    def record_statement(_: Any, __: Any, sql: str, parameters: Any, *___: Any) -> None:
        if " item" in sql:
            statements.append((sql, parameters))

    event.listen(Engine, "before_cursor_execute", record_statement)
    try:
        await memory.store.put("alice", ("a", "b"), "x", {"n": 1}, ttl=60)
        await memory.store.get("alice", ("a", "b"), "x")
        for query in (ItemQuery(), ItemQuery(prefix=("a",)), ItemQuery(prefix=("a",), filter={"n": 1})):
            assert len(await (await memory.store.search("alice", query)).all()) == 1
        await memory.store.namespaces("alice", NamespaceQuery(prefix=("a", "*")))
        await memory.store.delete("alice", ("a", "b"), "x")
        await memory.store.sweep()
    finally:
        event.remove(Engine, "before_cursor_execute", record_statement)
    assert len(statements) >= 10
    plans = await memory.journal.query(lambda c: [_plan(c, *each) for each in statements if "INSERT" not in each[0]])
    for sql, steps in plans:
        assert not [step for step in steps if step.startswith("SCAN item")], (sql, steps)
    ranges = [steps for sql, steps in plans if "namespace < ?" in sql]
    assert ranges and all("owner=? AND namespace>? AND namespace<?" in steps[0] for steps in ranges)


def _plan(connection: Connection, sql: str, parameters: Any) -> tuple[str, list[str]]:
    return sql, [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)]


async def test_a_row_stores_its_expiry_in_microseconds(memory: Memory) -> None:
    await memory.store.put("alice", ("a",), "x", {}, ttl=60)
    rows = await memory.journal.query(lambda c: c.execute(text("SELECT namespace, expires_at, ttl FROM item")).all())
    ((namespace, expires_at, ttl),) = rows
    assert (namespace, ttl) == ("a.", 60 * SECOND)
    assert START < expires_at - ttl <= memory.clock.now

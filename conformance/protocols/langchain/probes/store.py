"""Probes that test the store, which keeps JSON objects by namespace and key."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[LangChainTarget]()

_VALUE: Final = {"colour": "blue", "deep": {"list": [1, None, "ä"]}}


@dataclass(frozen=True, slots=True)
class StoredItem:
    namespace: list[str]
    put: Exchange


async def store_items(ctx: Ctx) -> StoredItem:
    """Store three items in a new namespace, and one in a namespace below it. Return the namespace and the first
    response. Raises Failed if the server refuses one."""
    top = f"judge-{uuid4().hex}"
    puts = [
        await _put(ctx, [top, "a"], key, {**_VALUE, "number": number}) for number, key in enumerate(("x", "y", "z"))
    ]
    puts.append(await _put(ctx, [top, "a", "deep"], "x", _VALUE))
    for each in puts:
        check(each.status == 204, "an item is stored with status 204", each.status, each)
    return StoredItem([top, "a"], puts[0])


@probes.add
async def item_is_stored(ctx: Ctx) -> None:
    await ctx.subject(store_items)


@probes.add
async def item_is_found_again(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await get_item(ctx, there.namespace, "x")
    check(exchange.status == 200, "the item is found with status 200", exchange.status, exchange)
    found = [dig(exchange.json, name) for name in ("namespace", "key", "value")]
    check(found == [there.namespace, "x", {**_VALUE, "number": 0}], "the item as it was stored", found, exchange)


@probes.add
async def item_is_replaced(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    namespace = [there.namespace[0], "replaced"]
    await _put(ctx, namespace, "x", {"a": 1})
    await _put(ctx, namespace, "x", {"b": 2})
    exchange = await get_item(ctx, namespace, "x")
    check(dig(exchange.json, "value") == {"b": 2}, "only the value that was stored last", exchange.json, exchange)


@probes.add
async def replaced_item_keeps_its_birthday(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    namespace = [there.namespace[0], "dated"]
    await _put(ctx, namespace, "x", {"a": 1})
    first = await get_item(ctx, namespace, "x")
    await _put(ctx, namespace, "x", {"b": 2})
    exchange = await get_item(ctx, namespace, "x")
    born = dig(first.json, "created_at")
    check(born is not None and dig(exchange.json, "created_at") == born, f"created_at {born}", exchange.json, exchange)


@probes.add
async def missing_item_is_told(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await get_item(ctx, there.namespace, "none")
    wanted = ctx.target.dialect.missing_item
    check(exchange.status == wanted, f"the status {wanted}", exchange.status, exchange)
    if wanted == 200:
        check(exchange.is_json and exchange.json is None, "the answer null", exchange.json, exchange)


@probes.add
async def deleted_item_is_gone(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    namespace = [there.namespace[0], "deleted"]
    await _put(ctx, namespace, "x", _VALUE)
    body = {"namespace": namespace, "key": "x"}
    exchange = await ctx.target.ask("DELETE", "/store/items", body, sends="StoreDelete.request")
    check(exchange.status == 204, "a delete is answered with 204", exchange.status, exchange)
    after = await get_item(ctx, namespace, "x")
    wanted = ctx.target.dialect.missing_item
    check(after.status == wanted and not dig(after.json, "value"), "the item is deleted", after.json, after)


@probes.add
async def items_are_found_by_prefix(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await _search(ctx, namespace_prefix=there.namespace)
    keys = sorted(str(dig(each, "key")) for each in _items(exchange))
    check(keys == ["x", "x", "y", "z"], "the items of the namespace and below it", exchange.json, exchange)


@probes.add
async def items_are_found_by_what_they_hold(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await _search(ctx, namespace_prefix=there.namespace, filter={"number": 1})
    keys = [dig(each, "key") for each in _items(exchange)]
    check(keys == ["y"], "the one item whose number is 1", exchange.json, exchange)


@probes.add
async def items_are_told_page_by_page(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    found: list[Any] = []
    for offset, number in ((0, 2), (2, 2)):
        exchange = await _search(ctx, namespace_prefix=there.namespace, limit=2, offset=offset)
        page = [(tuple(as_list(dig(each, "namespace"))), dig(each, "key")) for each in _items(exchange)]
        check(len(page) == number, f"limit=2, offset={offset} of 4 gives {number}", exchange.json, exchange)
        found += page
    check(len(set(found)) == 4, "no item on two pages", found)


@probes.add
async def namespaces_are_listed(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    found = await _namespaces(ctx, prefix=there.namespace)
    check(sorted(found) == [there.namespace, [*there.namespace, "deep"]], "the two namespaces with the prefix", found)


@probes.add
async def namespaces_are_found_by_suffix(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    found = await _namespaces(ctx, prefix=there.namespace[:1], suffix=["deep"])
    check(found == [[*there.namespace, "deep"]], "the one namespace with the suffix", found)


@probes.add
async def namespaces_are_cut_at_a_depth(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    found = await _namespaces(ctx, prefix=there.namespace, max_depth=2)
    check(found == [there.namespace], "each prefix of two labels once for max_depth=2", found)


@probes.add
async def item_without_a_namespace_is_refused(ctx: Ctx) -> None:
    await ctx.once(store_items)
    exchange = await ctx.target.ask("PUT", "/store/items", {"key": "x", "value": {}})
    check(exchange.status == 422, "the status 422", exchange.status, exchange)


@probes.add
async def value_of_an_item_is_an_object(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await ctx.target.ask("PUT", "/store/items", {"namespace": there.namespace, "key": "n", "value": 3})
    check(exchange.status == 422, "the status 422", exchange.status, exchange)


async def get_item(ctx: Ctx, namespace: list[str], key: str, **options: Any) -> Exchange:
    named: Any = namespace if ctx.target.dialect.has_bare_namespaces else ".".join(namespace)
    query = {"key": key, "namespace": named}
    return await ctx.target.ask("GET", "/store/items", receives="GotItem", query=query, **options)


async def _put(ctx: Ctx, namespace: list[str], key: str, value: Any) -> Exchange:
    body = {"namespace": namespace, "key": key, "value": value}
    return await ctx.target.ask("PUT", "/store/items", body, sends="StorePut.request")


async def _search(ctx: Ctx, **fields: Any) -> Exchange:
    exchange = await ctx.target.ask(
        "POST", "/store/items/search", fields, sends="StoreSearch.request", receives="Items"
    )
    check(exchange.status == 200, "items are searched with status 200", exchange.status, exchange)
    return exchange


def _items(exchange: Exchange) -> list[Any]:
    return as_list(dig(exchange.json, "items"))


async def _namespaces(ctx: Ctx, **fields: Any) -> list[Any]:
    exchange = await ctx.target.ask(
        "POST", "/store/namespaces", fields, sends="StoreNamespaces.request", receives="Namespaces"
    )
    check(exchange.status == 200, "namespaces are listed with status 200", exchange.status, exchange)
    value = exchange.json
    return as_list(value if ctx.target.dialect.has_bare_namespaces else dig(value, "namespaces"))

"""Probes that test the assistants of LangGraph Platform, and the server's information about itself."""

from typing import Any, Final
from uuid import UUID, uuid5

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, ids_of, trigger_for, unknown_id
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()

_GRAPHS: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""UUID namespace of LangGraph Platform: an assistant's default id is the UUID version 5 of its graph's name in this
namespace."""


async def _list_all(ctx: Ctx) -> Exchange:
    exchange = await _search(ctx, limit=100)
    check(exchange.status == 200, "assistants are searched with status 200", exchange.status, exchange)
    check(bool(as_list(exchange.json)), "an array of assistants", exchange.json, exchange)
    return exchange


async def _first(ctx: Ctx) -> Any:
    return dig((await ctx.once(_list_all)).json, 0)


@probes.add
async def assistants_are_listed(ctx: Ctx) -> None:
    await ctx.subject(_list_all)


@probes.add
async def assistants_are_found_by_graph(ctx: Ctx) -> None:
    graph = dig(await _first(ctx), "graph_id")
    exchange = await _search(ctx, graph_id=graph, limit=100)
    graphs = {dig(each, "graph_id") for each in as_list(exchange.json)}
    check(graphs == {graph}, f"only assistants of {graph}", sorted(map(str, graphs)), exchange)
    none = await _search(ctx, graph_id=f"no-graph-{unknown_id()}")
    is_none = none.status in (200, 404) and not ids_of(none, "assistant_id")
    check(is_none, "no assistant of an unknown graph", none.json, none)


@probes.add
async def assistants_are_told_page_by_page(ctx: Ctx) -> None:
    listed = ids_of(await ctx.once(_list_all), "assistant_id")
    pages = [ids_of(await _search(ctx, limit=1, offset=offset), "assistant_id") for offset in (0, 1)]
    check(pages == [listed[:1], listed[1:2]], "limit=1 gives the first, and offset=1 the next", pages)


@probes.add
async def assistants_are_counted(ctx: Ctx) -> None:
    await ctx.once(_list_all)
    exchange = await ctx.target.ask("POST", "/assistants/count", {}, receives="Count")
    every = await _search(ctx, limit=1000)
    number = len(as_list(every.json))
    check(exchange.json == number, f"the number of assistants, {number}", exchange.json, exchange)


@probes.add
async def assistant_is_found_by_id(ctx: Ctx) -> None:
    first = await _first(ctx)
    exchange = await ctx.target.ask("GET", _path(first), receives="Assistant")
    check(exchange.status == 200, "an assistant is found with status 200", exchange.status, exchange)
    check(exchange.json == first, "the same assistant as in the list", exchange.json, exchange)


@probes.add
async def assistant_of_a_graph_has_its_id(ctx: Ctx) -> None:
    listed = await ctx.once(_list_all)
    system = [each for each in as_list(listed.json) if dig(each, "metadata", "created_by") == "system"]
    if not system:
        raise NotApplicable("the server creates no assistant itself")
    for each in system:
        wanted = str(uuid5(_GRAPHS, str(dig(each, "graph_id"))))
        check(dig(each, "assistant_id") == wanted, f"the assistant_id {wanted}", each, listed)


@probes.add
async def assistant_has_schemas(ctx: Ctx) -> None:
    first = await _first(ctx)
    exchange = await ctx.target.ask("GET", f"{_path(first)}/schemas", receives="GraphSchema")
    check(exchange.status == 200, "the schemas with status 200", exchange.status, exchange)
    graph = dig(first, "graph_id")
    check(dig(exchange.json, "graph_id") == graph, f"the schemas of {graph}", exchange.json, exchange)


@probes.add
async def assistant_has_a_graph(ctx: Ctx) -> None:
    exchange = await ctx.target.ask("GET", f"{_path(await _first(ctx))}/graph", receives="Graph")
    check(exchange.status == 200, "the graph with status 200", exchange.status, exchange)
    nodes = {dig(each, "id") for each in as_list(dig(exchange.json, "nodes"))}
    for edge in as_list(dig(exchange.json, "edges")):
        ends = {dig(edge, "source"), dig(edge, "target")}
        check(ends <= nodes, "edges from node to node", edge, exchange)
    check("__start__" in nodes, "the node __start__", sorted(map(str, nodes)), exchange)


@probes.add
async def assistant_tells_its_subgraphs(ctx: Ctx) -> None:
    exchange = await ctx.target.ask("GET", f"{_path(await _first(ctx))}/subgraphs")
    check(exchange.status == 200, "the subgraphs with status 200", exchange.status, exchange)
    check(as_object(exchange.json) is not None, "an object, empty if there are no subgraphs", exchange.json, exchange)


@probes.add
async def unknown_assistant_is_not_found(ctx: Ctx) -> None:
    await ctx.once(_list_all)
    for end in ("", "/schemas"):
        exchange = await ctx.target.ask("GET", f"/assistants/{unknown_id()}{end}")
        check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def run_takes_a_graph_for_its_assistant(ctx: Ctx) -> None:
    first = await _first(ctx)
    body = ctx.target.body(trigger_for(ctx, "plain"))
    thread_id = await ctx.target.new_thread()
    for name in (dig(first, "graph_id"), dig(first, "assistant_id")):
        created = await ctx.target.create(LAYOUT, thread_id, {**body, "assistant_id": name})
        check(created.status == 200, f"a run of {name} is created", created.status, created)
        there = dig(created.json, "assistant_id")
        check(there == dig(first, "assistant_id"), "the id of the assistant in the run", created.json, created)


@probes.add
async def unknown_graph_is_refused(ctx: Ctx) -> None:
    await ctx.once(_list_all)
    body = {**ctx.target.body(trigger_for(ctx, "plain")), "assistant_id": "no-such-graph"}
    exchange = await ctx.target.create(LAYOUT, await ctx.target.new_thread(), body)
    check(exchange.status == 422, "the status 422", exchange.status, exchange)


@probes.add
async def server_says_that_it_is_well(ctx: Ctx) -> None:
    exchange = await ctx.target.ask("GET", "/ok")
    check(exchange.status == 200 and dig(exchange.json, "ok") is True, '{"ok": true}', exchange.json, exchange)


@probes.add
async def server_says_what_it_is(ctx: Ctx) -> None:
    exchange = await ctx.target.ask("GET", "/info", receives="Info")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "version"), str), "a version", exchange.json, exchange)


async def _search(ctx: Ctx, **fields: Any) -> Exchange:
    return await ctx.target.ask(
        "POST", "/assistants/search", fields, sends="AssistantSearch.request", receives="Assistants"
    )


def _path(assistant: Any) -> str:
    return f"/assistants/{dig(assistant, 'assistant_id')}"

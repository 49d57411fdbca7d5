"""Probes that test the agents that an Agent Protocol server lists."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, ids_of, trigger_for, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[LangChainTarget]()


async def _list_all(ctx: Ctx) -> Exchange:
    exchange = await _search(ctx, limit=1000)
    check(exchange.status == 200, "agents are searched with status 200", exchange.status, exchange)
    check(bool(as_list(exchange.json)), "an array of agents", exchange.json, exchange)
    return exchange


@probes.add
async def agents_are_listed(ctx: Ctx) -> None:
    await ctx.subject(_list_all)


@probes.add
async def agent_is_found_by_name(ctx: Ctx) -> None:
    listed = await ctx.once(_list_all)
    wanted = dig(listed.json, -1, "name")
    exchange = await _search(ctx, name=wanted)
    names = [dig(each, "name") for each in as_list(exchange.json)]
    check(wanted in names, f"the agent {wanted}", names, exchange)
    none = await _search(ctx, name=f"no-agent-{unknown_id()}")
    check(none.status == 200 and none.json == [], "no agent for an unknown name", none.json, none)


@probes.add
async def agents_are_told_page_by_page(ctx: Ctx) -> None:
    listed = ids_of(await ctx.once(_list_all), "agent_id")
    first = ids_of(await _search(ctx, limit=1), "agent_id")
    second = ids_of(await _search(ctx, limit=1, offset=1), "agent_id")
    check(first == listed[:1], "limit=1 gives the first agent", first)
    check(second == listed[1:2], "offset=1 gives the next", second)


@probes.add
async def agent_is_described(ctx: Ctx) -> None:
    listed = await ctx.once(_list_all)
    agent_id = dig(listed.json, 0, "agent_id")
    exchange = await ctx.target.ask("GET", f"/agents/{agent_id}", receives="Agent")
    check(exchange.status == 200, "an agent is found with status 200", exchange.status, exchange)
    check(exchange.json == dig(listed.json, 0), "the same agent as in the list", exchange.json, exchange)


@probes.add
async def agent_has_schemas(ctx: Ctx) -> None:
    agent_id = dig((await ctx.once(_list_all)).json, 0, "agent_id")
    exchange = await ctx.target.ask("GET", f"/agents/{agent_id}/schemas", receives="AgentSchema")
    check(exchange.status == 200, "the schemas with status 200", exchange.status, exchange)
    check(dig(exchange.json, "agent_id") == agent_id, f"the schemas of {agent_id}", exchange.json, exchange)


@probes.add
async def unknown_agent_is_not_found(ctx: Ctx) -> None:
    await ctx.once(_list_all)
    for path in (f"/agents/{unknown_id()}", f"/agents/{unknown_id()}/schemas"):
        exchange = await ctx.target.ask("GET", path)
        check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def run_names_its_agent(ctx: Ctx) -> None:
    await ctx.once(_list_all)
    for layout in ctx.target.layouts:
        thread_id = await ctx.target.new_thread()
        body = ctx.target.body(trigger_for(ctx, "plain"))
        exchange = await ctx.target.create(layout, thread_id, body)
        expected = f"the agent_id {body.get('agent_id')} ({layout.name})"
        check(dig(exchange.json, "agent_id") == body.get("agent_id"), expected, exchange.json, exchange)


async def _search(ctx: Ctx, **fields: object) -> Exchange:
    return await ctx.target.ask("POST", "/agents/search", fields, sends="AgentSearch.request", receives="Agents")

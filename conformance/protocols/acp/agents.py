"""Probes that test the list and the manifests of agents on ACP servers."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import list_agents
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def ping_is_answered(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    url = ctx.target.url("ping")
    exchange = await ctx.wire.request("GET", url, sends=None, receives={4: "Error", 5: "Error"})
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(as_object(exchange.json) is not None, "a JSON object", exchange.json, exchange)


@probes.add
async def agents_are_listed(ctx: Ctx) -> None:
    await ctx.subject(list_agents)


@probes.add
async def names_are_unique(ctx: Ctx) -> None:
    exchange = await ctx.once(list_agents)
    names = [str(dig(each, "name")) for each in _agents(exchange)]
    check(len(names) == len(set(names)), "each name once", names, exchange)


@probes.add
async def limit_cuts_the_list(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    exchange = await ctx.target.agents(limit=1)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(len(_agents(exchange)) == 1, "one agent", len(_agents(exchange)), exchange)


@probes.add
async def offset_skips_agents(ctx: Ctx) -> None:
    every = _agents(await ctx.once(list_agents))
    exchange = await ctx.target.agents(limit=1000, offset=1)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    names = [dig(each, "name") for each in _agents(exchange)]
    check(dig(every, 0, "name") not in names, "the agents without the first one", names, exchange)


@probes.add
async def pages_hold_every_agent_once(ctx: Ctx) -> None:
    names = [dig(each, "name") for each in _agents(await ctx.once(list_agents))][:5]
    found: list[Any] = []
    for offset in range(len(names)):
        found += [dig(each, "name") for each in _agents(await ctx.target.agents(limit=1, offset=offset))]
    check(found == names, "the agents one by one, in the order of the list", found)


@probes.add
async def limit_of_zero_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    _check_refused(await ctx.target.agents(limit=0))


@probes.add
async def limit_above_the_most_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    _check_refused(await ctx.target.agents(limit=1001))


@probes.add
async def negative_offset_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    _check_refused(await ctx.target.agents(offset=-1))


@probes.add
async def manifest_is_found_by_name(ctx: Ctx) -> None:
    name = str(dig(_agents(await ctx.once(list_agents)), 0, "name"))
    exchange = await ctx.target.agent(name)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "name") == name, f"the manifest of {name}", exchange.json, exchange)


@probes.add
async def manifest_is_as_it_was_listed(ctx: Ctx) -> None:
    agents = _agents(await ctx.once(list_agents))
    for each in agents[:3]:
        exchange = await ctx.target.agent(str(dig(each, "name")))
        for member in ("description", "input_content_types", "output_content_types"):
            actual = dig(exchange.json, member)
            check(actual == dig(each, member), f"{member} as in the list", actual, exchange)


@probes.add
async def unknown_agent_has_no_manifest(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    exchange = await ctx.target.agent("no-such-agent-here")
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


def _agents(exchange: Exchange) -> list[Any]:
    return as_list(dig(exchange.json, "agents"))


def _check_refused(exchange: Exchange) -> None:
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)

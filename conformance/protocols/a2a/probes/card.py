"""Probes that test the agent card of A2A, and the extended card."""

import base64
import json
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx
from babelgate.conformance.protocols.a2a.discovery import WELL_KNOWN
from babelgate.conformance.protocols.a2a.scenes import check_refusal, each_binding, plain
from babelgate.conformance.verdict import NotObserved, Prerequisite, check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[A2aTarget]()


def card_of(ctx: Ctx) -> Any:
    if ctx.target.card is None:
        raise Prerequisite("an agent card", None, ctx.target.found.exchange)
    return ctx.target.card


def version_of(ctx: Ctx) -> dict[str, str]:
    return {"A2A-Version": "0.3" if ctx.target.bindings[0].is_first_generation else "1.0"}


async def again(ctx: Ctx, **headers: str) -> Exchange:
    """Request the card again from the URL where it was found, with these headers in addition, and return the
    exchange."""
    card_of(ctx)
    sent = {"Accept": "application/json", **version_of(ctx), **headers}
    url = ctx.target.found.exchange.url
    return await ctx.wire.request("GET", url, sends=None, receives={2: "AgentCard"}, headers=sent)


@probes.add
async def card_is_well_known(ctx: Ctx) -> None:
    exchange = ctx.target.found.exchange
    check(exchange.url.endswith(WELL_KNOWN), f"the card at {WELL_KNOWN}", exchange.url, exchange)
    check(exchange.status == 200, "the card with status 200", exchange.status, exchange)
    check(ctx.target.card is not None, "the card is a JSON object", exchange.json, exchange)


@probes.add
async def card_is_json(ctx: Ctx) -> None:
    card_of(ctx)
    exchange = ctx.target.found.exchange
    is_json = exchange.media_type == "application/json" or exchange.media_type.endswith("+json")
    check(is_json, "the card's Content-Type is JSON", exchange.media_type, exchange)


@probes.add
async def card_skills_have_unique_ids(ctx: Ctx) -> None:
    ids = [str(dig(each, "id")) for each in as_list(dig(card_of(ctx), "skills"))]
    check(len(ids) == len(set(ids)), "no two skills have the same id", ids, ctx.target.found.exchange)


@probes.add
async def card_may_be_cached(ctx: Ctx) -> None:
    exchange = await again(ctx)
    actual = exchange.header("cache-control")
    check("max-age" in (actual or ""), "Cache-Control with max-age", actual, exchange)


@probes.add
async def card_has_a_validator(ctx: Ctx) -> None:
    exchange = await again(ctx)
    check(bool(exchange.header("etag")), "an ETag", exchange.header("etag"), exchange)


@probes.add
async def card_is_not_sent_twice(ctx: Ctx) -> None:
    etag = (await again(ctx)).header("etag")
    if not etag:
        raise NotObserved("the card has no ETag")
    exchange = await again(ctx, **{"If-None-Match": etag})
    check(exchange.status == 304, "status 304 for If-None-Match with the ETag", exchange.status, exchange)


@probes.add
async def card_needs_no_credentials(ctx: Ctx) -> None:
    card_of(ctx)
    url = ctx.target.found.exchange.url
    sent = version_of(ctx)
    exchange = await ctx.wire.request("GET", url, sends=None, receives=None, headers=sent, is_anonymous=True)
    check(exchange.status == 200, "the card, without credentials", exchange.status, exchange)


@probes.add
async def card_extensions_are_uris(ctx: Ctx) -> None:
    for each in as_list(dig(card_of(ctx), "capabilities", "extensions")):
        uri = str(dig(each, "uri"))
        check(":" in uri, "the URI of the extension", uri, ctx.target.found.exchange)


@probes.add
async def card_signatures_have_headers(ctx: Ctx) -> None:
    for each in as_list(dig(card_of(ctx), "signatures")):
        text = str(dig(each, "protected"))
        try:
            header = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except ValueError:
            header = None
        is_right = isinstance(dig(header, "alg"), str) and isinstance(dig(header, "kid"), str)
        check(is_right, "a protected header of JSON with alg and kid", header or text, ctx.target.found.exchange)
        check(dig(header, "alg") != "none", "a signature algorithm", header, ctx.target.found.exchange)


@probes.add
@each_binding
async def extended_card_is_given(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    reply = await ctx.target[binding].call("GetExtendedAgentCard", {})
    check(not reply.reason, "the extended card", reply.reason, reply.exchange)
    name, expected = dig(reply.result, "name"), dig(ctx.target.card, "name")
    check(name == expected, f"the card of the same agent, {expected}", name, reply.exchange)


@probes.add
@each_binding
async def extended_card_needs_credentials(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    reply = await ctx.target[binding].call("GetExtendedAgentCard", {}, is_valid=False, is_anonymous=True)
    check_refusal(reply)


@probes.add
@each_binding
async def undeclared_extended_card_is_refused(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    chosen = ctx.target[binding]
    # 0.3 has one error for a missing card, whether or not it is declared.
    others = ("EXTENDED_AGENT_CARD_NOT_CONFIGURED", "METHOD_NOT_FOUND") if chosen.is_first_generation else ()
    check_refusal(await chosen.call("GetExtendedAgentCard", {}), "UNSUPPORTED_OPERATION", *others)

"""Probes that test what A2A 0.3 has and 1.0 removed: `final`, the card's URL and transports, and the form of
results."""

from typing import Any, Final
from urllib.parse import urlsplit

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import TERMINAL, state_of
from babelgate.conformance.protocols.a2a.discovery import origin_of
from babelgate.conformance.protocols.a2a.probes.card import card_of
from babelgate.conformance.protocols.a2a.probes.push import create_config
from babelgate.conformance.protocols.a2a.probes.rpc import rpc_of
from babelgate.conformance.protocols.a2a.probes.stream import task_stream
from babelgate.conformance.protocols.a2a.scenes import each_binding, plain, shown_stream
from babelgate.conformance.protocols.a2a.v0.opening import VERSION
from babelgate.conformance.protocols.a2a.v0.translation import result_of
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[A2aTarget]()
_RPC: Final = "JSONRPC"


def is_final(event: Any) -> bool:
    return dig(event, "statusUpdate", "final") is True


@probes.add
@each_binding
async def last_update_is_final(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    check(
        is_final(streamed.payloads[-1]),
        "a status update with final: true at the end",
        streamed.payloads[-1],
        streamed.exchange,
    )


@probes.add
@each_binding
async def only_the_last_update_is_final(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    early = [each for each in streamed.payloads[:-1] if is_final(each)]
    check(not early, "final: true only on the last event", early, streamed.exchange)


@probes.add
@each_binding
async def failure_is_final(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "fail")
    check(
        is_final(streamed.payloads[-1]),
        "a status update with final: true at the end",
        streamed.payloads[-1],
        streamed.exchange,
    )


@probes.add
@each_binding
async def question_is_final(ctx: Ctx, binding: str) -> None:
    streamed = await shown_stream(ctx, binding, "question")
    updates = [each for each in streamed.payloads if state_of(dig(each, "statusUpdate")) == "TASK_STATE_INPUT_REQUIRED"]
    if not updates:
        raise NotObserved("the stream had no status update for the question", "question")
    check(is_final(updates[-1]), "final: true on the update that ends the stream", updates[-1], streamed.exchange)


@probes.add
@each_binding
async def work_is_not_final(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    for each in streamed.payloads:
        if is_final(each):
            state = state_of(dig(each, "statusUpdate"))
            check(state in TERMINAL, "final: true with a state that ends the task", each, streamed.exchange)


@probes.add
async def results_are_bare(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    answer = await binding.rpc.call("message/send", binding.dialect.params("SendMessage", _hello(ctx)))
    kind = dig(answer.result, "kind")
    check(kind in ("task", "message"), "the task or the message itself, with its kind", answer.result, answer.exchange)


@probes.add
@each_binding
async def blocking_may_be_false(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    params = {**_hello(ctx), "configuration": {"returnImmediately": True}}
    reply = await (await agent_for(ctx, "plain"))[binding].call("SendMessage", params)
    check(not reply.reason, "blocking: false is accepted", reply.reason, reply.exchange)


def _hello(ctx: Ctx) -> dict[str, Any]:
    return {"message": message(ctx.triggers["plain"].text)}


# Agent card


@probes.add
async def card_url_is_absolute(ctx: Ctx) -> None:
    where = str(dig(card_of(ctx), "url"))
    parts = urlsplit(where)
    is_right = parts.scheme in ("http", "https") and bool(parts.netloc)
    check(is_right, "an absolute http or https URL", where, ctx.target.found.exchange)


@probes.add
async def card_transports_are_known(ctx: Ctx) -> None:
    card = card_of(ctx)
    names = [dig(card, "preferredTransport") or "JSONRPC"]
    names += [dig(each, "transport") for each in as_list(dig(card, "additionalInterfaces"))]
    for name in names:
        is_right = name in ("JSONRPC", "GRPC", "HTTP+JSON") or ":" in str(name)
        check(is_right, "JSONRPC, GRPC, HTTP+JSON, or a URI", name, ctx.target.found.exchange)


@probes.add
async def card_url_has_one_transport(ctx: Ctx) -> None:
    card = card_of(ctx)
    where, preferred = dig(card, "url"), dig(card, "preferredTransport") or "JSONRPC"
    faces = as_list(dig(card, "additionalInterfaces"))
    same = [dig(each, "transport") for each in faces if dig(each, "url") == where]
    check(
        not same or preferred in same, f"the transport {preferred} for the card's url", same, ctx.target.found.exchange
    )


@probes.add
async def card_url_is_among_the_interfaces(ctx: Ctx) -> None:
    card = card_of(ctx)
    urls = [dig(each, "url") for each in as_list(dig(card, "additionalInterfaces"))]
    check(dig(card, "url") in urls, "the card's url among the additional interfaces", urls, ctx.target.found.exchange)


@probes.add
async def every_transport_answers(ctx: Ctx) -> None:
    card_of(ctx)
    for binding in VERSION.every_binding(ctx.wire, ctx.target.found):
        reply = await binding.call("SendMessage", _hello(ctx))
        check(not reply.reason, f"an answer of {binding.name} at {binding.url}", reply.reason, reply.exchange)


@probes.add
async def card_security_names_schemes(ctx: Ctx) -> None:
    card = card_of(ctx)
    schemes = as_object(dig(card, "securitySchemes")) or {}
    security = [*as_list(dig(card, "security"))]
    security += [each for skill in as_list(dig(card, "skills")) for each in as_list(dig(skill, "security"))]
    for each in security:
        for name in as_object(each) or {}:
            check(name in schemes, f"a scheme {name} in securitySchemes", list(schemes), ctx.target.found.exchange)


@probes.add
async def card_is_where_it_was(ctx: Ctx) -> None:
    """Check that there is a card at agent.json, where clients of 0.2 expect it. Raises NotObserved if there is none."""
    card_of(ctx)
    found = ctx.target.found.exchange.url
    old = found.replace("agent-card.json", "agent.json")
    places = (old, f"{origin_of(found)}/.well-known/agent.json")
    for place in dict.fromkeys(places):
        exchange = await ctx.wire.request("GET", place, sends=None, receives=None)
        if exchange.status == 200 and as_object(exchange.json) is not None:
            return
    raise NotObserved("there is no card at /.well-known/agent.json, where clients of 0.2 look")


# Push notifications


@probes.add
async def config_can_be_read_without_its_id(ctx: Ctx) -> None:
    configured = await ctx.once(create_config, _RPC)
    binding = await rpc_of(ctx)
    answer = await binding.rpc.call("tasks/pushNotificationConfig/get", {"id": configured.task})
    config = result_of("GetTaskPushNotificationConfig", answer.result)
    check(bool(dig(config, "url")), "a config of the task", answer.body, answer.exchange)

"""Probes of invalid requests, and of failures of the model."""

from typing import Any, Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.anthropic.target import Ctx, MessagesTarget, answer_plainly, body_of, text_of
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[MessagesTarget]()

_JSON: Final = {"Content-Type": "application/json"}


def _check_refused(exchange: Exchange, status: int, kind: str) -> None:
    check(exchange.status == status, f"status {status}", exchange.status, exchange)
    found = dig(exchange.json, "error", "type")
    check(found == kind, f"an error of the type {kind}", found, exchange)


async def _post_broken(ctx: Ctx) -> Exchange:
    url = ctx.target.url
    return await ctx.target.wire.request("POST", url, sends=None, receives=None, content=b'{"model": ', headers=_JSON)


@probes.add
async def messages_are_required(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body = {name: value for name, value in body_of(ctx).items() if name != "messages"}
    _check_refused(await ctx.target.post(body, is_valid=False), 400, "invalid_request_error")


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    _check_refused(await _post_broken(ctx), 400, "invalid_request_error")


@probes.add
async def unknown_model_is_not_found(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body: dict[str, Any] = {**body_of(ctx), "model": "no-such-model"}
    _check_refused(await ctx.target.post(body), 404, "not_found_error")


@probes.add
async def failure_is_an_error(ctx: Ctx) -> None:
    exchange = await ctx.target.post(body_of(ctx, "fail"))
    is_error = (exchange.status or 0) >= 400
    check_shown(is_error or not text_of(exchange.json), "fail", "answered without a failure")
    check(is_error and dig(exchange.json, "type") == "error", "an error", exchange.status, exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await _post_broken(ctx)
    found = find_leak(exchange.content.decode(errors="replace"))
    check(not found, "an error without a stack trace", found, exchange)

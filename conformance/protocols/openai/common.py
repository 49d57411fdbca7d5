"""Probes that chat completions and responses share. The suite of chat completions has all of them, and that of
responses those in `probes`."""

from typing import Any, Final
from urllib.parse import quote

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.target import Ctx, OpenAiTarget, refused, trigger_of
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[OpenAiTarget]()
models: Final = Probes[OpenAiTarget]()
"""Probes of the list of models, which only one of the two requirement sets requires."""


@models.add
async def models_are_listed(ctx: Ctx) -> None:
    exchange = await ctx.target.get(ctx.target.below("models"), "ModelList")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    ids = [str(dig(each, "id")) for each in as_list(dig(exchange.json, "data"))]
    check(bool(ids), "models in data", exchange.json, exchange)
    check(len(ids) == len(set(ids)), "each model once", ids, exchange)


@models.add
async def model_is_found_by_its_id(ctx: Ctx) -> None:
    exchange = await ctx.target.get(ctx.target.below("models", ctx.target.model), "Model")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "id") == ctx.target.model, f"the model {ctx.target.model}", exchange.json, exchange)


@models.add
async def unknown_model_is_not_found(ctx: Ctx) -> None:
    listed = await ctx.target.get(ctx.target.below("models"), "ModelList")
    check(listed.status == 200, "models are listed", listed.status, listed)
    refused(await ctx.target.get(ctx.target.below("models", "no-such-model-here"), None), 404)


@models.add
async def ids_lead_nowhere(ctx: Ctx) -> None:
    listed = await ctx.target.get(ctx.target.below("models"), "ModelList")
    check(listed.status == 200, "models are listed", listed.status, listed)
    for odd in ("../../etc/passwd", "0" * 2000, "' OR 1=1 --"):
        url = f"{ctx.target.base}/models/{quote(odd, safe='')}"
        exchange = await ctx.wire.request("GET", url, sends=None, receives=None)
        refused(exchange)
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "no internals", found, exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    headers = {"Content-Type": "application/json"}
    refused(await ctx.target.post(None, is_valid=False, content=b'{"model": ', headers=headers))


@probes.add
async def answer_without_a_key_is_refused(ctx: Ctx) -> None:
    refused(await ctx.target.post(_whole(ctx), is_anonymous=True), 401)


@probes.add
async def answer_with_a_wrong_key_is_refused(ctx: Ctx) -> None:
    headers = {"Authorization": "Bearer sk-no-such-key"}
    refused(await ctx.target.post(_whole(ctx), is_anonymous=True, headers=headers), 401)


def _whole(ctx: Ctx) -> dict[str, Any]:
    """Return the body of a valid request. Probes of API keys need it, because many servers check the body before the
    key."""
    model, text = trigger_of(ctx, "plain")
    return {"model": model, **ctx.target.ask(text)}


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    wrong: dict[str, Any] = {"model": ["x"], "messages": {"a": 1}, "input": 7}
    headers = {"Content-Type": "application/json"}
    for exchange in (
        await ctx.target.post(wrong, is_valid=False),
        await ctx.target.post(None, is_valid=False, content=b"[[[[", headers=headers),
    ):
        refused(exchange)
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "an error without a stack trace", found, exchange)

"""Probes that test errors, media types and paths of the A2A 1.0 bindings."""

from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for
from babelgate.conformance.protocols.a2a.probes.bindings import post_message, rest_of, unknown_task
from babelgate.conformance.protocols.a2a.probes.rpc import rpc_of
from babelgate.conformance.protocols.a2a.scenes import get, plain, plain_task
from babelgate.conformance.verdict import Prerequisite, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()

DOMAIN: Final = "a2a-protocol.org"
_SENT: Final = {2: "SendMessage.result", 4: "RestError", 5: "RestError"}
"""Names of the schema definitions of the response to `post_message`, by the first digit of the status."""


def info_of(error: Any) -> Any:
    details = as_list(dig(error, "details")) or as_list(dig(error, "data"))
    return next((each for each in details if str(dig(each, "@type")).endswith("google.rpc.ErrorInfo")), None)


@probes.add
async def rpc_errors_say_their_reason(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    answer = await binding.rpc.call("GetTask", {"id": str(uuid4())})
    if answer.code != -32001:
        raise Prerequisite("the error TaskNotFound", answer.body, answer.exchange)
    info = info_of(answer.error)
    check(dig(info, "reason") == "TASK_NOT_FOUND", "an ErrorInfo with the reason", answer.error, answer.exchange)
    check(dig(info, "domain") == DOMAIN, f"its domain {DOMAIN}", info, answer.exchange)


@probes.add
async def rest_is_json(ctx: Ctx) -> None:
    reply = await ctx.once(plain, "HTTP+JSON")
    kind = reply.exchange.media_type
    is_right = kind in ("application/json", "application/a2a+json")
    check(is_right, "Content-Type application/json or application/a2a+json", kind, reply.exchange)


@probes.add
async def rest_errors_are_json(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    kind = reply.exchange.media_type
    is_right = kind in ("application/json", "application/a2a+json", "application/problem+json")
    check(is_right, "Content-Type of JSON", kind, reply.exchange)


@probes.add
async def rest_errors_say_their_reason(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    info = info_of(dig(reply.exchange.json, "error"))
    check(dig(info, "reason") == "TASK_NOT_FOUND", "an ErrorInfo with the reason", reply.exchange.json, reply.exchange)
    check(dig(info, "domain") == DOMAIN, f"its domain {DOMAIN}", info, reply.exchange)


@probes.add
async def rest_errors_say_their_status(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    code = dig(reply.exchange.json, "error", "code")
    check(code == reply.exchange.status, f"the code {reply.exchange.status} in the body", code, reply.exchange)


@probes.add
async def rest_refused_cancel_is_400_or_409(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    sent = await ctx.once(plain_task, "HTTP+JSON")
    reply = await rest.call("CancelTask", {"id": sent.task["id"]})
    # 1.0.0 has 409 for TaskNotCancelable, 1.0.1 has 400.
    status = reply.exchange.status
    check(status in (400, 409), "status 400, or 409 as in 1.0.0", status, reply.exchange)


@probes.add
async def rest_broken_json_is_400(ctx: Ctx) -> None:
    exchange = await post_message(ctx, b'{"message": {', receives=_SENT)
    check(exchange.status == 400, "status 400", exchange.status, exchange)


@probes.add
async def rest_missing_message_is_400(ctx: Ctx) -> None:
    exchange = await post_message(ctx, b"{}", receives=_SENT)
    check(exchange.status == 400, "status 400", exchange.status, exchange)


@probes.add
async def rest_paths_lead_nowhere_else(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    for path in ("/tasks/..%2f..%2f..%2f..%2fetc%2fpasswd", "/tasks/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/tasks/x%00"):
        exchange = await ctx.wire.request("GET", rest.root + path, sends=None, receives=None, headers=rest.headers)
        status = exchange.status or 0
        check(400 <= status < 500, "a 4xx status", status, exchange)
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "no internals", found, exchange)


@probes.add
async def rest_takes_its_media_type(ctx: Ctx) -> None:
    text = b'{"message": {"messageId": "%s", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}'
    exchange = await post_message(ctx, text % uuid4().hex.encode(), receives=_SENT, kind="application/a2a+json")
    check(exchange.status == 200, "success for a body of application/a2a+json", exchange.status, exchange)


@probes.add
async def rest_query_is_camel_case(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    sent = await ctx.once(plain_task, "HTTP+JSON")
    if not as_list(dig(sent.task, "history")):
        task = await get(await agent_for(ctx, "plain"), "HTTP+JSON", sent.task["id"])
        if not as_list(dig(task, "history")):
            return  # nothing to limit
    reply = await rest.call("GetTask", {"id": sent.task["id"], "historyLength": 0})
    history = as_list(dig(reply.result, "history"))
    check(not reply.reason and not history, "no history for historyLength=0", reply.reason_or_result, reply.exchange)

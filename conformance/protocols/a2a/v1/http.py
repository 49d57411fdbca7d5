"""Probes of the bindings of 1.0, and of the agreement between both."""

from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import Agent, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import Reply, state_of
from babelgate.conformance.protocols.a2a.probes.rpc import rpc_of
from babelgate.conformance.protocols.a2a.scenes import get, plain, plain_task
from babelgate.conformance.protocols.a2a.v1.rest import RestBinding
from babelgate.conformance.verdict import Prerequisite, check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[Agent]()

DOMAIN: Final = "a2a-protocol.org"


async def rest_of(ctx: Ctx) -> RestBinding:
    await ctx.once(plain, "HTTP+JSON")
    binding = (await agent_for(ctx, "plain"))["HTTP+JSON"]
    assert isinstance(binding, RestBinding)
    return binding


async def post_message(ctx: Ctx, content: bytes, kind: str = "application/json") -> Exchange:
    rest = await rest_of(ctx)
    return await ctx.wire.request(
        "POST",
        f"{rest.url}/message:send",
        sends=None,
        receives={2: "SendMessage.result", 4: "RestError", 5: "RestError"},
        content=content,
        headers={**rest.headers, "Content-Type": kind},
    )


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
    rest = await rest_of(ctx)
    reply = await rest.call("GetTask", {"id": str(uuid4())})
    kind = reply.exchange.media_type
    is_right = kind in ("application/json", "application/a2a+json", "application/problem+json")
    check(is_right, "Content-Type of JSON", kind, reply.exchange)


@probes.add
async def rest_unknown_task_is_404(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    reply = await rest.call("GetTask", {"id": str(uuid4())})
    check(reply.exchange.status == 404, "status 404", reply.exchange.status, reply.exchange)


@probes.add
async def rest_errors_say_their_reason(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    reply = await rest.call("GetTask", {"id": str(uuid4())})
    info = info_of(dig(reply.exchange.json, "error"))
    check(dig(info, "reason") == "TASK_NOT_FOUND", "an ErrorInfo with the reason", reply.exchange.json, reply.exchange)
    check(dig(info, "domain") == DOMAIN, f"its domain {DOMAIN}", info, reply.exchange)


@probes.add
async def rest_errors_say_their_status(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    reply = await rest.call("GetTask", {"id": str(uuid4())})
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
    exchange = await post_message(ctx, b'{"message": {')
    check(exchange.status == 400, "status 400", exchange.status, exchange)


@probes.add
async def rest_missing_message_is_400(ctx: Ctx) -> None:
    exchange = await post_message(ctx, b"{}")
    check(exchange.status == 400, "status 400", exchange.status, exchange)


@probes.add
async def rest_unknown_path_is_404(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    url = f"{rest.url}/babelgate/no/such/path"
    exchange = await ctx.wire.request("GET", url, sends=None, receives=None, headers=rest.headers)
    check(exchange.status == 404, "status 404", exchange.status, exchange)


@probes.add
async def rest_paths_lead_nowhere_else(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    for path in ("/tasks/..%2f..%2f..%2f..%2fetc%2fpasswd", "/tasks/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/tasks/x%00"):
        exchange = await ctx.wire.request("GET", rest.url + path, sends=None, receives=None, headers=rest.headers)
        status = exchange.status or 0
        check(400 <= status < 500, "a 4xx status", status, exchange)
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "no internals", found, exchange)


@probes.add
async def rest_takes_its_media_type(ctx: Ctx) -> None:
    text = b'{"message": {"messageId": "%s", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}'
    exchange = await post_message(ctx, text % uuid4().hex.encode(), "application/a2a+json")
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


@probes.add
async def rest_events_are_bare(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    params = {"message": message(ctx.triggers["plain"].text)}
    async with rest.stream("SendStreamingMessage", params) as stream:
        first = await stream.next()
        is_bare = "jsonrpc" not in str(first) and (dig(first, "task") or dig(first, "message")) is not None
        check(is_bare, "a StreamResponse without an envelope", first, stream.exchange)


async def is_same(ctx: Ctx, sent: Reply, binding: str) -> None:
    """Check that a task is visible through another binding. Raises Failed."""
    reply = await (await agent_for(ctx, "plain"))[binding].call("GetTask", {"id": sent.task["id"]})
    check(not reply.reason, f"the task {sent.task['id']}", reply.reason, reply.exchange)
    check(
        state_of(reply.result) == state_of(sent.task), f"the state {state_of(sent.task)}", reply.result, reply.exchange
    )


@probes.add
async def task_of_rpc_is_seen_by_rest(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, "JSONRPC")
    await ctx.once(plain, "HTTP+JSON")
    await is_same(ctx, sent, "HTTP+JSON")


@probes.add
async def task_of_rest_is_seen_by_rpc(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, "HTTP+JSON")
    await ctx.once(plain, "JSONRPC")
    await is_same(ctx, sent, "JSONRPC")

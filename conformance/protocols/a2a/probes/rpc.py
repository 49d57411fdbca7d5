"""Probes that test JSON-RPC 2.0 as A2A uses it."""

from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.jsonrpc import JsonRpcBinding
from babelgate.conformance.protocols.a2a.scenes import plain, stream_message
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_object, dig
from babelgate.conformance.wire.jsonrpc import JsonRpcAnswer

probes: Final = Probes[A2aTarget]()


async def rpc_of(ctx: Ctx) -> JsonRpcBinding:
    """Return the agent's JSON-RPC binding, after it has answered a plain message. Probes of refusals need this: a
    binding that refuses everything proves nothing."""
    await ctx.once(plain, "JSONRPC")
    binding = (await agent_for(ctx, "plain"))["JSONRPC"]
    assert isinstance(binding, JsonRpcBinding)
    return binding


def code_is(answer: JsonRpcAnswer, *codes: int) -> None:
    expected = " or ".join(map(str, codes))
    check(answer.code in codes, f"the error {expected}", answer.body or answer.exchange.status, answer.exchange)


async def send_invalid(ctx: Ctx, params: Any) -> JsonRpcAnswer:
    """Call SendMessage with `params` that are intentionally invalid, and return the answer."""
    binding = await rpc_of(ctx)
    return await binding.rpc.call(binding.dialect.method("SendMessage"), params, is_valid=False)


@probes.add
async def rpc_is_json(ctx: Ctx) -> None:
    reply = await ctx.once(plain, "JSONRPC")
    kind = reply.exchange.media_type
    check(kind == "application/json", "Content-Type application/json", kind, reply.exchange)


@probes.add
async def rpc_gives_the_id_back(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    sent = (await ctx.once(plain, "JSONRPC")).exchange
    expected = dig(sent.request_json, "id")
    check(dig(sent.json, "id") == expected, f"the id {expected!r}", dig(sent.json, "id"), sent)
    method, params = binding.dialect.method("GetTask"), {"id": str(uuid4())}
    for id in ("babelgate-1", 4711, "7"):
        answer = await binding.rpc.call(method, params, id=id)
        actual = dig(answer.body, "id")
        check(actual == id and type(actual) is type(id), f"the id {id!r}", actual, answer.exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    code_is(await binding.rpc.post(b'{"jsonrpc": "2.0", "id": 1,'), -32700)


@probes.add
async def answer_to_broken_json_has_a_null_id(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    answer = await binding.rpc.post(b"{nothing")
    body = as_object(answer.body) or {}
    is_null = "id" in body and body["id"] is None
    check(is_null, "an error with the id null", answer.body, answer.exchange)


@probes.add
async def request_without_version_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    method = binding.dialect.method("GetTask")
    code_is(await binding.rpc.post({"id": 1, "method": method, "params": {"id": "x"}}), -32600)


@probes.add
async def request_without_method_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    code_is(await binding.rpc.post({"jsonrpc": "2.0", "id": 1, "params": {}}), -32600)


@probes.add
async def unknown_method_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    code_is(await binding.rpc.call("NoSuchMethod", {}, is_valid=False), -32601)


@probes.add
async def params_of_the_wrong_type_are_refused(ctx: Ctx) -> None:
    code_is(await send_invalid(ctx, ["no", "object"]), -32602, -32600)


@probes.add
async def send_without_message_is_refused(ctx: Ctx) -> None:
    code_is(await send_invalid(ctx, {"configuration": {}}), -32602)


@probes.add
async def get_without_id_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    code_is(await binding.rpc.call(binding.dialect.method("GetTask"), {}, is_valid=False), -32602)


@probes.add
async def message_without_its_id_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    wrong = binding.dialect.params("SendMessage", {"message": message("Hello")})
    del wrong["message"]["messageId"]
    code_is(await send_invalid(ctx, wrong), -32602)


@probes.add
async def message_without_role_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    wrong = binding.dialect.params("SendMessage", {"message": message("Hello")})
    del wrong["message"]["role"]
    code_is(await send_invalid(ctx, wrong), -32602)


@probes.add
async def message_without_parts_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    wrong = binding.dialect.params("SendMessage", {"message": message("Hello")})
    wrong["message"]["parts"] = []
    code_is(await send_invalid(ctx, wrong), -32602)


@probes.add
async def part_without_content_is_refused(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    wrong = binding.dialect.params("SendMessage", {"message": message("Hello")})
    wrong["message"]["parts"] = [{"babelgate": True}]
    code_is(await send_invalid(ctx, wrong), -32602)


@probes.add
async def unknown_members_are_ignored(ctx: Ctx) -> None:
    binding = await rpc_of(ctx)
    params = binding.dialect.params("SendMessage", {"message": message(ctx.triggers["plain"].text)})
    params["message"]["babelgateFuture"] = {"of": "another version"}
    answer = await send_invalid(ctx, params)
    check(answer.error is None, "success: a member of a later version is ignored", answer.body, answer.exchange)


@probes.add
async def events_have_the_id_of_the_request(ctx: Ctx) -> None:
    streamed = await ctx.once(stream_message, "JSONRPC", "plain")
    expected = dig(streamed.exchange.request_json, "id")
    for frame in streamed.exchange.frames:
        actual = dig(frame.json_or_none, "id")
        check(actual == expected, f"the id of the request, {expected}", actual, streamed.exchange)

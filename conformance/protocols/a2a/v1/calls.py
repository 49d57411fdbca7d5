"""Probes that test A2A's gRPC binding (specification 1.0, 10), and that it shows the tasks of the other bindings."""

from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import RPC_STATUSES, A2aReply
from babelgate.conformance.protocols.a2a.probes.bindings import is_same
from babelgate.conformance.protocols.a2a.probes.push import create
from babelgate.conformance.protocols.a2a.scenes import follow_up, plain, plain_task, stream_message
from babelgate.conformance.protocols.a2a.v1.grpc import GrpcBinding, service
from babelgate.conformance.protocols.a2a.v1.http import DOMAIN, info_of
from babelgate.conformance.verdict import NotApplicable, Prerequisite, check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[A2aTarget]()

_OPTIONAL: Final = {
    "SendStreamingMessage": "streaming",
    "SubscribeToTask": "streaming",
    "CreateTaskPushNotificationConfig": "push",
    "GetTaskPushNotificationConfig": "push",
    "ListTaskPushNotificationConfigs": "push",
    "DeleteTaskPushNotificationConfig": "push",
    "GetExtendedAgentCard": "extended-card",
}
"""Capability that an agent must declare for a method. All other methods are mandatory."""
_UNKNOWN_FIELD: Final = b"\xc0\x3e\x01"
"""Field 1000 with the number 1, which no message of A2A 1.0 has."""


async def grpc_of(ctx: Ctx) -> GrpcBinding:
    """Return the agent's gRPC binding, after it has answered a plain message. Probes of refusals need this: a binding
    that refuses everything proves nothing."""
    await ctx.once(plain, "GRPC")
    binding = (await agent_for(ctx, "plain"))["GRPC"]
    assert isinstance(binding, GrpcBinding)
    return binding


def status_is(reply: A2aReply, *statuses: str) -> None:
    """Check that a call has one of the gRPC statuses. Raises Failed."""
    expected = f"the status {' or '.join(statuses)}"
    check(reply.exchange.rpc_status in statuses, expected, reply.exchange.rpc_status, reply.exchange)


async def unknown_task(ctx: Ctx) -> A2aReply:
    """Return the reply to GetTask with the id of a task that does not exist, by gRPC."""
    return await (await grpc_of(ctx)).call("GetTask", {"id": str(uuid4())})


@probes.add
async def grpc_has_all_methods(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    for method in service().methods:
        if _OPTIONAL.get(method, "") in ("", *ctx.capabilities):
            reply = await binding.call_bytes(method, binding.encode(method, {}))
            # In 1.0.0 UNIMPLEMENTED is also the status of errors of A2A, which have a reason.
            is_missing = reply.reason == "gRPC UNIMPLEMENTED"
            check(not is_missing, f"a method {method}", reply.exchange.rpc_status, reply.exchange)


@probes.add
async def grpc_unknown_task_is_not_found(ctx: Ctx) -> None:
    status_is(await unknown_task(ctx), "NOT_FOUND")


@probes.add
async def grpc_refused_cancel_is_a_failed_precondition(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    sent = await ctx.once(plain_task, "GRPC")
    status_is(await binding.call("CancelTask", {"id": sent.task["id"]}), *RPC_STATUSES["TASK_NOT_CANCELABLE"])


@probes.add
async def grpc_unsupported_operation_is_a_failed_precondition(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    sent = await ctx.once(plain_task, "GRPC")
    late = follow_up(sent.task, ctx.triggers["plain"].text)
    status_is(await binding.call("SendMessage", {"message": late}), *RPC_STATUSES["UNSUPPORTED_OPERATION"])


@probes.add
async def grpc_unsupported_version_is_a_failed_precondition(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    reply = await binding.call("GetTask", {"id": str(uuid4())}, headers={"A2A-Version": "9.9"})
    if reply.exchange.rpc_status == "NOT_FOUND":
        raise Prerequisite("the error VersionNotSupported", reply.reason, reply.exchange)
    status_is(reply, *RPC_STATUSES["VERSION_NOT_SUPPORTED"])


@probes.add
async def grpc_undeclared_push_is_a_failed_precondition(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    sent = await ctx.once(plain_task, "GRPC")
    reply = await create(binding, sent.task["id"], "https://example.com/babelgate/webhook")
    status_is(reply, *RPC_STATUSES["PUSH_NOTIFICATION_NOT_SUPPORTED"])


@probes.add
async def grpc_errors_say_their_reason(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    info = info_of(reply.exchange.json)
    check(dig(info, "reason") == "TASK_NOT_FOUND", "an ErrorInfo with the reason", reply.exchange.json, reply.exchange)
    check(dig(info, "domain") == DOMAIN, f"its domain {DOMAIN}", info, reply.exchange)


@probes.add
async def grpc_errors_say_their_code(ctx: Ctx) -> None:
    exchange = (await unknown_task(ctx)).exchange
    if exchange.header("grpc-status-details-bin") is None:
        raise Prerequisite("an error with a google.rpc.Status", exchange.json, exchange)
    code, expected = dig(exchange.json, "code"), exchange.header("grpc-status")
    check(str(code) == expected, f"the code {expected} in the google.rpc.Status", code, exchange)


async def send_invalid(ctx: Ctx, params: dict[str, Any]) -> A2aReply:
    """Call SendMessage with `params` that are intentionally invalid, and return the reply."""
    return await (await grpc_of(ctx)).call("SendMessage", params, is_valid=False)


@probes.add
async def grpc_send_without_message_is_refused(ctx: Ctx) -> None:
    status_is(await send_invalid(ctx, {"configuration": {}}), "INVALID_ARGUMENT")


@probes.add
async def grpc_message_without_its_id_is_refused(ctx: Ctx) -> None:
    status_is(await send_invalid(ctx, {"message": message("Hello", messageId="")}), "INVALID_ARGUMENT")


@probes.add
async def grpc_message_without_role_is_refused(ctx: Ctx) -> None:
    status_is(await send_invalid(ctx, {"message": message("Hello", role="ROLE_UNSPECIFIED")}), "INVALID_ARGUMENT")


@probes.add
async def grpc_message_without_parts_is_refused(ctx: Ctx) -> None:
    status_is(await send_invalid(ctx, {"message": message("Hello", parts=[])}), "INVALID_ARGUMENT")


@probes.add
async def grpc_part_without_content_is_refused(ctx: Ctx) -> None:
    parts = [{"metadata": {"babelgate": True}}]
    status_is(await send_invalid(ctx, {"message": message("Hello", parts=parts)}), "INVALID_ARGUMENT")


@probes.add
async def grpc_unknown_fields_are_ignored(ctx: Ctx) -> None:
    binding = await grpc_of(ctx)
    content = binding.encode("SendMessage", {"message": message(ctx.triggers["plain"].text)})
    reply = await binding.call_bytes("SendMessage", content + _UNKNOWN_FIELD)
    check(not reply.reason, "success: a field of a later version is ignored", reply.reason, reply.exchange)


@probes.add
async def grpc_stream_ends_with_ok(ctx: Ctx) -> None:
    streamed = await ctx.once(stream_message, "GRPC", "plain")
    exchange = streamed.exchange
    is_right = exchange.is_ended and exchange.rpc_status == "OK"
    check(is_right, "the status OK at the end of the stream", exchange.error or exchange.rpc_status, exchange)


def _other_binding(ctx: Ctx) -> str:
    """Return the name of a binding that is not gRPC. Raises NotApplicable if the agent has none."""
    name = next((each.name for each in ctx.target.bindings if each.name != "GRPC"), None)
    if name is None:
        raise NotApplicable("the agent has no other binding")
    return name


@probes.add
async def task_of_grpc_is_seen_by_http(ctx: Ctx) -> None:
    other = _other_binding(ctx)
    sent = await ctx.once(plain_task, "GRPC")
    await ctx.once(plain, other)
    await is_same(ctx, sent, other)


@probes.add
async def task_of_http_is_seen_by_grpc(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, _other_binding(ctx))
    await ctx.once(plain, "GRPC")
    await is_same(ctx, sent, "GRPC")

"""Probes that test A2A push notifications: the operations on their configs, and the deliveries."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import A2aReply, Binding, state_of
from babelgate.conformance.protocols.a2a.scenes import check_refusal, each_binding, final_reply, long_task, plain_task
from babelgate.conformance.verdict import NotObserved, Prerequisite, check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.receiver import Hook, receiver

probes: Final = Probes[A2aTarget]()

_PUBLIC_URL: Final = "https://example.com/babelgate/webhook"
"""URL at a host that RFC 2606 reserves for examples. The agent delivers nothing to it, because the tasks of these
configs have ended."""
_ADDRESS_WORDS: Final = re.compile(r"\b(?:url|host|address|resolved?|dns|private|loopback)\b", re.IGNORECASE)
_SECRET: Final = "babelgate-push-credentials"
_QUIET_SECONDS: Final = 1.0
"""Seconds to wait for a delivery that should not arrive. Chosen."""
_TOKEN: Final = "babelgate-push-token"


@dataclass(frozen=True, slots=True)
class Configured:
    binding: Binding
    task: str
    url: str
    config: Any
    exchange: Exchange


async def create(binding: Binding, task: str, url: str, **members: Any) -> A2aReply:
    return await binding.call("CreateTaskPushNotificationConfig", {"taskId": task, "url": url, **members})


async def fresh(ctx: Ctx, binding: str) -> A2aReply:
    """Send a plain message that creates a new task, and return the reply after the task has ended."""
    await ctx.once(plain_task, binding)
    return await final_reply(ctx, binding, "plain")


async def webhook(ctx: Ctx, binding: str) -> str:
    """Return a webhook URL for which the agent accepts a config: one on this machine, or else a public one. Raises
    NotObserved if the agent refuses both.

    Nothing is delivered to the URL, because the configs are tested with tasks that have ended.
    """
    sent = await fresh(ctx, binding)
    agent = await agent_for(ctx, "plain")
    near = f"http://{ctx.options.callback_host}:9/babelgate"
    reply = await create(agent[binding], sent.task["id"], near, id="babelgate-0")
    if not reply.reason:
        return near
    reply = await create(agent[binding], sent.task["id"], _PUBLIC_URL, id="babelgate-1")
    if reply.reason and is_about_the_url(reply.exchange):
        raise NotObserved(f"the agent refuses to call {near} and {_PUBLIC_URL}; allow one, or pass --callback-host")
    return _PUBLIC_URL


def is_about_the_url(exchange: Exchange) -> bool:
    """Return True if the error of a refused config mentions the webhook's address.

    Then an SSRF guard or a resolver has refused the address, and the agent may still support push notifications.
    """
    return (
        exchange.is_json and _ADDRESS_WORDS.search(json.dumps(dig(exchange.json, "error") or exchange.json)) is not None
    )


async def create_config(ctx: Ctx, binding: str) -> Configured:
    url = await ctx.once(webhook, binding)
    sent = await fresh(ctx, binding)
    agent = await agent_for(ctx, "plain")
    reply = await create(agent[binding], sent.task["id"], url, id=f"babelgate-{uuid4().hex[:8]}", token=_TOKEN)
    check(not reply.reason, "a push notification config is accepted", reply.reason, reply.exchange)
    return Configured(agent[binding], sent.task["id"], url, reply.result, reply.exchange)


async def list_configs(configured: Configured) -> list[Any]:
    reply = await configured.binding.call("ListTaskPushNotificationConfigs", {"taskId": configured.task})
    check(not reply.reason, "the configs of a task can be listed", reply.reason, reply.exchange)
    return as_list(dig(reply.result, "configs"))


@probes.add
@each_binding
async def config_is_taken(ctx: Ctx, binding: str) -> None:
    configured = await ctx.subject(create_config, binding)
    actual = dig(configured.config, "url")
    check(
        actual == configured.url, f"the config with its url, {configured.url}", configured.config, configured.exchange
    )


@probes.add
@each_binding
async def config_has_an_id(ctx: Ctx, binding: str) -> None:
    sent = await fresh(ctx, binding)
    agent = await agent_for(ctx, "plain")
    reply = await create(agent[binding], sent.task["id"], await ctx.once(webhook, binding))
    check(not reply.reason, "a config without an id is accepted", reply.reason, reply.exchange)
    check(bool(dig(reply.result, "id")), "the config has an id", reply.result, reply.exchange)


@probes.add
@each_binding
async def config_can_be_read(ctx: Ctx, binding: str) -> None:
    """Create two configs of a task and read the second by its id. A server that ignores the id would return the
    first."""
    await ctx.once(create_config, binding)
    configured = await create_config(ctx, binding)
    second = await create(configured.binding, configured.task, f"{configured.url}/2")
    if second.reason:
        raise Prerequisite("a second config", second.reason, second.exchange)
    expected = (dig(second.result, "id"), f"{configured.url}/2")
    params = {"taskId": configured.task, "id": str(expected[0])}
    reply = await configured.binding.call("GetTaskPushNotificationConfig", params)
    check(not reply.reason, "a config can be read", reply.reason, reply.exchange)
    actual = (dig(reply.result, "id"), dig(reply.result, "url"))
    check(actual == expected, f"id and url as they were set, {expected}", reply.result, reply.exchange)


@probes.add
@each_binding
async def config_is_listed(ctx: Ctx, binding: str) -> None:
    configured = await ctx.once(create_config, binding)
    ids = [dig(each, "id") for each in await list_configs(configured)]
    check(dig(configured.config, "id") in ids, f"the config {dig(configured.config, 'id')}", ids)


@probes.add
@each_binding
async def several_configs_are_kept(ctx: Ctx, binding: str) -> None:
    await ctx.once(create_config, binding)
    configured = await create_config(ctx, binding)
    second = await create(configured.binding, configured.task, f"{configured.url}/2", id="second")
    check(not second.reason, "a second config of a task is accepted", second.reason, second.exchange)
    ids = [dig(each, "id") for each in await list_configs(configured)]
    check(
        sorted(map(str, ids)) == sorted([str(dig(configured.config, "id")), "second"]), "both configs, each once", ids
    )


async def delete_config(ctx: Ctx, binding: str) -> tuple[Configured, A2aReply]:
    configured = await create_config(ctx, binding)
    params = {"taskId": configured.task, "id": str(dig(configured.config, "id"))}
    reply = await configured.binding.call("DeleteTaskPushNotificationConfig", params)
    check(not reply.reason, "a config can be deleted", reply.reason, reply.exchange)
    return configured, reply


@probes.add
@each_binding
async def deleted_config_is_gone(ctx: Ctx, binding: str) -> None:
    configured, _ = await ctx.subject(delete_config, binding)
    ids = [dig(each, "id") for each in await list_configs(configured)]
    check(dig(configured.config, "id") not in ids, f"no config {dig(configured.config, 'id')}", ids)


@probes.add
@each_binding
async def deleting_twice_is_deleting_once(ctx: Ctx, binding: str) -> None:
    configured, _ = await ctx.once(delete_config, binding)
    params = {"taskId": configured.task, "id": str(dig(configured.config, "id"))}
    reply = await configured.binding.call("DeleteTaskPushNotificationConfig", params)
    check(not reply.reason, "success, as the first time", reply.reason, reply.exchange)


@probes.add
@each_binding
async def config_of_an_unknown_task_is_refused(ctx: Ctx, binding: str) -> None:
    configured = await ctx.once(create_config, binding)
    check_refusal(await create(configured.binding, str(uuid4()), configured.url), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def unknown_config_is_refused(ctx: Ctx, binding: str) -> None:
    configured = await ctx.once(create_config, binding)
    params = {"taskId": configured.task, "id": str(uuid4())}
    check_refusal(await configured.binding.call("GetTaskPushNotificationConfig", params))


@probes.add
@each_binding
async def private_addresses_are_refused(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    await ctx.once(create_config, binding)
    agent = await agent_for(ctx, "plain")
    # Cloud providers serve credentials at this address to any process inside.
    check_refusal(await create(agent[binding], sent.task["id"], "http://169.254.169.254/latest/meta-data/"))


# Deliveries


@asynccontextmanager
async def pushed_task(ctx: Ctx, binding: str) -> AsyncGenerator[Hook]:
    """Start a task whose updates the agent delivers to this check, and yield the webhook with the deliveries. Raises
    NotObserved if the agent does not deliver to this machine."""
    agent = await agent_for(ctx, "plain")
    async with receiver(ctx.wire, ctx.options.callback_host, "PushNotification") as hook:
        config = {
            "url": hook.url,
            "token": _TOKEN,
            "authentication": {"scheme": "Bearer", "credentials": _SECRET},
        }
        params = {
            "message": message(ctx.triggers["plain"].text),
            "configuration": {"taskPushNotificationConfig": config},
        }
        reply = await agent[binding].call("SendMessage", params)
        if reply.reason:
            raise NotObserved(
                f"the agent does not push to {hook.url} ({reply.reason}); allow it, or pass --callback-host"
            )
        if reply.task is None:
            raise NotObserved("the agent answers with messages, which cause no push notifications", "plain")
        await hook.wait(1, ctx.options.timeout)
        yield hook


async def collect_deliveries(ctx: Ctx, binding: str) -> list[Exchange]:
    """Start a task and return the deliveries to its webhook, up to that with a terminal state."""
    async with pushed_task(ctx, binding) as hook:
        number = 1
        while await hook.wait(number, ctx.options.timeout):
            body = hook.deliveries[number - 1].request_json
            if "TASK_STATE" not in str(body) and "completed" not in str(body):
                number += 1
                continue
            state = state_of(dig(body, "task") or dig(body, "statusUpdate") or body).upper().rpartition("_")[2]
            if state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"):
                break
            number += 1
        return list(hook.deliveries)


async def first_delivery(ctx: Ctx, binding: str) -> Exchange:
    found = await ctx.once(collect_deliveries, binding)
    if not found:
        raise Prerequisite(f"a delivery within {ctx.options.timeout:g} s")
    return found[0]


@probes.add
@each_binding
async def updates_are_delivered(ctx: Ctx, binding: str) -> None:
    found = await ctx.subject(collect_deliveries, binding)
    check(bool(found), f"a delivery within {ctx.options.timeout:g} s")
    check(found[0].method == "POST", "a POST", found[0].method, found[0])


@probes.add
@each_binding
async def the_end_is_delivered(ctx: Ctx, binding: str) -> None:
    await first_delivery(ctx, binding)
    found = await ctx.once(collect_deliveries, binding)
    last = found[-1].request_json
    state = state_of(dig(last, "task") or dig(last, "statusUpdate") or last)
    is_end = state.upper().rpartition("_")[2] in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
    check(is_end, "a last delivery with the end of the task", last, found[-1])


@probes.add
@each_binding
async def deliveries_bear_the_credentials(ctx: Ctx, binding: str) -> None:
    first = await first_delivery(ctx, binding)
    actual = first.request_header("authorization")
    is_right = actual is not None and actual.lower() == f"bearer {_SECRET}"
    check(is_right, "Authorization with scheme and credentials of the config", actual, first)


@probes.add
@each_binding
async def deliveries_bear_the_token(ctx: Ctx, binding: str) -> None:
    first = await first_delivery(ctx, binding)
    actual = first.request_header("x-a2a-notification-token")
    check(actual == _TOKEN, "X-A2A-Notification-Token with the token of the config", actual, first)


@probes.add
@each_binding
async def deliveries_are_json(ctx: Ctx, binding: str) -> None:
    first = await first_delivery(ctx, binding)
    kind = (first.request_header("content-type") or "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    check(is_json, "Content-Type is JSON", kind, first)


@probes.add
@each_binding
async def a_config_may_come_later(ctx: Ctx, binding: str) -> None:
    async with (
        receiver(ctx.wire, ctx.options.callback_host, "PushNotification") as hook,
        long_task(ctx, binding) as long,
    ):
        reply = await create(long.binding, long.id, hook.url)
        if reply.reason:
            raise NotObserved(f"the agent does not push to {hook.url} ({reply.reason})")
        await ctx.once(first_delivery, binding)
        await long.binding.call("CancelTask", {"id": long.id})
        came = await hook.wait(1, ctx.options.timeout)
        check(came, f"a delivery within {ctx.options.timeout:g} s of the cancel")


@probes.add
@each_binding
async def deleted_config_is_not_pushed_to(ctx: Ctx, binding: str) -> None:
    """Delete one of the two configs of a task, and check that its webhook gets no delivery. The delivery to the other
    webhook shows when the deleted one would have been called."""
    await ctx.once(first_delivery, binding)
    await ctx.once(delete_config, binding)
    async with (
        receiver(ctx.wire, ctx.options.callback_host, "PushNotification") as deleted_hook,
        receiver(ctx.wire, ctx.options.callback_host, "PushNotification") as kept_hook,
        long_task(ctx, binding) as long,
    ):
        configured = await create(long.binding, long.id, deleted_hook.url, id="gone")
        other = await create(long.binding, long.id, kept_hook.url, id="kept")
        if configured.reason or other.reason:
            raise Prerequisite("two configs of a task", configured.reason or other.reason, other.exchange)
        id = dig(configured.result, "id")
        if not isinstance(id, str):
            raise Prerequisite("a config with an id", configured.result, configured.exchange)
        params = {"taskId": long.id, "id": id}
        deleted = await long.binding.call("DeleteTaskPushNotificationConfig", params)
        if deleted.reason:
            raise Prerequisite("a config that can be deleted", deleted.reason, deleted.exchange)
        before = len(deleted_hook.deliveries)
        await long.binding.call("CancelTask", {"id": long.id})
        if not await kept_hook.wait(1, ctx.options.timeout):
            raise Prerequisite("a delivery to the other config of the task", None, other.exchange)
        came = await deleted_hook.wait(before + 1, _QUIET_SECONDS)
        check(not came, "no delivery to a deleted config", None, (deleted_hook.deliveries or [None])[-1])


@probes.add
@each_binding
async def undeclared_push_is_refused(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    check_refusal(await create(agent[binding], sent.task["id"], _PUBLIC_URL), "PUSH_NOTIFICATION_NOT_SUPPORTED")

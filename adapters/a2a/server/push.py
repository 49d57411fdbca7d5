"""Methods for push notification configs, the webhooks of A2A: URLs to which the updates of a task are posted, in a
dialect."""

from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.a2a.wire.requests import Push, PushListing
from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.kit.server.caller import run_headers
from babelgate.canonical import FaultCode, FaultError, Webhook
from babelgate.canonical.value import JsonObject

from .call import Answer, Call, find_task

MAX_ID = 256


def make_webhook(call: Call, dialect: Dialect, push: Push, task_id: str | None = None) -> Webhook:
    """Return the webhook for a push notification config. `task_id` is None for a config that arrives with a message.

    The webhook stores the dialect, so a client that registered in 0.3 always receives pushes of 0.3. Raises invalid for
    an id that is too long, or a token that is not printable ASCII.
    """
    for text in (push.token, push.credentials, *push.schemes):
        # These values are sent as HTTP headers.
        if text is not None and not (text.isascii() and text.isprintable()):
            raise FaultError(
                FaultCode.INVALID, "The token, scheme and credentials of a push config must be printable ASCII."
            )
    if push.config_id is not None and (len(push.config_id) > MAX_ID or "\0" in push.config_id):
        raise FaultError(
            FaultCode.INVALID, f"The id of a push config must have at most {MAX_ID} characters, and no NUL."
        )
    config: JsonObject = {
        "token": push.token,
        "schemes": list(push.schemes),
        "credentials": push.credentials,
        # A push names a large file by its URL, and there is no request from which to take the base URL then.
        "base_url": call.caller.base_url,
    }
    # Clients send the same config with each message of a task (`ClientConfig.push_notification_configs` of a2a-sdk
    # 0.3): without an id, equal contents are the same config.
    unnamed = uuid5(NAMESPACE_URL, json_text([push.url, config])) if task_id is None else uuid4()
    return Webhook(
        webhook_id=push.config_id or str(unnamed),
        task_id=task_id or "",
        dialect=dialect.webhook,
        url=push.url,
        config=config,
    )


def _push(webhook: Webhook) -> Push:
    config: dict[str, Any] = webhook.config
    return Push(
        url=webhook.url,
        task_id=webhook.task_id,
        config_id=webhook.webhook_id,
        token=config.get("token"),
        schemes=tuple(config.get("schemes") or ()),
        credentials=config.get("credentials"),
    )


async def create(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    push = dialect.decode_push(params)
    task = await find_task(call, push.task_id)
    webhook = make_webhook(call, dialect, push, task.task_id)
    await call.hub.set_webhook(call.principal, webhook)
    return Answer(dialect.encode_push(_push(webhook)), run_headers(task))


async def _configs(call: Call, task_id: str) -> list[Push]:
    """Return the push notification configs of a task, those of both versions: a client of either may list and delete
    all of them."""
    webhooks = await call.hub.reads.webhooks(call.principal, task_id)
    # a2a-sdk 1.3.0 always pushes in the form of 1.0, which its clients of 0.3 cannot read.
    return [_push(webhook) for webhook in webhooks if webhook.dialect.startswith("a2a-")]


async def get(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    """Return a push notification config. Raises TASK_NOT_FOUND for an unknown task, and for an unknown config of a
    task."""
    name = dialect.decode_push_name(params)
    task = await find_task(call, name.task_id)
    for push in await _configs(call, task.task_id):
        # a2a-sdk 0.3.26 answers an unknown id with the first config; here None is the only wildcard.
        if name.config_id in (None, push.config_id):
            return Answer(dialect.encode_push(push), run_headers(task))
    # A2A has no error code for an unknown config: a2a-sdk 1.3.0 also answers -32001.
    raise a2a_error("TASK_NOT_FOUND", "The task has no such push notification config.")


async def list_configs(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    ask = dialect.decode_push_list(params)
    task = await find_task(call, ask.task_id)
    pushes = await _configs(call, task.task_id)
    start = _offset(ask)
    page = pushes[start : start + ask.page_size]
    rest = len(pushes) > start + ask.page_size
    return Answer(dialect.encode_pushes(page, str(start + ask.page_size) if rest else ""), run_headers(task))


def _offset(ask: PushListing) -> int:
    if ask.page_token is None:
        return 0
    if (offset := parse_integer(ask.page_token, 9)) is None:
        raise FaultError(
            FaultCode.INVALID, "pageToken: Not a page token of this server: send the nextPageToken of the page before."
        )
    return offset


async def delete(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    """Delete a push notification config. An unknown id is not an error (specification 1.0, 3.1.10). Raises
    TASK_NOT_FOUND for an unknown task, and invalid without an id."""
    name = dialect.decode_push_name(params)
    task = await find_task(call, name.task_id)
    if name.config_id is None:
        # Specification 0.3, 7.8: required, where a get may leave it out.
        raise FaultError(FaultCode.INVALID, "pushNotificationConfigId: The id of the config to delete is missing.")
    if any(push.config_id == name.config_id for push in await _configs(call, task.task_id)):
        await call.hub.delete_webhook(call.principal, task.task_id, name.config_id)
    return Answer(None, run_headers(task))

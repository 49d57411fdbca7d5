"""The official A2A 0.3 client, driven by JSON lines (see `lines`).

Options: base_url (of the card), card_path, transport (JSONRPC or HTTP+JSON), headers. Arguments and results are JSON of
0.3, over both transports. An event is {"message": …}, or {"task": …, "update": …} as the client folds them.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
from a2a import types as t
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.client.middleware import ClientCallContext
from lines import answer_calls, options, verification
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def dump_event(event: Any) -> Any:
    if isinstance(event, t.Message):
        return {"message": dump(event)}
    task, update = event
    return {"task": dump(task)} | ({"update": dump(update)} if update else {})


def with_headers(headers: dict[str, str] | None) -> ClientCallContext:
    return ClientCallContext(state={"http_kwargs": {"headers": headers}} if headers else {})


class Calls:
    """Calls of the test, one method each. `headers` are sent with that call only."""

    def __init__(self, http: httpx.AsyncClient, initial_options: dict[str, Any]) -> None:
        self._http = http
        self._options = initial_options
        self._fetched_card: t.AgentCard | None = None

    async def use(self, **changed: Any) -> None:
        """Change the options, for example to another agent. This is faster than a new program."""
        self._options |= changed
        self._fetched_card = None

    async def _resolve(self, path: str | None) -> t.AgentCard:
        return await A2ACardResolver(self._http, self._options["base_url"]).get_agent_card(relative_card_path=path)

    async def _client(self, **config_options: Any) -> Client:
        if self._fetched_card is None:
            self._fetched_card = await self._resolve(self._options.get("card_path"))
        transports = [self._options.get("transport", "JSONRPC")]
        config = ClientConfig(httpx_client=self._http, supported_transports=transports, **config_options)
        return ClientFactory(config).create(self._fetched_card)

    async def card(self, path: str | None = None) -> Any:
        return dump(await self._resolve(path))

    async def extended_card(self, headers: dict[str, str] | None = None) -> Any:
        client = await self._client()
        return dump(await client.get_card(context=with_headers(headers)))

    async def send(self, headers: dict[str, str] | None = None, **request: Any) -> Any:
        """Send without streaming. The answer is {"task": …} or {"message": …}."""
        client = await self._client(streaming=False)
        return [event async for event in self._sent(client, request, headers)][-1]

    async def send_nowait(self, headers: dict[str, str] | None = None, **request: Any) -> Any:
        client = await self._client(streaming=False, polling=True)
        return [event async for event in self._sent(client, request, headers)][-1]

    async def stream(self, headers: dict[str, str] | None = None, **request: Any) -> AsyncIterator[Any]:
        async for event in self._sent(await self._client(), request, headers):
            yield event

    async def _sent(
        self, client: Client, request: dict[str, Any], headers: dict[str, str] | None
    ) -> AsyncIterator[Any]:
        configuration = request.pop("configuration", None)
        metadata = request.pop("metadata", None)
        async for event in client.send_message(
            read_message(**request),
            configuration=t.MessageSendConfiguration.model_validate(configuration) if configuration else None,
            request_metadata=metadata,
            context=with_headers(headers),
        ):
            yield dump_event(event)

    async def get_task(self, id: str, history_length: int | None = None) -> Any:
        client = await self._client()
        return dump(await client.get_task(t.TaskQueryParams(id=id, history_length=history_length)))

    async def cancel(self, id: str) -> Any:
        client = await self._client()
        return dump(await client.cancel_task(t.TaskIdParams(id=id)))

    async def subscribe(self, id: str, headers: dict[str, str] | None = None) -> AsyncIterator[Any]:
        client = await self._client()
        async for event in client.resubscribe(t.TaskIdParams(id=id), context=with_headers(headers)):
            yield dump_event(event)

    async def push_set(self, task_id: str, **config: Any) -> Any:
        """Set a push configuration. Its members have their JSON names: id, url, token, authentication."""
        client = await self._client()
        wanted = t.PushNotificationConfig.model_validate(config)
        return dump(
            await client.set_task_callback(
                t.TaskPushNotificationConfig(task_id=task_id, push_notification_config=wanted)
            )
        )

    async def push_get(self, task_id: str, id: str | None = None) -> Any:
        client = await self._client()
        wanted = t.GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id=id)
        return dump(await client.get_task_callback(wanted))


def read_message(
    text: str | None = None,
    parts: list[Any] | None = None,
    message: dict[str, Any] | None = None,
    task_id: str | None = None,
    context_id: str | None = None,
) -> t.Message:
    """Return the message for a text, parts or a whole message. Everything else is optional."""
    members = message or {"parts": parts if parts is not None else [{"kind": "text", "text": text}]}
    names = {"taskId": task_id, "contextId": context_id}
    members = {"messageId": str(uuid.uuid4()), "role": "user"} | {k: v for k, v in names.items() if v} | members
    return t.Message.model_validate(members)


def fault_data(error: Exception) -> Any:
    if isinstance(error, A2AClientJSONRPCError):
        return dump(error.error)
    if isinstance(error, A2AClientHTTPError):
        return {"status_code": error.status_code}
    return None


async def main() -> None:
    # trust_env=False: requests between two local programs must not use a proxy of this machine.
    initial_options = options()
    verify = verification()
    async with httpx.AsyncClient(
        headers=initial_options.get("headers"), trust_env=False, verify=verify, timeout=60
    ) as http:
        calls = Calls(http, initial_options)
        names = [name for name in dir(calls) if not name.startswith("_")]
        await answer_calls({name: getattr(calls, name) for name in names}, fault_data)


if __name__ == "__main__":
    asyncio.run(main())

"""The official A2A 1.0 client, driven by JSON lines (see `lines`).

Options: base_url (of the card), card_path, transport (JSONRPC, HTTP+JSON or GRPC), version ("1.0" or "0.3": use only
the card's interfaces of that version), headers. Arguments and results are JSON of A2A 1.0.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import MessageToDict, ParseDict
from lines import answer_calls, options, verification


def with_headers(headers: dict[str, str] | None) -> ClientCallContext:
    return ClientCallContext(service_parameters=headers)


class Credentials(CredentialService):
    """Credentials by the name of their security scheme."""

    def __init__(self, by_scheme: dict[str, str]) -> None:
        self._by_scheme = by_scheme

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str | None:
        return self._by_scheme.get(security_scheme_name)


class Calls:
    """Calls of the test, one method each. `headers` are sent with that call only."""

    def __init__(self, http: httpx.AsyncClient, initial_options: dict[str, Any]) -> None:
        self._http = http
        self._options = initial_options
        self._fetched_card: pb.AgentCard | None = None

    async def use(self, **changed: Any) -> None:
        """Change the options, for example to another agent. This is faster than a new program."""
        self._options |= changed
        self._fetched_card = None

    async def _resolve(self, path: str | None) -> pb.AgentCard:
        return await A2ACardResolver(self._http, self._options["base_url"]).get_agent_card(relative_card_path=path)

    async def _card(self) -> pb.AgentCard:
        if self._fetched_card is None:
            card = await self._resolve(self._options.get("card_path"))
            if wanted := self._options.get("version"):
                chosen = [face for face in card.supported_interfaces if face.protocol_version.startswith(wanted)]
                del card.supported_interfaces[:]
                card.supported_interfaces.extend(chosen)
            self._fetched_card = card
        return self._fetched_card

    async def _client(self, **config_options: Any) -> Client:
        bindings = [self._options.get("transport", "JSONRPC")]
        if bindings == ["GRPC"]:
            import grpc.aio  # only in one of the two environments of this program

            config_options["grpc_channel_factory"] = grpc.aio.insecure_channel
        config = ClientConfig(httpx_client=self._http, supported_protocol_bindings=bindings, **config_options)
        interceptors = [AuthInterceptor(Credentials(self._options.get("credentials", {})))]
        return ClientFactory(config).create(await self._card(), interceptors=interceptors)

    async def card(self, path: str | None = None) -> Any:
        return MessageToDict(await self._resolve(path))

    async def extended_card(self, headers: dict[str, str] | None = None) -> Any:
        client = await self._client()
        return MessageToDict(
            await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest(), context=with_headers(headers))
        )

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
        async for event in client.send_message(read_request(**request), context=with_headers(headers)):
            yield MessageToDict(event)

    async def get_task(self, id: str, history_length: int | None = None) -> Any:
        client = await self._client()
        return MessageToDict(await client.get_task(pb.GetTaskRequest(id=id, history_length=history_length)))

    async def list_tasks(self, **filters: Any) -> Any:
        """List tasks. Filters have their JSON names: contextId, status, pageSize, pageToken, historyLength, …"""
        client = await self._client()
        return MessageToDict(await client.list_tasks(ParseDict(filters, pb.ListTasksRequest())))

    async def cancel(self, id: str) -> Any:
        client = await self._client()
        return MessageToDict(await client.cancel_task(pb.CancelTaskRequest(id=id)))

    async def subscribe(self, id: str, headers: dict[str, str] | None = None) -> AsyncIterator[Any]:
        client = await self._client()
        async for event in client.subscribe(pb.SubscribeToTaskRequest(id=id), context=with_headers(headers)):
            yield MessageToDict(event)

    async def push_set(self, **config: Any) -> Any:
        """Set a push configuration. Its members have their JSON names: taskId, id, url, token, authentication."""
        client = await self._client()
        wanted = ParseDict(config, pb.TaskPushNotificationConfig())
        return MessageToDict(await client.create_task_push_notification_config(wanted))

    async def push_get(self, task_id: str, id: str) -> Any:
        client = await self._client()
        wanted = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id=id)
        return MessageToDict(await client.get_task_push_notification_config(wanted))

    async def push_list(self, task_id: str) -> Any:
        client = await self._client()
        wanted = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
        return MessageToDict(await client.list_task_push_notification_configs(wanted))

    async def push_delete(self, task_id: str, id: str) -> None:
        client = await self._client()
        await client.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=id)
        )


def read_request(
    text: str | None = None,
    parts: list[Any] | None = None,
    message: dict[str, Any] | None = None,
    task_id: str | None = None,
    context_id: str | None = None,
    configuration: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> pb.SendMessageRequest:
    """Return the request for a text, parts or a whole message. Everything else is optional."""
    members = message or {"parts": parts if parts is not None else [{"text": text}]}
    names = {"taskId": task_id, "contextId": context_id}
    members = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER"} | {k: v for k, v in names.items() if v} | members
    return ParseDict(
        {"message": members, "configuration": configuration or {}, "metadata": metadata or {}}, pb.SendMessageRequest()
    )


def fault_data(error: Exception) -> Any:
    """Return the data of a fault. The code represents the class of the exception, as on the wire."""
    if not isinstance(error, A2AError):
        return None
    return {
        "code": JSON_RPC_ERROR_CODE_MAP.get(type(error)),
        "data": error.data,
        "status_code": getattr(error, "status_code", None),
    }


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

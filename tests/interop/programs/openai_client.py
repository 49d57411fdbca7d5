"""The official OpenAI client, driven by JSON lines (see `lines`). Options: base_url, headers.

Each answer is validated again, because the client builds its models without validation.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from lines import answer_calls, options, verification
from openai import APIStatusError, AsyncOpenAI, OpenAI
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import Conversation, ConversationItem
from openai.types.responses import Response, ResponsesServerEvent, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, create_model

EVENT: Any = TypeAdapter(ResponseStreamEvent)
ITEM: Any = TypeAdapter(ConversationItem)
Turns = list[dict[str, Any]]
Events = list[Any]
MESSAGE: Any = TypeAdapter(ResponsesServerEvent)
ENDS = ("response.completed", "response.incomplete", "response.failed", "response.steer.failed", "error")
SOCKET: Any = {"proxy": None}
"""Options of WebSockets: no proxy, as for the HTTP client below."""
TYPES = {"integer": int, "string": str, "number": float, "boolean": bool}


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", exclude_unset=True, warnings=False)


def checked(model: BaseModel, kind: type[BaseModel]) -> Any:
    """Return the model as JSON, after a check that it is valid for the client's own type."""
    value = dump(model)
    kind.model_validate(value)
    return value


def checked_event(event: BaseModel) -> Any:
    value = dump(event)
    EVENT.validate_python(value)
    return value


def checked_item(item: BaseModel) -> Any:
    value = dump(item)
    ITEM.validate_python(value)
    return value


def checked_message(event: BaseModel) -> Any:
    value = dump(event)
    MESSAGE.validate_python(value)
    return value


def filled(turn: dict[str, Any], events: list[Any]) -> dict[str, Any]:
    """Return the body of a turn, with a number as `previous_response_id` replaced by the id of the response with that
    index."""
    previous = turn.get("previous_response_id")
    ids = [event["response"]["id"] for event in events if event["type"] == "response.created"]
    return {**turn, "previous_response_id": ids[previous]} if isinstance(previous, int) else turn


class Calls:
    """Calls of the test, one method each."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    async def models(self) -> Any:
        return [checked(model, Model) async for model in self._client.models.list()]

    async def model(self, name: str) -> Any:
        return checked(await self._client.models.retrieve(name), Model)

    async def create(self, **body: Any) -> Any:
        return checked(await self._client.chat.completions.create(**body), ChatCompletion)

    async def create_headers(self, **body: Any) -> Any:
        raw = await self._client.chat.completions.with_raw_response.create(**body)
        return dict(raw.headers)

    async def chunks(self, **body: Any) -> AsyncIterator[Any]:
        async with await self._client.chat.completions.create(**body, stream=True) as chunks:
            async for chunk in chunks:
                yield checked(chunk, ChatCompletionChunk)

    async def stream(self, **body: Any) -> AsyncIterator[Any]:
        """Stream with the client's helper: its events, then the completion that it has accumulated."""
        async with self._client.chat.completions.stream(**body) as events:
            async for event in events:
                if event.type != "chunk":
                    yield {"type": event.type}
            yield {"type": "final", "completion": dump(await events.get_final_completion())}

    async def parse(self, members: dict[str, str], **body: Any) -> Any:
        """Request a completion whose response_format is a model with these members."""
        wanted: Any = create_model("Wanted", **{name: (TYPES[kind], ...) for name, kind in members.items()})
        completion = await self._client.chat.completions.parse(**body, response_format=wanted)
        parsed = completion.choices[0].message.parsed
        return None if parsed is None else parsed.model_dump()

    async def retrieve(self, completion_id: str) -> Any:
        return checked(await self._client.chat.completions.retrieve(completion_id), ChatCompletion)

    async def list(self, **query: Any) -> Any:
        """Return all completions, page by page."""
        return [checked(each, ChatCompletion) async for each in self._client.chat.completions.list(**query)]

    async def update(self, completion_id: str, metadata: Any) -> Any:
        return checked(await self._client.chat.completions.update(completion_id, metadata=metadata), ChatCompletion)

    async def delete(self, completion_id: str) -> Any:
        return dump(await self._client.chat.completions.delete(completion_id))

    # Responses

    async def respond(self, **body: Any) -> Any:
        return checked(await self._client.responses.create(**body), Response)

    async def response_events(self, **body: Any) -> AsyncIterator[Any]:
        async with await self._client.responses.create(**body, stream=True) as events:
            async for event in events:
                yield checked_event(event)

    async def response_stream(self, **body: Any) -> AsyncIterator[Any]:
        """Stream with the client's helper: its events, then the response that it has accumulated."""
        async with self._client.responses.stream(**body) as events:
            async for event in events:
                yield {"type": event.type}
            yield {"type": "final", "response": dump(await events.get_final_response())}

    async def parse_response(self, members: dict[str, str], **body: Any) -> Any:
        wanted: Any = create_model("Wanted", **{name: (TYPES[kind], ...) for name, kind in members.items()})
        response = await self._client.responses.parse(**body, text_format=wanted)
        return None if response.output_parsed is None else response.output_parsed.model_dump()

    async def get_response(self, response_id: str) -> Any:
        return checked(await self._client.responses.retrieve(response_id), Response)

    async def replay_response(self, response_id: str, **query: Any) -> AsyncIterator[Any]:
        async with await self._client.responses.retrieve(response_id, stream=True, **query) as events:
            async for event in events:
                yield checked_event(event)

    async def cancel_response(self, response_id: str) -> Any:
        return checked(await self._client.responses.cancel(response_id), Response)

    async def delete_response(self, response_id: str) -> Any:
        return await self._client.responses.delete(response_id)

    async def input_items(self, response_id: str, **query: Any) -> Any:
        return [dump(each) async for each in self._client.responses.input_items.list(response_id, **query)]

    # Responses over a WebSocket

    async def turns(self, turns: Turns) -> AsyncIterator[Any]:
        """Yield the events of one turn after the other. A turn with `steer` steers the running response."""
        async with self._client.responses.connect(websocket_connection_options=SOCKET) as connection:
            events: Events = []
            for turn in turns:
                if "steer" in turn:
                    await connection.response.steer(**turn["steer"])
                else:
                    await connection.response.create(**filled(turn, events))
                async for event in connection:
                    events.append(checked_message(event))
                    yield events[-1]
                    if event.type in ENDS:
                        break

    async def turns_in_a_thread(self, turns: Turns) -> Any:
        """Take the turns with the blocking client, in a thread."""

        def talk() -> Any:
            events: Events = []
            with (
                OpenAI(base_url=options()["base_url"], api_key=options().get("key", "nothing")) as client,
                client.responses.connect(websocket_connection_options=SOCKET) as connection,
            ):
                for turn in turns:
                    connection.response.create(**filled(turn, events))
                    for event in connection:
                        events.append(checked_message(event))
                        if event.type in ENDS:
                            break
            return events

        return await asyncio.to_thread(talk)

    # Conversations

    async def create_conversation(self, **body: Any) -> Any:
        return checked(await self._client.conversations.create(**body), Conversation)

    async def update_conversation(self, conversation_id: str, metadata: dict[str, str]) -> Any:
        return checked(await self._client.conversations.update(conversation_id, metadata=metadata), Conversation)

    async def get_conversation(self, conversation_id: str) -> Any:
        return checked(await self._client.conversations.retrieve(conversation_id), Conversation)

    async def delete_conversation(self, conversation_id: str) -> Any:
        return dump(await self._client.conversations.delete(conversation_id))

    async def conversation_items(self, conversation_id: str, **query: Any) -> Any:
        """Return all items, page by page."""
        items = self._client.conversations.items.list(conversation_id, **query)
        return [checked_item(each) async for each in items]

    async def add_items(self, conversation_id: str, items: Any) -> Any:
        created = await self._client.conversations.items.create(conversation_id, items=items)
        return [checked_item(each) for each in created.data]

    async def get_item(self, conversation_id: str, item_id: str) -> Any:
        return checked_item(await self._client.conversations.items.retrieve(item_id, conversation_id=conversation_id))

    async def delete_item(self, conversation_id: str, item_id: str) -> Any:
        conversation = await self._client.conversations.items.delete(item_id, conversation_id=conversation_id)
        return checked(conversation, Conversation)


def fault_data(error: Exception) -> Any:
    if not isinstance(error, APIStatusError):
        return getattr(error, "body", None)
    tries = error.response.request.headers.get("x-stainless-retry-count")
    return {"status": error.status_code, "tries": tries, "body": error.body}


async def main() -> None:
    # trust_env=False: requests between two local programs must not use a proxy of this machine.
    http = httpx2.AsyncClient(trust_env=False, verify=verification(), timeout=60)
    async with AsyncOpenAI(
        base_url=options()["base_url"], api_key=options().get("key", "nothing"), http_client=http
    ) as client:
        calls = Calls(client)
        names = [name for name in dir(calls) if not name.startswith("_")]
        await answer_calls({name: getattr(calls, name) for name in names}, fault_data)


if __name__ == "__main__":
    asyncio.run(main())

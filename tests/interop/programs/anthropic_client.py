"""The official Anthropic client, driven by JSON lines (see `lines`). Options: base_url, key.

Each answer is validated again, because the client builds its models without validation.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from anthropic import APIStatusError, AsyncAnthropic
from anthropic.types import Message, ModelInfo, RawMessageStreamEvent
from lines import answer_calls, options
from pydantic import BaseModel, TypeAdapter

EVENT: Any = TypeAdapter(RawMessageStreamEvent)


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", exclude_unset=True, warnings=False)


def checked(model: BaseModel, kind: type[BaseModel]) -> Any:
    """Return the model as JSON, after a check that it is valid for the client's own type."""
    value = dump(model)
    kind.model_validate(value)
    return value


class Calls:
    """Calls of the test, one method each."""

    def __init__(self, client: AsyncAnthropic) -> None:
        self._client = client

    async def models(self) -> Any:
        return [checked(model, ModelInfo) async for model in self._client.models.list()]

    async def model(self, name: str) -> Any:
        return checked(await self._client.models.retrieve(name), ModelInfo)

    async def create(self, **body: Any) -> Any:
        return checked(await self._client.messages.create(**body), Message)

    async def parse(self, **body: Any) -> Any:
        """Return a message whose answer the client has to parse, with agents' own blocks unchecked."""
        return dump(await self._client.messages.create(**body))

    async def events(self, **body: Any) -> AsyncIterator[Any]:
        """Yield the events of a stream, and then the message that the client has built from them."""
        async with self._client.messages.stream(**body) as stream:
            async for event in stream:
                if event.type in ("message_start", "content_block_start", "content_block_delta", "message_stop"):
                    yield {"type": event.type}
            yield checked(await stream.get_final_message(), Message)

    async def raw(self, **body: Any) -> AsyncIterator[Any]:
        async for event in await self._client.messages.create(stream=True, **body):
            value = dump(event)
            EVENT.validate_python(value)
            yield value

    async def count(self, **body: Any) -> Any:
        return dump(await self._client.messages.count_tokens(**body))


def fault_data(error: Exception) -> Any:
    if not isinstance(error, APIStatusError):
        return None
    return {"status": error.status_code, "body": error.body, "request_id": error.request_id}


async def main() -> None:
    key = options().get("key", "nothing")
    async with AsyncAnthropic(base_url=options()["base_url"], api_key=key) as client:
        calls = Calls(client)
        named = {name: getattr(calls, name) for name in vars(Calls) if not name.startswith("_")}
        await answer_calls(named, fault_data)


asyncio.run(main())

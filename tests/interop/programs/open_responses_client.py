"""The strict client of Open Responses, driven by JSON lines (see `lines`). Options: base_url, key.

It raises for anything that is not in the schema of 2026-04-24, and for events out of order.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
from lines import answer_calls, options
from openresponses import AsyncOpenResponses
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)


class Calls:
    """Calls of the test, one method each."""

    def __init__(self, client: AsyncOpenResponses) -> None:
        self._client = client

    async def compact(self, **body: Any) -> Any:
        return dump(await self._client.responses.compact(body))

    async def turns(self, turns: list[dict[str, Any]]) -> AsyncIterator[Any]:
        """Send each body over one WebSocket, and yield its response or error.

        A number as `previous_response_id` is replaced by the id of the response with that index.
        """
        ids: list[Any] = []
        async with self._client.websocket() as socket:
            for body in turns:
                previous = body.get("previous_response_id")
                named = {"previous_response_id": ids[previous]} if isinstance(previous, int) else {}
                turn = await socket.create({**body, **named})
                kinds = [event.type async for event in turn]
                ids.append(turn.response_id)
                if turn.error is not None:
                    yield dump(turn.error)
                else:
                    yield {"type": kinds[-1], "response": dump(turn.final_response)}


async def main() -> None:
    # Requests between two local programs must not use a proxy. For WebSockets the client reads the environment itself.
    os.environ["no_proxy"] = "*"
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        AsyncOpenResponses(base_url=options()["base_url"], api_key=options()["key"], http_client=http) as client,
    ):
        calls = Calls(client)
        names = ("compact", "turns")
        await answer_calls({name: getattr(calls, name) for name in names}, lambda error: None)


if __name__ == "__main__":
    asyncio.run(main())

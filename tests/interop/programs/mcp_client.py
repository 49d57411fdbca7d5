"""The official MCP client, driven by JSON lines (see `lines`).

Options: base_url, mode (`legacy`, `auto`), and `answers`, the content of each form by its message. Without `answers`
the client declares that it cannot show forms.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
from lines import answer_calls, options
from mcp import Client, MCPError
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Calls:
    """Calls of the test, one method each."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def version(self) -> str:
        return self._client.protocol_version

    async def tools(self) -> Any:
        return [dump(tool) for tool in (await self._client.list_tools()).tools]

    async def call(self, name: str, **arguments: Any) -> Any:
        return dump(await self._client.call_tool(name, arguments))

    async def follow(self, name: str, **arguments: Any) -> AsyncIterator[Any]:
        """Yield progress, then the result."""
        lines: asyncio.Queue[Any] = asyncio.Queue()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            await lines.put({"progress": progress, "message": message})

        async def whole() -> None:
            result = await self._client.call_tool(name, arguments, progress_callback=note)
            await lines.put({"result": dump(result)})

        calling = asyncio.ensure_future(whole())
        try:
            while True:
                line = await lines.get()
                yield line
                if "result" in line:
                    return
        finally:
            calling.cancel()
            await asyncio.wait([calling])


async def main() -> None:
    settings = options()
    answers = settings.get("answers")

    async def fill(ctx: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        content = answers[params.message]
        if content is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content=content)

    callback = None if answers is None else fill
    async with Client(settings["base_url"], mode=settings["mode"], elicitation_callback=callback) as client:
        calls = Calls(client)
        methods = {name: getattr(calls, name) for name in ("version", "tools", "call", "follow")}
        await answer_calls(methods, lambda error: error.code if isinstance(error, MCPError) else None)


if __name__ == "__main__":
    asyncio.run(main())

"""The official LangGraph client, driven by JSON lines (see `lines`). Options: base_url, headers, api_key, sync.

A call names a method of one of its parts, for example `threads.create`, with its arguments. Each part of a stream is an
event `{event, data, id}`, or the client's own form of it if `version` selects one. With `on_run_created`, the argument
of that callback is a separate event `{created}`. With `sync` the client is the blocking one, in a thread.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import APIStatusError
from lines import answer_calls, options

NOUNS = ("assistants", "threads", "runs", "crons", "store")
STREAMS = ("runs.stream", "runs.join_stream", "threads.join_stream")
ENDED = object()


def dump(part: Any) -> Any:
    return part if isinstance(part, dict) else {"event": part.event, "data": part.data, "id": part.id}


def bound(method: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    """Return the method bound to its arguments, some of which are positional-only."""
    parameters = inspect.signature(method).parameters.values()
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY]
    first = [arguments.pop(name) for name in positional if name in arguments]
    return lambda: method(*first, **arguments)


async def in_thread(parts: Iterator[Any]) -> AsyncIterator[Any]:
    while (part := await asyncio.to_thread(next, parts, ENDED)) is not ENDED:
        yield part


def streamed(method: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    async def call(**arguments: Any) -> AsyncIterator[Any]:
        created: list[Any] = []
        if arguments.pop("on_run_created", False):
            arguments["on_run_created"] = created.append
        parts = bound(method, arguments)()
        if inspect.isawaitable(parts):
            parts = await parts
        async for part in parts if hasattr(parts, "__aiter__") else in_thread(parts):
            while created:
                yield {"created": created.pop()}
            yield dump(part)

    return call


def called(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        ready = bound(method, arguments)
        return await ready() if inspect.iscoroutinefunction(method) else await asyncio.to_thread(ready)

    return call


def calls(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for noun in NOUNS:
        part = getattr(client, noun)
        for name in dir(part):
            if not name.startswith("_") and callable(method := getattr(part, name)):
                full = f"{noun}.{name}"
                found[full] = streamed(method) if full in STREAMS else called(method)
    return found


def fault_data(error: Exception) -> Any:
    if isinstance(error, APIStatusError):
        return {"status": error.status_code, "body": error.body}
    if isinstance(error, httpx.HTTPStatusError):
        return {"status": error.response.status_code, "body": getattr(error, "__notes__", None)}
    return None


async def main() -> None:
    settings = options()
    url, headers = settings["base_url"], settings.get("headers")
    make = get_sync_client if settings.get("sync") else get_client
    client = make(url=url, api_key=settings.get("api_key"), headers=headers, timeout=30)
    await answer_calls(calls(client), fault_data)


if __name__ == "__main__":
    asyncio.run(main())

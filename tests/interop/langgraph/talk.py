"""Inputs and helpers of the tests with the official LangGraph client."""

from typing import Any, Final
from uuid import UUID, uuid5

import pytest

from tests.interop.driver import ClientError, OfficialClient

UNKNOWN_ID: Final = "00000000-0000-4000-8000-000000000000"
GRAPHS: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""UUID namespace of the ids of the default assistants."""

MODES: Final = ("values", "messages", "messages-tuple", "updates", "events", "tasks", "checkpoints", "debug", "custom")


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def texts(values: Any) -> list[tuple[str, str]]:
    return [(message["type"], message["content"]) for message in values["messages"]]


def assistant_of(agent: str) -> str:
    return str(uuid5(GRAPHS, agent))


async def new_thread(client: OfficialClient, **options: Any) -> str:
    return (await client.call("threads.create", **options))["thread_id"]


async def refused(client: OfficialClient, name: str, /, **args: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await client.call(name, **args)
    return caught.value


async def wait_until_running(client: OfficialClient, run: Any) -> None:
    """Wait until the run has sent a token. The protocol offers only the stream to wait for that."""
    ids = {"thread_id": run["thread_id"], "run_id": run["run_id"]}
    async with client.stream("runs.join_stream", **ids, stream_mode="messages-tuple", last_event_id="-1") as events:
        async for event in events:
            if event["event"] == "messages":
                return
    raise AssertionError("the stream ended without a token")

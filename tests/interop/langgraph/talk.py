"""What the tests with the official LangGraph client say and read."""

from typing import Any, Final
from uuid import UUID, uuid5

import pytest

from tests.interop.driver import ClientError, OfficialClient

NOBODY: Final = "00000000-0000-4000-8000-000000000000"
GRAPHS: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The namespace of the ids of the assistants that are there by themselves."""

MODES: Final = ("values", "messages", "messages-tuple", "updates", "events", "tasks", "checkpoints", "debug", "custom")


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def texts(values: Any) -> list[tuple[str, str]]:
    return [(message["type"], message["content"]) for message in values["messages"]]


def assistant_of(agent: str) -> str:
    return str(uuid5(GRAPHS, agent))


async def new_thread(client: OfficialClient, **given: Any) -> str:
    return (await client.call("threads.create", **given))["thread_id"]


async def refused(client: OfficialClient, name: str, /, **args: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await client.call(name, **args)
    return caught.value


async def is_running(client: OfficialClient, run: Any) -> None:
    """The agent of the run is at work. The protocol has nothing else to wait on than its stream."""
    ids = {"thread_id": run["thread_id"], "run_id": run["run_id"]}
    async with client.stream("runs.join_stream", **ids, stream_mode="messages-tuple", last_event_id="-1") as events:
        async for event in events:
            if event["event"] == "messages":
                return
    raise AssertionError("its stream ended")

"""gRPC of A2A 1.0 with the official SDK on both sides of a gateway that restarts, and the SDK's own descriptors."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from tests.interop.driver import start_client, start_server
from tests.protobuf import COPIES, read_published
from tests.running import running

BOUND: Final = 50.0
TEXT: Final = "one two three"


def test_descriptors_are_those_of_the_official_sdk() -> None:
    published = read_published()
    assert [each.read_bytes() for each in COPIES] == [published] * 2, "python -m tests.protobuf writes them"


def text_of(task: Any) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


async def test_a_run_over_grpc_on_both_sides_survives_a_restart(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND):
        server = await stack.enter_async_context(start_server("a2a-grpc", grpc=True, versions=[]))
        agents = {"far": {"url": f"{server.url}/stream", "protocol": "a2a"}}
        async with running(tmp_path, configured=agents, serves_grpc=True) as first:
            client = await stack.enter_async_context(
                start_client("a2a-grpc", base_url=f"{first.url}/a2a/far", transport="GRPC")
            )
            async with client.stream("stream", text=TEXT) as events:
                task_id = (await anext(events))["task"]["id"]
                async for event in events:
                    if "artifactUpdate" in event:
                        break
        async with running(tmp_path, configured=agents, serves_grpc=True) as second:
            await client.call("use", base_url=f"{second.url}/a2a/far")
            async with client.stream("subscribe", id=task_id) as events:
                assert (await anext(events))["task"]["status"]["state"] == "TASK_STATE_WORKING"
                for _ in TEXT.split()[1:]:
                    server.release()
                async for _ in events:
                    pass
            task = await client.call("get_task", id=task_id)
            assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_COMPLETED", TEXT)

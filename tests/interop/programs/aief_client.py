"""The official client of the AIEF Agent Protocol, driven by JSON lines (see `lines`). Options: base_url, headers.

A call is a method of its `AgentApi`, by name and with its arguments; request bodies are given as JSON objects. The
protocol knows one agent per host, so `use` turns the client to another.
"""

import asyncio
import base64
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from agent_protocol_client import AgentApi, ApiClient, ApiException, Configuration, StepRequestBody, TaskRequestBody
from lines import answer_calls, options
from pydantic import BaseModel

BODIES = {"task_request_body": TaskRequestBody, "step_request_body": StepRequestBody}


def dump(result: Any) -> Any:
    if isinstance(result, BaseModel):
        return json.loads(result.json())
    # What it calls a bytearray: the downloaded file.
    return base64.b64encode(result).decode()


def call(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def called(**given: Any) -> Any:
        for name, body in BODIES.items():
            if name in given:
                given[name] = body(**given[name])
        return dump(await method(**given))

    return called


def fault_data(error: Exception) -> Any:
    return {"status": error.status, "body": error.body} if isinstance(error, ApiException) else None


async def main() -> None:
    # It asks the environment for a proxy, and none of this machine's must stand between two programs on it.
    os.environ["no_proxy"] = "*"
    async with ApiClient(Configuration(host=options()["base_url"])) as client:
        for name, value in (options().get("headers") or {}).items():
            client.set_default_header(name, value)
        api = AgentApi(client)

        async def use(base_url: str) -> None:
            client.configuration.host = base_url

        names = [name for name in dir(api) if name.endswith(("_task", "_tasks", "_step", "_steps", "_artifact"))]
        names += ["list_agent_task_artifacts", "upload_agent_task_artifacts"]
        await answer_calls({"use": use, **{name: call(getattr(api, name)) for name in names}}, fault_data)


if __name__ == "__main__":
    asyncio.run(main())

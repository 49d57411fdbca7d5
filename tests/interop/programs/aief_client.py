"""The official client of the AIEF Agent Protocol, driven by JSON lines (see `lines`). Options: base_url, headers.

A call names a method of its `AgentApi`, with its arguments. Request bodies are JSON objects. The protocol has one agent
per host, so `use` switches the client to another host.
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
    # A downloaded file: the client declares it as a bytearray.
    return base64.b64encode(result).decode()


def call(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def called(**arguments: Any) -> Any:
        for name, body in BODIES.items():
            if name in arguments:
                arguments[name] = body(**arguments[name])
        return dump(await method(**arguments))

    return called


def fault_data(error: Exception) -> Any:
    return {"status": error.status, "body": error.body} if isinstance(error, ApiException) else None


async def main() -> None:
    # The client reads the proxy from the environment; requests between two local programs must not use one.
    os.environ["no_proxy"] = "*"
    async with ApiClient(Configuration(host=options()["base_url"], ssl_ca_cert=options().get("ca"))) as client:
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

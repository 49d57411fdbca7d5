"""Headers of a caller's request that reach an agent's server: the configured ones, and no others."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar, Request, Response, get, post

from babelgate.gateway.settings.model import Settings
from tests.running import running
from tests.serving import serving


@asynccontextmanager
async def model(requests: list[Mapping[str, str]]) -> AsyncGenerator[str]:
    """Serve the minimum of an OpenAI-compatible server that one answer needs."""

    @get("/v1/models")
    async def models() -> Response[bytes]:
        return Response(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}', media_type="application/json")

    @post("/v1/chat/completions", status_code=200)
    async def complete(request: Request[Any, Any, Any]) -> Response[bytes]:
        requests.append(dict(request.headers))
        answer = {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
        return Response(json.dumps(answer).encode(), media_type="application/json")

    async with serving(Litestar([models, complete], openapi_config=None, logging_config=None)) as url:
        yield f"{url}/v1"


async def test_only_configured_headers_are_forwarded_and_never_a_key(tmp_path: Path) -> None:
    requests: list[Mapping[str, str]] = []
    async with model(requests) as url:
        agent = {
            "url": url,
            "protocol": "openai",
            "options": {"api": "chat"},
            "headers": {"Authorization": "Bearer upstream"},
            "forward": ["X-Tenant", "traceparent"],
        }
        async with running(tmp_path, configured={"bot": agent}, keys={"alice": "wonderland"}, network={}) as gateway:
            body = {"assistant_id": "bot", "input": "hello"}
            sent = {"Authorization": "Bearer wonderland", "X-Tenant": "t1", "X-Other": "o", "Cookie": "c=1"}
            answer = await gateway.http.post("/runs/wait", json=body, headers=sent)
            assert answer.json()["messages"][-1]["content"] == "Hi"
            await gateway.http.post("/runs/wait", json=body, headers={"X-Api-Key": "wonderland"})
    first, second = requests
    assert (first["x-tenant"], first["authorization"]) == ("t1", "Bearer upstream")
    assert not {"x-other", "cookie", "x-api-key", "traceparent"} & first.keys()
    assert "x-tenant" not in second, "each run has its own"
    assert all("wonderland" not in value for request in requests for value in request.values())


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Cookie", "Host", "not a name"])
def test_headers_of_the_gateway_cannot_be_configured(name: str) -> None:
    with pytest.raises(ValueError):
        Settings.model_validate({"agents": {"a": {"url": "http://127.0.0.1:1", "forward": [name]}}})

"""Subscriptions over REST to servers that accept GET or POST."""

from typing import Any

import pytest

from babelgate.conformance.protocols.a2a.v0.rest import RestBinding as Rest03
from babelgate.conformance.protocols.a2a.v1.rest import RestBinding as Rest10
from babelgate.conformance.wire.http import Wire
from tests.serving import serving

KNOWN = "6f1c0000-0000-7000-8000-000000000001"
EVENT = b'data: {"statusUpdate": {"taskId": "t"}}\n\n'
NO_TASK = b'{"error": {"code": 404, "details": [{"@type": "x/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND"}]}}'


class Subscribed:
    """Server that accepts subscriptions to one task by one method. `other` is the status of any other method."""

    def __init__(self, method: str, other: int) -> None:
        self.method, self.other = method, other
        self.methods: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        is_known = KNOWN in scope["path"]
        self.methods += [scope["method"]] if is_known else []
        if scope["method"] != self.method:
            status, kind, body = self.other, b"text/html", b"<p>no</p>"
        else:
            status, kind, body = (200, b"text/event-stream", EVENT) if is_known else (404, b"application/json", NO_TASK)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(("method", "other"), [("GET", 405), ("POST", 405), ("POST", 404), ("GET", 404)])
@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_subscription_uses_the_method_that_the_server_accepts(version: str, method: str, other: int) -> None:
    server = Subscribed(method, other)
    async with serving(server) as url, Wire(urls=[url]) as wire:
        binding = Rest10(wire, url, {}) if version == "1.0" else Rest03(wire, url, {})
        for _ in range(2):
            async with binding.stream("SubscribeToTask", {"id": KNOWN}) as stream:
                assert stream.exchange.status == 200
    assert server.methods == [method] * 2

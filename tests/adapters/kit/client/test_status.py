"""HTTP statuses of an agent's server mean the same in every protocol."""

from contextlib import aclosing
from typing import Any, Final

import pytest

from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.upstream import Upstream
from babelgate.canonical import Fault, FaultCode
from tests.adapters.kit.client.servers import call
from tests.driving import raised_fault
from tests.serving import serving

CODES: Final = {
    400: FaultCode.AGENT_FAILED,
    408: FaultCode.AGENT_TIMEOUT,
    418: FaultCode.AGENT_FAILED,
    429: FaultCode.LIMITED,
    501: FaultCode.AGENT_FAILED,
    502: FaultCode.AGENT_UNREACHABLE,
    503: FaultCode.AGENT_UNREACHABLE,
    504: FaultCode.AGENT_TIMEOUT,
}


def refuse_with(status: int) -> Any:
    """Return an app that answers every request with one status and a retry time."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"retry-after", b"7")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def fault_from(upstream: Upstream, status: int) -> Fault:
    async with serving(refuse_with(status)) as url:
        client = upstream.client(url, "far")
        try:
            async with aclosing(client.run(call())) as events:
                return await raised_fault(events)
        finally:
            await client.aclose()


@pytest.mark.parametrize("status", [*CODES, 500])
@pytest.mark.parametrize(
    "upstream", [each for each in UPSTREAMS if each.has_urls], ids=lambda upstream: upstream.protocol
)
async def test_a_status_is_the_same_fault_in_every_protocol(upstream: Upstream, status: int) -> None:
    fault = await fault_from(upstream, status)
    # The documentations of OpenAI and Anthropic call their 500 a temporary error.
    is_temporary = upstream.protocol in ("openai", "anthropic")
    broken = FaultCode.AGENT_UNREACHABLE if is_temporary else FaultCode.AGENT_FAILED
    assert fault.code is CODES.get(status, broken)
    assert fault.details["status"] == status
    assert fault.details["retry_after"] == 7

"""Losses with unusual names: they reach callers of every protocol in a header that every client accepts."""

from collections.abc import AsyncGenerator

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import Event, Invocation, LossNoted, MessageEnded, MessageStarted, PartAdded, TextPart
from tests.pairs.caller import Caller
from tests.pairs.house import CALLERS
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOSSES = {
    "line-break": [("a\r\nX-Injected: 1", "b\r\nX-Injected: 1")],
    "blank": [("tool calls", "some")],
    "letters": [("Übung", "größer 🙂")],
    "empty": [("", "")],
    "quotes": [('"x"', 'a "b" \\')],
    "many": [(f"feature-{n}", "gone") for n in range(3_000)],
    "long": [("text", "x" * 200_000), ("y" * 200_000, "gone")],
}


async def lossy(call: Invocation) -> AsyncGenerator[Event]:
    """Emit the losses that the input names."""
    for feature, how in LOSSES[call.text]:
        yield LossNoted(feature=feature, how=how)
    yield MessageStarted(role="agent")
    yield PartAdded(part=TextPart(text="Hi"))
    yield MessageEnded()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("odd"), {"lossy": lossy}) as opened:
        yield opened


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("caller_class", CALLERS)
async def test_a_run_with_odd_losses_is_visible(gateway: Running, caller_class: type[Caller], losses: str) -> None:
    answers: list[httpx.Response] = []

    async def record(response: httpx.Response) -> None:
        answers.append(response)

    caller = caller_class(gateway.http, "lossy")
    before, gateway.http.event_hooks = gateway.http.event_hooks, {"response": [record]}
    try:
        streamed = await caller.run_to_end(losses)
        sent = await type(caller)(gateway.http, "lossy").send(losses)
        looked = await caller.look(streamed.task_id)
    finally:
        gateway.http.event_hooks = before
    assert [(view.state, view.text) for view in (streamed, sent, looked)] == [("completed", "Hi")] * 3
    for answer in answers:
        assert "x-injected" not in answer.headers
        assert sum(len(name) + len(value) for name, value in answer.headers.raw) < 8 * 1024

"""Runs between two gateways: an agent emits one of everything, and all of it arrives, even if the stream breaks."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.adapters.kit.upstream import Client
from babelgate.adapters.langchain.client import Client as LangChain
from babelgate.adapters.openai.client import Client as OpenAI
from babelgate.canonical import Message, RunInput
from tests.adapters.a2a.talk import Talk
from tests.interop.proxy import CUT, cutting
from tests.pairs.whole import NAME, every_event_agent, every_event_run, exact
from tests.running import Running, running

_CUT: Final = {CUT: "cut"}
CLIENTS: Final[Mapping[str, Callable[[str], Client]]] = {
    "langgraph": lambda url: LangChain(url, NAME, dialect="langgraph", headers=_CUT),
    "agent-protocol": lambda url: LangChain(f"{url}/agent-protocol", NAME, dialect="agent-protocol", headers=_CUT),
    "openai-responses": lambda url: OpenAI(f"{url}/v1", NAME, api="responses", headers=_CUT),
    "openai-chat-completions": lambda url: OpenAI(f"{url}/v1", NAME, api="chat", headers=_CUT),
}
QUESTIONS: Final = {"langgraph": 1, "agent-protocol": 2, "openai-responses": 1, "openai-chat-completions": 1}
"""Number of requests before the run: those that detect the server and create a thread."""
_CUTS: Final = [(), (2500, 1, 3000, 4000)]
CASES: Final = [
    (protocol, cuts) for protocol in CLIENTS for cuts in _CUTS if not cuts or protocol != "openai-chat-completions"
]
"""Protocols with and without broken streams. A chat completion cannot be resumed."""


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running(tmp_path, registered={NAME: every_event_agent()}) as gateway:
        yield gateway


@pytest.mark.parametrize(("protocol", "cuts"), CASES)
async def test_a_run_is_read_as_it_was_emitted(behind: Running, protocol: str, cuts: Sequence[int]) -> None:
    async with cutting(behind.url, {"cut": [*[10**9] * QUESTIONS[protocol], *cuts]}) as proxy:
        client = CLIENTS[protocol](proxy.url)
        talk = Talk(client)
        await talk.play(replace(talk.call("go"), input=RunInput(messages=(Message.of("go", "user"),))))
        await talk.answer("Ada", {"approved": True})
        await talk.answer("me")
        await client.aclose()
        assert not proxy.cuts["cut"]
    nothing: Any = {"tools": [], "metadata": {}, "uploads": []}
    assert exact([record.event for record in talk.records]) == exact(every_event_run(nothing, "me"))

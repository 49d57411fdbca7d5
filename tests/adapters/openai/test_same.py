"""From OpenAI's API to OpenAI's API: what another server says of models and completions, as callers get it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.openai.agents import decode_models, encode_model
from babelgate.adapters.openai.read.chat import ChatReader
from babelgate.canonical import Event, Invocation
from babelgate.canonical.event import LossNoted, Native
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.bridge import client
from tests.difference import differences
from tests.opened import opened

MODEL: dict[str, Any] = {
    "id": "far",
    "object": "model",
    "created": 1700000000,
    "owned_by": "them",
    "root": "far",
    "max_model_len": 4096,
    "permission": [{"id": "p"}],
}
WHOLE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "far",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "service_tier": "default",
    "system_fingerprint": "fp_1",
    "x_cost": {"usd": 0.1},
}


def test_a_model_is_listed_as_its_server_lists_it() -> None:
    [info] = decode_models({"data": [MODEL]})
    assert list(differences(MODEL, encode_model(info).model_dump())) == []


def test_what_is_said_of_a_model_has_a_limit() -> None:
    [info] = decode_models({"data": [{**MODEL, "x": "x" * 70_000}]})
    assert encode_model(info).model_dump().keys() == {"id", "object", "created", "owned_by"}


class Repeats:
    """An agent that was read of a completion of another server."""

    def __init__(self) -> None:
        reader = ChatReader("r")
        self.events = [*reader.read(WHOLE), *reader.end(done=True)]

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        for event in self.events:
            yield event


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_has_what_its_server_says_of_it(tmp_path: Path, stream: bool) -> None:
    [info] = decode_models({"data": [MODEL]})
    registered = {"far": RegisteredAgent(info, Repeats())}
    async with opened(tmp_path, registered=registered) as gateway, client(gateway.app, "http://127.0.0.1:8000") as http:
        body = {"model": "far", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
        answer = await http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        told = json.loads(lines[-1]) if stream else answer.json()
        for name in ("service_tier", "system_fingerprint", "x_cost"):
            assert told[name] == WHOLE[name]


def test_what_is_said_of_a_completion_has_a_limit() -> None:
    reader = ChatReader("r")
    events = [*reader.read({**WHOLE, "x": "x" * 70_000}), *reader.end(done=True)]
    assert not any(isinstance(event, Native) for event in events)
    assert any(isinstance(event, LossNoted) and "too large" in event.how for event in events)

"""Tests of the cache of messages in LangChain's JSON."""

import json
from typing import Any

import pytest

from babelgate.adapters.kit.server.encoding import LazyList, encode_in_pieces
from babelgate.adapters.langchain.codec.state import encode_values
from babelgate.adapters.langchain.server import encoded_messages
from babelgate.adapters.langchain.server.encoded_messages import EncodedMessages
from babelgate.canonical import Message, Revision, TextPart

MESSAGES = tuple(
    Message(message_id=f"m{number}", parts=(TextPart(text=f'"{number} é" ' * 100),)) for number in range(200)
)


def revision(*messages: Message, **values: Any) -> Revision:
    return Revision(
        checkpoint_id="c",
        parent_id=None,
        seq=1,
        at=1,
        task_id=None,
        run_id=None,
        source="loop",
        step=1,
        node="echo",
        messages=messages,
        values=values,
    )


async def body_of(value: Any) -> bytes:
    return b"".join([piece async for piece in encode_in_pieces(value)])


async def test_values_with_many_messages_have_the_same_json() -> None:
    state = revision(*MESSAGES, a=1, b=["x"])
    whole = await body_of(encode_values(state))
    cache = EncodedMessages()
    for _ in range(2):
        values = await cache.encode_values(state)
        assert isinstance(values["messages"], LazyList)
        assert await body_of(values) == whole
        assert list(values["messages"]) == json.loads(whole)["messages"]


async def test_each_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str | None] = []

    def encode(message: Message) -> Any:
        encoded.append(message.message_id)
        return {"id": message.message_id, "content": message.text}

    monkeypatch.setattr(encoded_messages, "encode_message", encode)
    cache = EncodedMessages()
    for count in (150, 151, 200):
        await cache.encode_values(revision(*MESSAGES[:count]))
    assert encoded == [message.message_id for message in MESSAGES]


async def test_the_cache_is_bounded_in_bytes() -> None:
    cache = EncodedMessages(most=100_000)
    state = revision(*MESSAGES)
    assert await body_of(await cache.encode_values(state)) == await body_of(encode_values(state))
    assert 0 < cache.size <= 100_000
    assert await body_of(await cache.encode_values(state)) == await body_of(encode_values(state))


@pytest.mark.parametrize(
    "state",
    [
        None,
        revision(*MESSAGES[:3]),
        revision(*(Message(message_id=f"{number}") for number in range(100))),
        revision(*MESSAGES, messages=[{"type": "human", "content": "of the graph", "id": "m1"}]),
        revision(*MESSAGES, Message(message_id="long", parts=(TextPart(text="long " * 100_000),))),
    ],
    ids=["no state", "few messages", "short messages", "messages in values", "long message"],
)
async def test_other_values_are_those_of_the_codec(state: Revision | None) -> None:
    assert await EncodedMessages().encode_values(state) == encode_values(state)

"""Encoding of message parts as content blocks, which never interleave."""

from typing import Any

from babelgate.adapters.langchain.write.content_blocks import Blocks
from babelgate.canonical import DataPart, FilePart, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import PartAdded, PartDelta, PartEnded


def blocks_of(blocks: Blocks, *events: PartAdded | PartDelta | PartEnded) -> list[Any]:
    """Return kind, index, and content or delta of each event."""
    written: list[Any] = []
    for event in events:
        match event:
            case PartAdded():
                written += blocks.add(event)
            case PartDelta():
                written += blocks.delta(event)
            case PartEnded():
                written += blocks.end(event)
    written += blocks.close()
    return [
        (each["event"].removeprefix("content-block-"), each["index"], each.get("content", each.get("delta")))
        for each in written
    ]


def test_a_streamed_text_has_a_delta_for_each_piece() -> None:
    assert blocks_of(
        Blocks(), PartAdded(part=TextPart(text="a"), open=True), PartDelta(text="b", index=0), PartEnded(index=0)
    ) == [
        ("start", 0, {"type": "text", "text": ""}),
        ("delta", 0, {"type": "text-delta", "text": "a"}),
        ("delta", 0, {"type": "text-delta", "text": "b"}),
        ("finish", 0, {"type": "text", "text": "ab"}),
    ]


def test_a_whole_text_has_one_delta() -> None:
    assert [what for what, _, _ in blocks_of(Blocks(), PartAdded(part=TextPart(text="a")))] == [
        "start",
        "delta",
        "finish",
    ]
    assert [what for what, _, _ in blocks_of(Blocks(), PartAdded(part=TextPart(text="")))] == ["start", "finish"]


def test_blocks_do_not_interleave() -> None:
    """Finish each block before the next one starts (CDDL, section 8)."""
    found = blocks_of(
        Blocks(),
        PartAdded(part=ReasoningPart(text="why"), open=True),
        PartAdded(part=TextPart(text="one"), open=True),
        PartDelta(text=" two", index=1),
        PartDelta(text=" so", index=0),
        PartEnded(index=1),
        PartEnded(index=0),
        PartAdded(part=TextPart(text="three")),
    )
    assert [(what, index) for what, index, _ in found] == [
        ("start", 0),
        ("delta", 0),
        ("delta", 0),
        ("finish", 0),
        ("start", 1),
        ("delta", 1),
        ("finish", 1),
        ("start", 2),
        ("delta", 2),
        ("finish", 2),
    ]
    assert found[3][2] == {"type": "reasoning", "reasoning": "why so"}
    assert found[5][2] == {"type": "text-delta", "text": "one two"}


def test_each_delta_of_a_call_has_all_arguments_so_far() -> None:
    """Send all arguments with each piece, because a block-delta replaces the fields that it names."""
    call = ToolCallPart(call_id="c", name="look", arguments='{"a"')
    assert blocks_of(Blocks(), PartAdded(part=call, open=True), PartDelta(text=": 1}", index=0)) == [
        ("start", 0, {"type": "tool_call_chunk", "id": "c", "name": "look", "args": ""}),
        ("delta", 0, {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": '{"a"'}}),
        ("delta", 0, {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": '{"a": 1}'}}),
        ("finish", 0, {"type": "tool_call", "id": "c", "name": "look", "args": {"a": 1}}),
    ]


def test_arguments_that_are_not_an_object_are_an_invalid_call() -> None:
    *_, (what, _, block) = blocks_of(Blocks(), PartAdded(part=ToolCallPart(call_id="c", name="look", arguments="{")))
    assert (what, block["type"], block["args"]) == ("finish", "invalid_tool_call", "{")


def test_the_bytes_of_a_file_are_sent_once() -> None:
    part = FilePart(name="a.png", media_type="image/png", inline=b"hi")
    (_, _, first), (_, _, last) = blocks_of(Blocks(), PartAdded(part=part))
    assert first == {"type": "image", "mime_type": "image/png", "extras": {"filename": "a.png"}}
    assert last == {**first, "base64": "aGk="}


def test_parts_without_a_block_type_are_non_standard() -> None:
    *_, (_, _, data) = blocks_of(Blocks(), PartAdded(part=DataPart(data={"a": 1})))
    assert data == {"type": "non_standard", "value": {"a": 1}}
    *_, (_, _, refusal) = blocks_of(Blocks(), PartAdded(part=RefusalPart(text="no"), open=True), PartDelta(text="!"))
    assert refusal == {"type": "non_standard", "value": {"type": "refusal", "refusal": "no!"}}


def test_the_langchain_form_of_a_block_is_not_sent() -> None:
    thought = ReasoningPart(text="hm", extra={"langchain": {"type": "thinking", "signature": "s"}})
    *_, (_, _, block) = blocks_of(Blocks(), PartAdded(part=thought))
    assert block == {"type": "reasoning", "reasoning": "hm"}

"""Parts of a message become content blocks that never interleave."""

from typing import Any

from babelgate.adapters.langchain.write.content_blocks import Blocks
from babelgate.canonical import DataPart, FilePart, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import PartAdded, PartDelta, PartEnded


def told(blocks: Blocks, *events: PartAdded | PartDelta | PartEnded) -> list[Any]:
    """(what, index, content or delta) of each."""
    found: list[Any] = []
    for event in events:
        match event:
            case PartAdded():
                found += blocks.add(event)
            case PartDelta():
                found += blocks.delta(event)
            case PartEnded():
                found += blocks.end(event)
    found += blocks.close()
    return [
        (each["event"].removeprefix("content-block-"), each["index"], each.get("content", each.get("delta")))
        for each in found
    ]


def test_a_text_that_is_said_piece_by_piece() -> None:
    assert told(
        Blocks(), PartAdded(part=TextPart(text="a"), open=True), PartDelta(text="b", index=0), PartEnded(index=0)
    ) == [
        ("start", 0, {"type": "text", "text": ""}),
        ("delta", 0, {"type": "text-delta", "text": "a"}),
        ("delta", 0, {"type": "text-delta", "text": "b"}),
        ("finish", 0, {"type": "text", "text": "ab"}),
    ]


def test_a_text_that_was_said_at_once_is_told_with_one_delta() -> None:
    assert [what for what, _, _ in told(Blocks(), PartAdded(part=TextPart(text="a")))] == ["start", "delta", "finish"]
    assert [what for what, _, _ in told(Blocks(), PartAdded(part=TextPart(text="")))] == ["start", "finish"]


def test_blocks_do_not_interleave() -> None:
    """ "block N must finish before block N+1 starts" (CDDL, section 8)."""
    found = told(
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


def test_the_arguments_of_a_call_are_told_whole_with_each_piece() -> None:
    """A block-delta takes the place of the fields that it names."""
    call = ToolCallPart(call_id="c", name="look", arguments='{"a"')
    assert told(Blocks(), PartAdded(part=call, open=True), PartDelta(text=": 1}", index=0)) == [
        ("start", 0, {"type": "tool_call_chunk", "id": "c", "name": "look", "args": ""}),
        ("delta", 0, {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": '{"a"'}}),
        ("delta", 0, {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": '{"a": 1}'}}),
        ("finish", 0, {"type": "tool_call", "id": "c", "name": "look", "args": {"a": 1}}),
    ]


def test_arguments_that_are_no_object_make_an_invalid_call() -> None:
    *_, (what, _, block) = told(Blocks(), PartAdded(part=ToolCallPart(call_id="c", name="look", arguments="{")))
    assert (what, block["type"], block["args"]) == ("finish", "invalid_tool_call", "{")


def test_the_bytes_of_a_file_come_once() -> None:
    part = FilePart(name="a.png", media_type="image/png", inline=b"hi")
    (_, _, first), (_, _, last) = told(Blocks(), PartAdded(part=part))
    assert first == {"type": "image", "mime_type": "image/png", "extras": {"filename": "a.png"}}
    assert last == {**first, "base64": "aGk="}


def test_what_has_no_block_of_its_own_is_non_standard() -> None:
    *_, (_, _, data) = told(Blocks(), PartAdded(part=DataPart(data={"a": 1})))
    assert data == {"type": "non_standard", "value": {"a": 1}}
    *_, (_, _, refusal) = told(Blocks(), PartAdded(part=RefusalPart(text="no"), open=True), PartDelta(text="!"))
    assert refusal == {"type": "non_standard", "value": {"type": "refusal", "refusal": "no!"}}


def test_the_form_that_an_agent_had_for_a_block_is_not_the_protocol_s() -> None:
    thought = ReasoningPart(text="hm", extra={"langchain": {"type": "thinking", "signature": "s"}})
    *_, (_, _, block) = told(Blocks(), PartAdded(part=thought))
    assert block == {"type": "reasoning", "reasoning": "hm"}

"""Conversion of parts between ACP and canonical types, and round trips in both directions."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import decode_message
from babelgate.adapters.acp.codec.parts import EncodingContext, decode_part, encode_part, encode_parts, part_extra
from babelgate.adapters.kit.json import parse_json
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.strategies import parts

VIEW = EncodingContext(run_id="r", session_id="s", agent="echo", base_url="http://gateway")
FULL = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.CITATION})


def again(model: BaseModel) -> Any:
    """Return the model as the receiver decodes it."""
    return type(model).model_validate(parse_json(w.dump(model)))


@given(parts(FULL))
def test_a_part_that_acp_carries_survives_a_round_trip(part: Part) -> None:
    assert decode_part(again(encode_part(part, VIEW))) == [part]


@given(st.binary(), st.sampled_from(["a.txt", "b"]), st.sampled_from(["image/png", "text/plain", "text/csv"]))
def test_file_bytes_survive_in_either_encoding(data: bytes, name: str, media_type: str) -> None:
    part = FilePart(name=name, media_type=media_type, inline=data, size=len(data))
    [found] = decode_part(again(encode_part(part, VIEW)))
    assert isinstance(found, FilePart)
    assert (found.name, found.media_type, found.inline) == (name, media_type, data)


@pytest.mark.parametrize(
    ("media_type", "data", "encoding"),
    [
        ("text/plain", b"A note", "plain"),
        ("text/csv; charset=utf-8", "ä;ö".encode(), "plain"),
        ("text/plain; charset=latin-1", "ä".encode(), "base64"),
        ("text/plain", "ä".encode("latin-1"), "base64"),
        ("application/json", b'{"a": 1}', "plain"),
        ("image/svg+xml", b"<svg/>", "plain"),
        ("application/octet-stream", b"A note", "base64"),
        (None, b"A note", "base64"),
    ],
)
def test_text_files_are_sent_as_plain_text_if_possible(media_type: str | None, data: bytes, encoding: str) -> None:
    wire = encode_part(FilePart(name="a", media_type=media_type, inline=data, size=len(data)), VIEW)
    assert wire.content_encoding == encoding
    assert wire.content == (data.decode() if encoding == "plain" else b64encode(data).decode())


CONTENTS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.fixed_dictionaries({"content": st.sampled_from(["", "x", '{"key": "value"}', '{"key":"value"}', "{", " 1"])}),
    st.fixed_dictionaries({"content": st.sampled_from(["AAEC", "aGk="]), "content_encoding": st.just("base64")}),
    st.fixed_dictionaries({"content_url": st.just("http://files/1")}),
    st.just(dict[str, str]()),
)
METADATA: st.SearchStrategy[dict[str, Any] | None] = st.sampled_from(
    [
        None,
        {"kind": "citation", "start_index": 0, "end_index": 1, "url": "http://x"},
        {"kind": "trajectory", "message": "Hm."},
        {"kind": "trajectory", "tool_name": "f", "tool_input": {"a": 1}},
        {"kind": "trajectory", "tool_name": "f", "tool_output": {"value": {"b": 2}}},
        {"kind": "trajectory", "message": "Hm.", "tool_name": "f", "tool_input": {}, "tool_output": {}, "more": 1},
        {"kind": "mood", "x": 1},
    ]
)
MORE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"metadata": METADATA},
    optional={
        "name": st.sampled_from(["a.txt", "b.json"]),
        "content_type": st.sampled_from(["text/plain", "text/html", "application/json", "image/png", None]),
        "color": st.just("blue"),
    },
)


def wire_part(content: dict[str, str], more: dict[str, Any]) -> w.MessagePart:
    return w.MessagePart.model_validate({**content, **more})


@given(st.lists(st.builds(wire_part, CONTENTS, MORE)))
def test_wire_parts_are_written_as_they_were_read(wire_parts: list[w.MessagePart]) -> None:
    message = decode_message(w.Message(role="user", parts=wire_parts))
    assert [part.model_dump() for part in encode_parts(message.parts, VIEW)] == [
        part.model_dump() for part in wire_parts
    ]


def test_a_stored_file_without_bytes_is_sent_as_a_url() -> None:
    wire = encode_part(FilePart(name="a.txt", media_type="text/plain", blob="ab" * 32), VIEW)
    assert (wire.content, wire.content_url) == (None, f"http://gateway/acp/resources/{'ab' * 32}")


def test_a_text_file_is_written_as_it_was_read() -> None:
    wire = w.MessagePart(name="a.txt", content="Grüße")
    [part] = decode_part(wire)
    assert isinstance(part, FilePart)
    assert part.inline == "Grüße".encode()
    assert encode_part(part, VIEW) == wire


def test_a_large_base64_file_is_sent_as_a_url() -> None:
    [part] = decode_part(w.MessagePart(name="a.txt", content="AAEC", content_encoding="base64"))
    assert isinstance(part, FilePart)
    wire = encode_part(part.replace(inline=None, blob="ab" * 32), VIEW)
    assert (wire.content, wire.content_encoding) == (None, "plain")
    assert wire.content_url == f"http://gateway/acp/resources/{'ab' * 32}"


def test_unknown_fields_cannot_replace_specified_ones() -> None:
    part = TextPart(text="x", extra={"acp": {"content": "forged", "name": "a", "color": "blue"}})
    assert (encode_part(part, VIEW).content, encode_part(part, VIEW).name) == ("x", None)


@pytest.mark.parametrize(
    ("wire", "parts"),
    [
        ({"content": "x"}, [TextPart(text="x")]),
        ({"content": "x", "content_type": "text/markdown"}, [TextPart(text="x", media_type="text/markdown")]),
        ({"content": "<a/>", "content_type": "application/xml"}, [TextPart(text="<a/>", media_type="application/xml")]),
        ({"content": "[1]", "content_type": "application/json"}, [DataPart(data=[1])]),
        (
            {"content": "{}", "content_type": "application/json; charset=utf-8"},
            [DataPart(data={}, media_type="application/json; charset=utf-8")],
        ),
        ({"content": "{", "content_type": "application/json"}, [TextPart(text="{", media_type="application/json")]),
        ({"content": "NaN", "content_type": "application/json"}, [TextPart(text="NaN", media_type="application/json")]),
        ({"metadata": {"kind": "trajectory", "message": "Hm."}}, [ReasoningPart(text="Hm.")]),
        (
            {"metadata": {"kind": "trajectory", "tool_name": "f", "tool_input": {"a": 1}, "tool_output": {"value": 2}}},
            [ToolCallPart(call_id="call-0", name="f", arguments='{"a":1}'), ToolResultPart(call_id="call-0", output=2)],
        ),
        (
            {"content": "x", "metadata": {"kind": "citation", "start_index": 0, "end_index": 1}},
            [TextPart(text="x"), AnnotationPart(start=0, end=1)],
        ),
        ({}, [TextPart(text="")]),
    ],
)
def test_the_kind_of_a_part_follows_from_its_content(wire: dict[str, Any], parts: list[Part]) -> None:
    found = decode_part(w.MessagePart.model_validate(wire))
    assert [part.replace(extra={}) for part in found] == parts


def test_text_with_a_citation_is_written_as_one_part() -> None:
    cited = w.MessagePart(content="x", metadata=w.Citation(start_index=0, end_index=1))
    text, citation = decode_part(cited)
    assert citation.extra == part_extra(None)
    assert encode_parts([text, citation], VIEW)[0].model_dump() == cited.model_dump()


def test_base64_with_line_breaks_is_decoded() -> None:
    [part] = decode_part(w.MessagePart(content="AA\r\nEC\n", content_encoding="base64"))
    assert isinstance(part, FilePart)
    assert part.inline == b"\x00\x01\x02"


@pytest.mark.parametrize(
    ("part", "metadata"),
    [
        (ToolCallPart(call_id="1", name="f", arguments='{"a": 1}'), {"tool_name": "f", "tool_input": {"a": 1}}),
        (ToolCallPart(call_id="1", name="f", arguments="3"), {"tool_name": "f", "tool_input": {"value": 3}}),
        (ToolCallPart(call_id="1", name="f", arguments='{"a'), {"tool_name": "f", "tool_input": {"arguments": '{"a'}}),
        (ToolResultPart(call_id="1", output="x", error=True), {"tool_name": "1", "tool_output": {"error": "x"}}),
        (ReasoningPart(text="Hm."), {"message": "Hm."}),
    ],
)
def test_thoughts_and_tool_calls_are_written_as_trajectories(part: Part, metadata: dict[str, Any]) -> None:
    wire = encode_part(part, VIEW)
    assert (wire.content, wire.content_url) == (None, None)
    assert wire.model_dump(exclude_none=True)["metadata"] == {"kind": "trajectory", **metadata}


@pytest.mark.parametrize(
    "part",
    [
        RefusalPart(text="No."),
        ToolCallPart(call_id="c", name="f", arguments='{"a": 1}', side="caller"),
        ToolResultPart(call_id="c", output="broken", error=True),
        TextPart(text="a", metadata={"label": "x"}),
    ],
)
def test_parts_unknown_to_acp_are_restored_by_their_mark(part: Part) -> None:
    wire = encode_part(part, VIEW)
    assert decode_part(again(wire)) == [part]
    native = w.MessagePart.model_validate(wire.model_dump(exclude={w.OWN}))
    assert decode_part(native) != [part]


def test_content_and_content_url_exclude_each_other() -> None:
    with pytest.raises(ValidationError):
        w.MessagePart(content="x", content_url="http://x")
    assert w.MessagePart().content is None

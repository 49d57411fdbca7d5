"""Conversion of names, artifacts, inputs and answers. No file name leads out of its folder."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.aief.codec import (
    artifact_id,
    clean_folder,
    clean_name,
    contents,
    decode_answer,
    decode_input,
    disposition,
    encode_artifact,
    encode_time,
    input_of,
    page_of,
)
from babelgate.adapters.aief.wire import types as w
from babelgate.canonical import Artifact, DataPart, FilePart, Invocation, Message, Part, RunInput, TextPart
from babelgate.canonical.value import JsonObject

HOSTILE = {
    "../../evil.txt": "evil.txt",
    "/etc/passwd": "passwd",
    "..\\..\\windows\\system.ini": "system.ini",
    "C:\\Users\\me\\a.txt": "a.txt",
    "..": "file",
    ".": "file",
    "...": "file",
    "": "file",
    "a/": "file",
    "a/..": "file",
    "\0": "file",
    "a\0b.txt": "ab.txt",
    "a\r\nX-Evil: 1.txt": "aX-Evil: 1.txt",
    "  padded.txt ": "padded.txt",
    ".profile": ".profile",
    "invoice\u202efdp.exe": "invoicefdp.exe",
    "Übung – 日本.txt": "Übung – 日本.txt",
    "..%2f..%2fevil": "..%2f..%2fevil",
}


@pytest.mark.parametrize(("name", "cleaned"), HOSTILE.items())
def test_a_file_name_is_reduced_to_a_safe_last_segment(name: str, cleaned: str) -> None:
    assert clean_name(name) == cleaned


@given(st.text())
def test_every_cleaned_name_is_one_segment(name: str) -> None:
    cleaned = clean_name(name)
    assert cleaned not in ("", ".", "..")
    assert not set(cleaned) & set("/\\\0\r\n")
    assert len(cleaned.encode()) <= 255
    assert clean_name(cleaned) == cleaned


def test_a_shortened_name_keeps_its_suffix() -> None:
    assert clean_name("x" * 1000 + ".tar") == "x" * 251 + ".tar"
    assert clean_name("日" * 1000) == "日" * 85
    assert clean_name("x." + "y" * 1000) == ("x." + "y" * 1000)[:255]


@pytest.mark.parametrize(
    ("folder", "cleaned"),
    [
        ("python/code/", "python/code/"),
        ("python/code", "python/code"),
        ("../../../evil", "evil"),
        ("/etc/", "etc/"),
        ("a/../b/./c", "a/b/c"),
        ("C:\\temp\\x", "temp/x"),
        ("..", None),
        ("/", None),
        ("", None),
        (None, None),
        ("a\0/b\n", "a/b"),
    ],
)
def test_a_folder_stays_below_the_workspace(folder: str | None, cleaned: str | None) -> None:
    assert clean_folder(folder) == cleaned


@given(st.text())
def test_every_cleaned_folder_leads_only_downwards(folder: str) -> None:
    cleaned = clean_folder(folder)
    if cleaned is not None:
        assert not cleaned.startswith("/")
        assert "\\" not in cleaned
        assert not {".", "..", ""} & set(cleaned.removesuffix("/").split("/"))


@given(st.text())
def test_the_header_of_a_download_is_one_line_of_ascii(name: str) -> None:
    header = disposition(clean_name(name))
    assert header.isascii()
    assert header.isprintable()
    assert header.startswith('attachment; filename="')
    assert header.removeprefix('attachment; filename="').partition(";")[0].count('"') == 1


def test_a_non_ascii_name_is_sent_in_both_forms() -> None:
    assert disposition("up.txt") == 'attachment; filename="up.txt"'
    assert disposition('ü".txt') == "attachment; filename=\"__.txt\"; filename*=UTF-8''%C3%BC%22.txt"


def test_times_are_utc_with_a_z() -> None:
    assert encode_time(1_760_000_000_000_001) == "2025-10-09T08:53:20.000001Z"


@pytest.mark.parametrize(("total", "pages"), [(0, 0), (1, 1), (10, 1), (11, 2)])
def test_a_partial_page_counts_as_a_page(total: int, pages: int) -> None:
    """Check that the number of pages is rounded up. The Python SDK's server rounds down."""
    assert page_of(total, 1, 10).total_pages == pages


# Artifacts


def artifact(*parts: Part, name: str | None = None, **more: Any) -> Artifact:
    return Artifact(artifact_id="a", run_id="r", name=name, parts=parts, **more)


@pytest.mark.parametrize(
    ("source", "name", "content"),
    [
        (artifact(TextPart(text="a"), TextPart(text="b"), name="n"), "n.txt", [b"a", b"b"]),
        (artifact(TextPart(text="a"), name="n.md"), "n.md", [b"a"]),
        (artifact(DataPart(data={"a": 1})), "artifact.json", [b'{"a":1}']),
        (artifact(FilePart(name="x.py", blob="0" * 64)), "x.py", ["0" * 64]),
        (artifact(FilePart(blob="0" * 64)), "artifact", ["0" * 64]),
        (artifact(FilePart(name="x.pdf", url="https://h/x")), "x.pdf.uri", [b"https://h/x\r\n"]),
        (artifact(), "artifact.txt", []),
    ],
)
def test_every_artifact_is_a_file(source: Artifact, name: str, content: list[bytes | str]) -> None:
    assert encode_artifact(source).file_name == name
    assert list(contents(source)) == content


def test_a_name_with_folders_is_split() -> None:
    encoded = encode_artifact(artifact(FilePart(blob="0" * 64), name="../src/deep/app.py"))
    assert (encoded.file_name, encoded.relative_path) == ("app.py", "src/deep/")
    encoded = encode_artifact(artifact(FilePart(blob="0" * 64), name="app.py", folder="lib"))
    assert (encoded.file_name, encoded.relative_path) == ("app.py", "lib")


def test_ids_of_artifacts_are_path_safe_and_unique_per_run() -> None:
    first = artifact_id(artifact().replace(artifact_id="../a b"))
    assert len(first) == 36
    assert first != artifact_id(artifact().replace(artifact_id="../a b", run_id="s"))
    assert artifact_id(artifact().replace(run_id=None, origin="caller")) == "a"


# Inputs and answers


def body(text: str | None = None, **more: object) -> w.RequestBody:
    return w.RequestBody(input=text, additional_input=more or None)


@pytest.mark.parametrize(
    ("answer", "value", "parts"),
    [
        (body("Bob"), "Bob", (TextPart(text="Bob"),)),
        (body(approved=True), {"approved": True}, (DataPart(data={"approved": True}),)),
        (body("yes", why="fine"), "yes", (TextPart(text="yes"), DataPart(data={"why": "fine"}))),
        (body(), "", (TextPart(text=""),)),
    ],
)
def test_an_answer_is_the_text_or_the_object(answer: w.RequestBody, value: object, parts: tuple[Part, ...]) -> None:
    found, message = decode_answer(answer, None)
    assert (found, message.parts, message.role) == (value, parts, "user")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"approved": true}', {"approved": True}),
        (" [1]", [1]),
        ("{not json", "{not json"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("12", "12"),
    ],
)
def test_json_text_answers_a_question_with_a_schema_as_json(text: str, value: object) -> None:
    assert decode_answer(body(text), {"type": "object"})[0] == value
    assert decode_answer(body(text), None)[0] == text


def test_an_input_without_text_takes_the_text_from_the_data() -> None:
    def text(value: str | None) -> str:
        messages = (decode_input(value),)
        data: JsonObject = {"prompt": "from the data"}
        run_input = RunInput(messages=messages, data=data)
        return Invocation(agent="a", thread_id="t", task_id="t", run_id="r", input=run_input).text

    assert text(None) == "from the data"
    assert text("said") == "said"
    assert text("") == ""


def test_input_from_another_protocol_is_its_text_and_its_object() -> None:
    assert input_of((Message.of("a", "user"), Message.of("b", "user")), {"k": 1}) == ("a\nb", {"k": 1})
    assert input_of((), [1]) == (None, {})

"""Multipart bodies of uploads: valid forms, and faults for all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.aief.server.upload import decode_upload
from babelgate.canonical import FaultCode, FaultError

TYPE = "multipart/form-data; boundary=b"


def form(*parts: tuple[str, bytes]) -> bytes:
    body = b"".join(b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n" for head, content in parts)
    return body + b"--b--\r\n"


def named(name: str, more: str = "") -> str:
    return f'Content-Disposition: form-data; name="{name}"{more}'


def refused(content_type: str, raw: bytes) -> FaultError:
    with pytest.raises(FaultError) as raised:
        decode_upload(content_type, raw)
    assert raised.value.fault.code is FaultCode.INVALID
    return raised.value


def test_a_form_is_a_file_and_a_folder() -> None:
    head = named("file", '; filename="a.txt"') + "\r\nContent-Type: text/plain"
    upload = decode_upload(TYPE, form((named("relative_path"), b"src/"), (head, b"one\r\ntwo\n--c")))
    assert (upload.file.name, upload.file.media_type, upload.file.inline) == ("a.txt", "text/plain", b"one\r\ntwo\n--c")
    assert upload.folder == "src/"


def test_a_file_may_be_empty_and_have_no_name() -> None:
    upload = decode_upload(TYPE, form((named("file"), b"")))
    assert (upload.file.name, upload.file.media_type, upload.file.inline) == ("file", "application/octet-stream", b"")
    assert upload.folder is None


def test_a_file_name_in_the_extended_form_is_decoded() -> None:
    head = named("file", "; filename*=utf-8''..%2F%C3%BC.txt")
    assert decode_upload(TYPE, form((head, b"x"))).file.name == "ü.txt"


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        ("", b""),
        ("application/json", b"{}"),
        ("multipart/form-data", form((named("file"), b"x"))),
        ("multipart/form-data; boundary=", form((named("file"), b"x"))),
        ("multipart/mixed; boundary=b", form((named("file"), b"x"))),
        (TYPE, b""),
        (TYPE, b"--b--\r\n"),
        (TYPE, b"--b\r\n"),
        (TYPE, form((named("file"), b"x"))[:-4]),
        (TYPE, b"--c\r\n\r\n\r\n--c--\r\n"),
        (TYPE, form(("Content-Type: text/plain", b"x"))),
        (TYPE, form((named("other"), b"x"))),
        (TYPE, form((named("relative_path"), b"\xff"), (named("file"), b"x"))),
        (TYPE, form((named("relative_path"), b"a" * 70_000), (named("file"), b"x"))),
        (TYPE, form(*[(named("file"), b"x")] * 20)),
        (TYPE, form((named("file") + "\r\nX: " + "a" * 5000, b"x"))),
        ("multipart/form-data; boundary=\u00fc", b"x"),
        ("multipart/form-data; boundary*=x'y'b", b"--b"),
    ],
)
def test_an_incomplete_form_is_invalid(content_type: str, raw: bytes) -> None:
    refused(content_type, raw)


def test_an_error_names_the_missing_file() -> None:
    assert refused(TYPE, form((named("x"), b""))).fault.details["errors"] == [
        {"field": "file", "description": "Field required"}
    ]


@given(st.binary())
def test_any_bytes_are_a_form_or_invalid(raw: bytes) -> None:
    for body in (
        raw,
        b"--b\r\n" + raw + b"\r\n--b--\r\n",
        form((named("file"), raw)),
        form((named("file", "; "), raw)),
    ):
        try:
            upload = decode_upload(TYPE, body)
        except FaultError as error:
            assert error.fault.code is FaultCode.INVALID
        else:
            assert upload.file.inline is not None


@given(st.text(st.characters(codec="utf-8")))
def test_any_content_type_is_a_form_or_invalid(content_type: str) -> None:
    for each in (content_type, f"multipart/form-data; boundary={content_type}"):
        try:
            decode_upload(each, form((named("file"), b"x")))
        except FaultError as error:
            assert error.fault.code is FaultCode.INVALID

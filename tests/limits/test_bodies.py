"""Request bodies and names that take long to read, or a lot of memory: other callers are not affected."""

import json
from collections.abc import Callable
from typing import Final

import pytest

from tests.limits.strain import MB, SLOW, Strained

pytestmark = SLOW

SIZE: Final = 60 * MB
JSON: Final = {"content-type": "application/json"}


def filled(unit: bytes, size: int = SIZE) -> bytes:
    return unit * (size // len(unit))


BODIES: Final[dict[str, tuple[int, Callable[[], bytes]]]] = {
    "lists": (413, lambda: b"[" + filled(b"[],") + b"0]"),
    "objects": (413, lambda: b"[" + filled(b'{"":{}},') + b"0]"),
    "members of one name": (413, lambda: b"{" + filled(b'"":{},') + b'"a":0}'),
    "numbers": (413, lambda: b"[" + filled(b"0,") + b"0]"),
    "strings": (413, lambda: b"[" + filled(b'"",') + b"0]"),
    "strings of escapes": (413, lambda: b"[" + filled(b'"' + b'\\"' * 20 + b'",') + b"0]"),
    "quotes and nothing between": (422, lambda: filled(b'"')),
    "one string of quotes": (422, lambda: b'"' + filled(b'\\"') + b'"'),
    "one string of escapes": (422, lambda: b'"' + filled(b"\\u00e9") + b'"'),
    "one string of commas": (422, lambda: b'"' + filled(b",") + b'"'),
    "an integer": (422, lambda: filled(b"1")),
    "a fraction": (422, lambda: b"0." + filled(b"1")),
    "nesting": (413, lambda: filled(b"[")),
    "white space": (200, lambda: filled(b" ") + b"{}"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_huge_json_body_does_not_block_others(gateway: Strained, name: str) -> None:
    status, make = BODIES[name]
    body = make()
    async with gateway.watched() as strain:
        answer = await gateway.http.post("/runs/wait", content=body, headers=JSON)
    assert answer.status_code == status, answer.text[:500]
    strain.check(len(body))


HEAD: Final = b'\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
FORMS: Final[dict[str, tuple[int, str, Callable[[bytes], bytes]]]] = {
    "line ends": (200, "b" * 60, lambda b: b"--" + b + HEAD + filled(b"\r\n") + b"\r\n--" + b + b"--\r\n"),
    "carriage returns": (200, "b" * 60, lambda b: b"--" + b + HEAD + filled(b"\r") + b"\r\n--" + b + b"--\r\n"),
    "near-boundaries": (
        200,
        "b" * 60,
        lambda b: b"--" + b + HEAD + filled(b"\r\n--" + b[:-1]) + b"\r\n--" + b + b"--\r\n",
    ),
    "near-boundaries of dashes": (
        200,
        "-" * 60,
        lambda b: filled(b"-" * 61 + b"x") + b"\r\n--" + b + HEAD + b"hi\r\n--" + b + b"--\r\n",
    ),
    "line ends before the first part": (
        200,
        "b" * 60,
        lambda b: filled(b"\r\n") + b"--" + b + HEAD + b"hi\r\n--" + b + b"--\r\n",
    ),
    "a header": (422, "b", lambda b: b"--" + b + b"\r\nContent-Disposition: " + filled(b"x")),
    "headers": (422, "b", lambda b: b"--" + b + b"\r\n" + filled(b"a: b\r\n")),
    "parts": (422, "b", lambda b: filled(b"--" + b + HEAD + b"x\r\n") + b"--" + b + b"--\r\n"),
    "a boundary": (422, "b" * 900, lambda b: b"--" + b + HEAD + b"hi\r\n--" + b + b"--\r\n"),
    "a file": (200, "b", lambda b: b"--" + b + HEAD + filled(b"x") + b"\r\n--" + b + b"--\r\n"),
}


async def upload_path(gateway: Strained) -> str:
    created = await gateway.http.post("/ap/v1/agent/tasks", json={"input": "hi"})
    return f"/ap/v1/agent/tasks/{created.json()['task_id']}/artifacts"


@pytest.mark.parametrize("name", FORMS)
async def test_a_huge_form_does_not_block_others(gateway: Strained, name: str) -> None:
    status, boundary, make = FORMS[name]
    path = await upload_path(gateway)
    body = make(boundary.encode())
    headers = {"content-type": f'multipart/form-data; boundary="{boundary}"'}
    async with gateway.watched() as strain:
        answer = await gateway.http.post(path, content=body, headers=headers)
    assert answer.status_code == status, answer.text[:500]
    strain.check(len(body))


@pytest.mark.parametrize("more", [";", "a=b;", 'a="', 'a*0="b";'])
async def test_a_content_type_with_many_parameters_is_refused_unparsed(gateway: Strained, more: str) -> None:
    path = await upload_path(gateway)
    headers = {"content-type": "multipart/form-data;" + (more if more != 'a="' else more + ";") * (30_000 // len(more))}
    async with gateway.watched() as strain:
        answer = await gateway.http.post(path, content=b"--b--\r\n", headers=headers)
    assert answer.status_code == 422
    assert "The Content-Type is longer than 1024 bytes." in answer.text
    strain.check()


async def test_a_long_file_name_with_a_slash_is_listed_quickly(gateway: Strained) -> None:
    name = "a" * 80_000 + "/" + "b" * 80_000
    thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    file = {"type": "file", "base64": "aGk=", "mime_type": "text/plain", "extras": {"filename": name}}
    run = {"assistant_id": "files", "input": {"messages": [{"role": "user", "content": [file]}]}}
    response = await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=run)
    assert response.status_code == 200
    async with gateway.watched() as strain:
        listed = await gateway.http.get(f"/agent/files/ap/v1/agent/tasks/{thread_id}/artifacts")
    artifact = listed.json()["artifacts"][0]
    assert artifact["file_name"] == "b" * 255
    assert set(artifact["relative_path"]) == {"a", "/"}
    strain.check()


@pytest.mark.parametrize("text", [" " * 400_000, "a" + " " * 400_000 + "b", "a " * 20_000, "\n\t" * 200_000 + "x"])
async def test_a_text_of_spaces_is_streamed_quickly(gateway: Strained, text: str) -> None:
    async with gateway.watched() as strain:
        answer = await gateway.http.post("/runs/wait", json={"assistant_id": "stream", "input": {"message": text}})
    messages = json.loads(answer.content).get("messages", [])
    assert [message["content"] for message in messages if message["type"] == "ai"] == ([text] if text.strip() else [])
    strain.check()

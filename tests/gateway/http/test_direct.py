"""Tests of the fast path: directly called handlers respond exactly as they do behind Litestar's handler chain."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from litestar import Litestar, Response, Router, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.response import Stream

from babelgate.adapters.kit.request import AnyRequest
from babelgate.gateway.http.direct import DirectApp

Messages = Sequence[Any]


@post("/things/{name:str}", status_code=201)
async def make(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    body = b"".join([chunk async for chunk in request.stream()])
    return Response(name.encode() + b" " + body, headers={"X-Name": "a", "Content-Language": "en"})


@get("/things/{name:str}")
async def look(request: AnyRequest) -> Response[bytes]:
    return Response(request.path_params["name"].encode(), media_type="application/xml")


@get("/things/all")
async def look_at_all(request: AnyRequest) -> Response[bytes]:
    return Response(b"all")


@get("/things/all/{name:str}/parts/{part:str}")
async def look_at_part(request: AnyRequest, part: FromPath[str]) -> Response[bytes]:
    return Response(part.encode() + request.path_params["name"].encode())


@delete("/things/{name:str}", status_code=200)
async def remove(request: AnyRequest) -> Response[bytes]:
    return Response(b"", status_code=204)


@get("/files/{rest:path}")
async def read_file(request: AnyRequest) -> Response[bytes]:
    return Response(str(request.path_params["rest"]).encode())


@get("/texts/{rest:path}")
async def read_text(request: AnyRequest, rest: FromPath[str]) -> Response[bytes]:
    return Response(rest.encode(), media_type="text/css")


@get("/numbers/{number:int}")
async def look_at_number(request: AnyRequest, number: FromPath[int]) -> Response[bytes]:
    return Response(str(number + 1).encode())


@get("/dict")
async def give_dict(request: AnyRequest) -> dict[str, int]:
    return {"a": 1}


@get("/text")
async def give_text(request: AnyRequest) -> Response[bytes]:
    return Response(b"text", media_type="text/plain", status_code=203)


@get("/cookie")
async def give_cookie(request: AnyRequest) -> Response[bytes]:
    return Response(b"{}", cookies={"a": "b"})


@get("/own-type")
async def give_own_type(request: AnyRequest) -> Response[bytes]:
    return Response(b"{}", headers={"Content-Type": "application/vnd.own", "content-length": "2"})


@get("/stream")
async def give_stream(request: AnyRequest) -> Stream:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    return Stream(pieces())


@get("/unserializable")
async def give_what_has_no_json(request: AnyRequest) -> Response[Any]:
    return Response(object())


@get("/nothing-taken")
async def take_nothing() -> Response[bytes]:
    return Response(b"nothing")


@get("/refused")
async def refuse(request: AnyRequest) -> Response[bytes]:
    raise HTTPException("No.", status_code=409)


@get("/failed")
async def fail(request: AnyRequest) -> Response[bytes]:
    raise RuntimeError("Why?")


async def ask_first(request: AnyRequest) -> Response[bytes] | None:
    if "x-answer" in request.headers:
        return Response(b"first", status_code=202)
    if "x-refuse" in request.headers:
        raise HTTPException("First.", status_code=403)
    return None


@get("/{name:str}")
async def look_below(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    return Response(name.encode())


def answer(request: AnyRequest, error: Exception) -> Response[Any]:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(f"{type(error).__name__}: {error}".encode(), status_code=status, headers=headers)


HANDLERS = [
    *(make, look, look_at_all, look_at_part, remove, read_file, read_text, look_at_number, give_dict, give_text),
    *(give_cookie, give_own_type, give_stream, give_what_has_no_json, take_nothing, refuse, fail),
    Router("/below", route_handlers=[look_below], before_request=ask_first),
]
DIRECT = DirectApp(HANDLERS, openapi_config=None, logging_config=None, answer=answer)
WITH_FRAMEWORK = Litestar(HANDLERS, openapi_config=None, logging_config=None, exception_handlers={Exception: answer})


async def called(app: Litestar, method: str, path: str, *headers: tuple[bytes, bytes], root_path: str = "") -> Messages:
    sent: list[Any] = []
    scope: Any = {
        **{"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": root_path},
        **{"query_string": b"", "headers": [(b"host", b"here:1"), *headers], "http_version": "1.1", "scheme": "http"},
        **{"server": ("here", 1), "client": ("there", 2), "asgi": {"version": "3.0"}},
    }

    body = iter([{"type": "http.request", "body": b"body", "more_body": False}])

    async def receive() -> Any:
        return next(body, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":  # Litestar lists the methods of a path in any order
            headers = [(name, sorted(value) if name == b"allow" else value) for name, value in message["headers"]]
            message = {**message, "headers": headers}
        sent.append(message)

    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "path",
    [
        *("/things/a", "/things/all", "/things/", "/things", "/things/a b", "/things/ä", "//things/a", "/things/a/"),
        *("/things/all/a", "/things/all/a/parts/b", "/things/all/a/parts/", "/things/all/a/b/c", "", "/"),
        *(
            "/files",
            "/files/",
            "/files/a",
            "/files/a/b",
            "/files/a/./b",
            "/texts/a/./b",
            "/texts/a//ä b.css",
            "/texts/a/",
        ),
        *("/numbers/1", "/numbers/a", "/dict", "/text", "/cookie", "/own-type", "/stream"),
        *("/unserializable", "/nothing-taken", "/refused", "/failed", "/below/a", "/below", "/else"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "TRACE"])
async def test_a_response_equals_the_frameworks(method: str, path: str) -> None:
    assert await called(DIRECT, method, path) == await called(WITH_FRAMEWORK, method, path)


@pytest.mark.parametrize("header", [(b"x-answer", b"1"), (b"x-refuse", b"1")])
async def test_checks_of_a_router_run_first(header: tuple[bytes, bytes]) -> None:
    messages = await called(DIRECT, "GET", "/below/a", header)
    assert messages[0]["status"] in (202, 403)
    assert messages == await called(WITH_FRAMEWORK, "GET", "/below/a", header)


async def test_an_invalid_host_is_refused_like_in_the_framework() -> None:
    for app in (DIRECT, WITH_FRAMEWORK):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        scope: Any = {"type": "http", "method": "GET", "path": "/things/a", "headers": [(b"host", b"a/b")]}
        await app(scope, cast("Any", None), send)
        assert sent[0]["status"] == 400


async def test_a_path_below_a_root_path_is_found() -> None:
    request: Any = ("GET", "/root/things/a")
    assert await called(DIRECT, *request, root_path="/root") == await called(
        WITH_FRAMEWORK, *request, root_path="/root"
    )


async def test_plain_handlers_are_called_without_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("the framework was asked")

    monkeypatch.setattr(Litestar, "__call__", never)
    for path in (
        "/things/a",
        "/things/all",
        "/below/a",
        "/files/a/b",
        "/texts/a",
        "/text",
        "/dict",
        "/stream",
        "/failed",
    ):
        assert await called(DIRECT, "GET", path)

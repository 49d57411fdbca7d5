"""The HTTP client of runs: which requests it passes straight to its transport, and what it does around them."""

import base64
from typing import Any, Final

import httpx
import pytest

from babelgate.adapters.kit.client.direct_client import DirectClient

pytestmark = pytest.mark.asyncio

URL: Final = "http://agent.example/x"


class Stub(httpx.AsyncBaseTransport):
    """Transport that answers every request with a redirect and a cookie."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        headers = {"Location": "/y", "Set-Cookie": "a=b"}
        return httpx.Response(307 if request.url.path == "/x" else 200, headers=headers, content=b"hello")


async def stream(http: httpx.AsyncClient, url: str = URL, **options: Any) -> httpx.Response:
    response = await http.send(http.build_request("GET", url), stream=True, **options)
    await response.aclose()
    return response


async def test_a_streamed_response_has_its_request_and_no_next_one() -> None:
    stub = Stub()
    async with DirectClient(transport=stub) as http:
        response = await stream(http, follow_redirects=False)
        assert response.request is stub.requests[0]
        assert (response.status_code, response.next_request, dict(http.cookies)) == (307, None, {})


@pytest.mark.parametrize("options", [{"follow_redirects": True}, {"follow_redirects": False, "auth": ("jane", "x")}])
async def test_other_requests_are_sent_as_httpx_sends_them(options: dict[str, Any]) -> None:
    stub = Stub()
    async with DirectClient(transport=stub) as http:
        await stream(http, **options)
        assert dict(http.cookies) == {"a": "b"}


async def test_a_request_whose_body_is_read_follows_redirects() -> None:
    stub = Stub()
    async with DirectClient(transport=stub, follow_redirects=True) as http:
        assert (await http.get(URL)).content == b"hello"
    assert [request.url.path for request in stub.requests] == ["/x", "/y"]


@pytest.mark.parametrize("auth", [None, ("jane", "secret")])
async def test_credentials_become_a_header(auth: tuple[str, str] | None) -> None:
    stub = Stub()
    url = "http://jane:secret@agent.example/x" if auth is None else URL
    async with DirectClient(transport=stub, auth=auth) as http:
        await stream(http, url, follow_redirects=False)
    assert stub.requests[0].headers["authorization"] == f"Basic {base64.b64encode(b'jane:secret').decode()}"


async def test_each_scheme_has_its_transport() -> None:
    stub, mounted = Stub(), Stub()
    async with DirectClient(transport=stub, mounts={"grpc://": mounted}) as http:
        await stream(http, "grpc://agent.example/x", follow_redirects=False)
    assert (len(stub.requests), len(mounted.requests)) == (0, 1)


async def test_hooks_see_the_request_and_the_response() -> None:
    noted: list[object] = []

    async def note(value: object) -> None:
        noted.append(value)

    async with DirectClient(transport=Stub(), event_hooks={"request": [note], "response": [note]}) as http:
        response = await stream(http, follow_redirects=False)
    assert noted == [response.request, response]


async def test_a_failed_hook_closes_the_response() -> None:
    responses: list[httpx.Response] = []

    async def fail(response: httpx.Response) -> None:
        responses.append(response)
        raise ValueError

    async with DirectClient(transport=Stub(), event_hooks={"response": [fail]}) as http:
        with pytest.raises(ValueError):
            await stream(http, follow_redirects=False)
    assert responses[0].is_closed


async def test_a_closed_client_sends_nothing() -> None:
    stub = Stub()
    http = DirectClient(transport=stub)
    await http.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await stream(http, follow_redirects=False)
    assert not stub.requests

"""The HTTP client that adds tokens: to which origins, and what happens to a request that is refused."""

from collections.abc import AsyncGenerator
from typing import cast

import httpx
import pytest

from babelgate.adapters.kit.client.authorization import AuthorizedClient

pytestmark = pytest.mark.asyncio

URL = "https://planner.example.com"


class NumberedTokens(httpx.AsyncBaseTransport):
    """Tokens with numbers, and a transport that refuses the first requests."""

    def __init__(self, refused: int = 0, status: int = 401) -> None:
        self.count = 1
        self.refusals: list[int] = []
        self.requests: list[tuple[str | None, bytes]] = []
        self._refused, self._status = refused, status

    async def get(self) -> str | None:
        return f"token-{self.count}"

    async def replace(self, refused: str) -> str | None:
        assert refused == f"token-{self.count}"
        self.count += 1
        return await self.get()

    def handle_refusal(self, response: httpx.Response) -> None:
        self.refusals.append(response.status_code)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = b"".join([piece async for piece in cast("httpx.AsyncByteStream", request.stream)])
        self.requests.append((request.headers.get("authorization"), body))
        return httpx.Response(self._status if len(self.requests) <= self._refused else 200)

    def client(self) -> AuthorizedClient:
        return AuthorizedClient(self, [f"{URL}/a2a"], transport=self)


async def test_only_the_origins_of_the_agent_get_a_token() -> None:
    tokens = NumberedTokens()
    async with tokens.client() as http:
        for url in (f"{URL}/x", "https://planner.example.com:444/x", "http://planner.example.com/x", "https://evil/x"):
            await http.get(url)
    assert [sent for sent, _ in tokens.requests] == ["Bearer token-1", None, None, None]


async def test_grpc_on_the_host_of_the_agent_gets_a_token() -> None:
    tokens = NumberedTokens()
    async with tokens.client() as http:
        for url in ("grpcs://planner.example.com:50051/x", "grpc://planner.example.com:50051/x", "grpcs://evil:1/x"):
            await http.post(url)
    assert [sent for sent, _ in tokens.requests] == ["Bearer token-1", None, None]


@pytest.mark.parametrize(
    ("refused", "status", "sent", "refusals"),
    [
        (1, 401, ["token-1", "token-2"], []),
        (2, 401, ["token-1", "token-2"], [401]),
        (1, 403, ["token-1"], [403]),
    ],
)
async def test_a_request_is_repeated_once_after_401(
    refused: int, status: int, sent: list[str], refusals: list[int]
) -> None:
    tokens = NumberedTokens(refused, status)
    async with tokens.client() as http:
        await http.post(URL, content=b"hello")
    assert tokens.requests == [(f"Bearer {token}", b"hello") for token in sent]
    assert tokens.refusals == refusals


async def test_a_body_that_can_be_read_once_is_not_repeated() -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"hello"

    tokens = NumberedTokens(1)
    async with tokens.client() as http:
        response = await http.post(URL, content=pieces())
    assert (response.status_code, len(tokens.requests), tokens.count) == (401, 1, 2)

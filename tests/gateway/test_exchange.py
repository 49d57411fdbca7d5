"""Tests of `hang_up`: the code that handles a request can close the connection of exactly this request."""

import asyncio

from babelgate.gateway.exchange import SCOPE_KEY, enter_exchange, hang_up


async def test_a_request_handler_can_close_its_connection() -> None:
    closed: list[str] = []

    async def answer(name: str) -> None:
        enter_exchange({SCOPE_KEY: lambda: closed.append(name)})
        await asyncio.gather(cut(), asyncio.sleep(0))

    async def cut() -> None:
        hang_up()

    await asyncio.gather(answer("a"), answer("b"))
    assert sorted(closed) == ["a", "b"]


async def test_hanging_up_outside_of_a_request_does_nothing() -> None:
    hang_up()


async def test_a_server_without_the_extension_is_ignored() -> None:
    enter_exchange({"type": "http"})
    hang_up()

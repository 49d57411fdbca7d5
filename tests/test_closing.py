import asyncio

from tests.closing import ClosingLoop


def test_loops_are_made_so_by_default() -> None:
    loop = asyncio.new_event_loop()
    assert isinstance(loop, ClosingLoop)
    loop.close()


def test_a_connection_whose_other_end_has_just_hung_up_is_closed() -> None:
    kept: list[asyncio.StreamWriter] = []
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)
        served.set()
        await reader.read()
        writer.close()

    async def talk() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await served.wait()
        writer.close()
        server.close()

    loop = ClosingLoop()
    loop.run_until_complete(talk())
    loop.close()
    assert kept[0].transport.get_extra_info("socket").fileno() == -1

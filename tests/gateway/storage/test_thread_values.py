"""Tests of searches for threads by the values of their state."""

from typing import Any, Final

from sqlalchemy import select

from babelgate.canonical import StateUpdate, ThreadChange, ThreadFilter
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import ThreadValueRow
from tests.gateway.hubs import OWNER, Echo, HubFactory, ends, registered, submit

EACH_DATABASE: Final = True


async def create_thread_with(hub: GatewayHub, **values: Any) -> str:
    thread = await hub.create_thread(OWNER, ThreadChange())
    await hub.update_state(OWNER, StateUpdate(thread_id=thread.thread_id, values=values))
    return thread.thread_id


async def search_threads(hub: GatewayHub, owner: str = OWNER, status: Any = None, **values: Any) -> set[str]:
    where = ThreadFilter(values=values, status=status)
    views = [view async for view in await hub.reads.threads(owner, where, limit=100)]
    assert await hub.reads.count_threads(owner, where) == len(views)
    return {view.thread.thread_id for view in views}


async def rows(hub: GatewayHub) -> list[Any]:
    table = table_of(ThreadValueRow)
    return await hub.journal.query(lambda connection: list(connection.execute(select(table.c.body)).scalars()))


async def test_threads_are_found_by_fields_of_their_values(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    red, blue = (
        await create_thread_with(hub, color="red", deep={"a": 1, "b": 2}),
        await create_thread_with(hub, color="blue", deep={"a": 1}),
    )
    assert await search_threads(hub, color="red") == {red}
    assert await search_threads(hub, deep={"a": 1}) == {red, blue}
    assert await search_threads(hub, deep={"a": 1}, status="idle") == {red, blue}
    assert await search_threads(hub, deep={"a": 1}, status="busy") == set()
    assert await search_threads(hub, color="green") == await search_threads(hub, "bob", color="red") == set()
    assert len(await rows(hub)) == 2


async def test_a_number_is_found_in_any_notation(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    whole, point, other = (
        await create_thread_with(hub, n=7),
        await create_thread_with(hub, n=7.0),
        await create_thread_with(hub, n=70),
    )
    for number in (7, 7.0):
        assert await search_threads(hub, n=number) == {whole, point}  # the first search writes the rows of the index
        assert await search_threads(hub, n=number) == {whole, point}
    assert await search_threads(hub, n=70) == {other}
    zero, minus = await create_thread_with(hub, n=0), await create_thread_with(hub, n=-0.0)
    for number in (0, -0.0):
        assert await search_threads(hub, n=number) == {zero, minus}
    flag, nothing, listed = (
        await create_thread_with(hub, f=True),
        await create_thread_with(hub, f=None),
        await create_thread_with(hub, f=["ä", 1]),
    )
    assert await search_threads(hub, f=True) == await search_threads(hub, f=True) == {flag}
    assert await search_threads(hub, f=None) == {nothing}
    assert await search_threads(hub, f=["ä", 1.0]) == {listed}
    assert await search_threads(hub, f=1) == set()


async def test_a_changed_thread_is_indexed_again(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    thread_id = await create_thread_with(hub, color="red")
    assert await search_threads(hub, color="red") == {thread_id}
    await hub.update_state(OWNER, StateUpdate(thread_id=thread_id, values={"color": "blue"}))
    assert await search_threads(hub, color="red") == set()
    assert await search_threads(hub, color="blue") == {thread_id}
    await hubs.stop(hub)
    hub = await hubs.start(registered("a", Echo()))
    assert await search_threads(hub, color="blue") == {thread_id}


async def test_too_large_values_are_also_found(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    thread_id = await create_thread_with(hub, color="red", much="x" * 20_000)
    for _ in range(2):
        assert await search_threads(hub, color="red") == {thread_id}
    assert await rows(hub) == [None]


async def test_values_of_erased_threads_and_removed_runs_are_deleted(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit(hub, "a", data={"color": "red"}, thread_id=await create_thread_with(hub, size=1))
    await ends(hub, receipt)
    assert await search_threads(hub, size=1) == {receipt.thread_id}
    assert b"red" in (await rows(hub))[0]
    await hub.remove_run(OWNER, receipt.run_id)
    assert await rows(hub) == []
    assert await search_threads(hub, size=1) == {receipt.thread_id}
    await hub.delete_thread(OWNER, receipt.thread_id)
    assert await rows(hub) == []
    assert await search_threads(hub, size=1) == set()

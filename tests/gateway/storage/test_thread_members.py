"""Tests of the index of threads by the members of their metadata."""

from typing import Any, Final

import pytest

from babelgate.canonical import ThreadChange, ThreadFilter
from babelgate.gateway.storage import thread_members
from tests.gateway.hubs import OWNER, HubFactory
from tests.gateway.storage.test_listing import ids

EACH_DATABASE: Final = True
VALUES: Final[list[Any]] = [1, 1.5, 2**60, True, False, None, "1", "", "é", [1], {"x": 1}]


@pytest.mark.parametrize("few", [thread_members.FEW, 1], ids=["by key", "in order"])
async def test_each_value_of_metadata_is_found(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Search with a few candidates, which are read by their keys, and with more of them."""
    monkeypatch.setattr(thread_members, "FEW", few)
    hub = await hubs.start()
    of_value = {
        repr(value): [(await hub.create_thread(OWNER, ThreadChange(metadata={"a": value}))).thread_id for _ in "12"]
        for value in VALUES
    }
    await hub.create_thread("other owner", ThreadChange(metadata={"a": 1}))
    for value in VALUES:
        assert await ids(hub, ThreadFilter(metadata={"a": value})) == of_value[repr(value)][::-1]
    assert await ids(hub, ThreadFilter(metadata={"a": 1.0})) == of_value["1"][::-1]
    assert await ids(hub, ThreadFilter(metadata={"a": 1, "b": 1})) == []
    changed, erased = of_value["1"]
    await hub.change_thread(OWNER, changed, ThreadChange(metadata={"a": 2}))
    await hub.delete_thread(OWNER, erased)
    assert await ids(hub, ThreadFilter(metadata={"a": 1})) == []
    assert await ids(hub, ThreadFilter(metadata={"a": 2})) == [changed]
    assert await hub.reads.count_threads(OWNER, ThreadFilter(metadata={"a": 2})) == 1


async def test_each_of_many_members_is_found(hubs: HubFactory) -> None:
    hub = await hubs.start()
    many = {f"name {number}": number for number in range(100)}
    thread = await hub.create_thread(OWNER, ThreadChange(metadata=many))
    for name, value in many.items():
        assert await ids(hub, ThreadFilter(metadata={name: value})) == [thread.thread_id]
        assert await ids(hub, ThreadFilter(metadata={name: -1})) == []
    assert await ids(hub, ThreadFilter(metadata=many)) == [thread.thread_id]

"""Tests of the assistants of owners, on a real database."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.canonical import Assistant, AssistantChange, AssistantQuery, FaultCode, FaultError
from babelgate.gateway.clock import Clock
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.assistants import AssistantStore
from babelgate.gateway.storage.journal import Journal
from tests.empty import make_database

EACH_DATABASE: Final = True

OF_OWNER = Assistant(assistant_id="1", agent="echo", name="Mine", created_at=0, updated_at=0)
SYSTEM = Assistant(assistant_id="0", agent="echo", name="echo", created_at=0, updated_at=0)


@pytest.fixture
async def assistants(tmp_path: Path, postgres: str | None) -> AsyncGenerator[AssistantStore]:
    path = tmp_path / "a.db"
    make_database(path)
    journal = Journal(postgres or f"sqlite:///{path}", power=False, clock=Clock())
    await journal.open()
    opened = AssistantStore(journal, Clock(), lambda: Limits(metadata=100, input=1000))
    await opened.start()
    yield opened
    await journal.close()


async def search_names(assistants: AssistantStore, owner: str = "alice", **filters: Any) -> list[str]:
    query = AssistantQuery(defaults=(SYSTEM,), **filters)
    names = [each.name async for each in await assistants.search(owner, query)]
    assert await assistants.count(owner, query) >= len(names)
    return names


async def test_a_list_has_assistants_of_the_owner_and_defaults(assistants: AssistantStore) -> None:
    await assistants.create("alice", OF_OWNER)
    await assistants.create("alice", OF_OWNER.replace(assistant_id="2", agent="ask", name="Other", metadata={"a": 1}))
    assert await search_names(assistants) == ["Other", "Mine", "echo"]
    assert await search_names(assistants, "bob") == ["echo"]
    assert await search_names(assistants, agents=frozenset({"echo"})) == ["Mine", "echo"]
    assert await search_names(assistants, name="IN") == ["Mine"]
    assert await search_names(assistants, metadata={"a": 1}) == ["Other"]
    assert await search_names(assistants, order="name", descending=False) == ["Mine", "Other", "echo"]
    assert await search_names(assistants, order="agent", descending=False, limit=1, offset=1) == ["echo"]


async def test_an_owners_change_hides_the_default_assistant(assistants: AssistantStore) -> None:
    changed = await assistants.change("alice", "0", AssistantChange(name="changed"), SYSTEM)
    assert (changed.version, changed.agent) == (2, "echo")
    assert await search_names(assistants) == ["changed"]
    assert await search_names(assistants, "bob") == ["echo"]
    assert await assistants.versions("alice", "0") == [2, 1]
    first = await assistants.version("alice", "0", 1)
    assert first is not None and first.name == "echo"
    assert await assistants.delete("alice", "0") and not await assistants.delete("alice", "0")
    assert await search_names(assistants) == ["echo"]


async def test_a_new_version_follows_the_newest_number(assistants: AssistantStore) -> None:
    await assistants.create("alice", OF_OWNER.replace(metadata={"a": 1}))
    await assistants.change("alice", "1", AssistantChange(name="second", metadata={"b": 2}))
    back = await assistants.use_version("alice", "1", 1)
    assert (back.version, back.name, back.metadata) == (1, "Mine", {"a": 1})
    third = await assistants.change("alice", "1", AssistantChange(description="third"))
    assert (third.version, third.name, third.metadata) == (3, "Mine", {"a": 1})
    assert await assistants.get("alice", "1") == third


async def test_unknown_and_too_large_assistants_are_refused(assistants: AssistantStore) -> None:
    await assistants.create("alice", OF_OWNER)
    for refused, code in (
        (assistants.create("alice", OF_OWNER), FaultCode.CONFLICT),
        (assistants.create("alice", OF_OWNER.replace(assistant_id="9", config={"a": "x" * 2000})), FaultCode.TOO_LARGE),
        (assistants.change("alice", "1", AssistantChange(metadata={"a": "x" * 200})), FaultCode.TOO_LARGE),
        (assistants.change("bob", "1", AssistantChange()), FaultCode.NOT_FOUND),
        (assistants.use_version("alice", "1", 2), FaultCode.NOT_FOUND),
        (assistants.use_version("bob", "1", 1), FaultCode.NOT_FOUND),
    ):
        with pytest.raises(FaultError) as raised:
            await refused
        assert raised.value.fault.code is code
    assert await assistants.versions("alice", "1") == [1]
    assert await search_names(assistants) == ["Mine", "echo"]

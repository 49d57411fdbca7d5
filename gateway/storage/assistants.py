"""Assistants in the database: one row per assistant with the version in use, and one row per version."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from babelgate.canonical.assistant import Assistant, AssistantChange, AssistantQuery
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.json import has_members
from babelgate.canonical.listed import Listed
from babelgate.canonical.stored import decode_snapshot, encode_snapshot
from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import Clock
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.audit import deletion
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import create_listing
from babelgate.gateway.storage.needles import find_needles, has_needles
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import AssistantRow, AssistantVersionRow
from babelgate.gateway.storage.transaction import Transaction

_ROW, _VERSION = table_of(AssistantRow), table_of(AssistantVersionRow)


class AssistantStore:
    def __init__(self, journal: Journal, clock: Clock, limits: Callable[[], Limits]) -> None:
        """Create a store over a journal. `limits` returns the current limits of the settings."""
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._owners: set[str] = set()
        """Owners that may have assistants. For all other owners `get` answers without a query, unless gateways share
        the database."""

    async def start(self) -> None:
        self._owners = await self._journal.query(_owners)

    async def create(self, owner: str, assistant: Assistant) -> Assistant:
        self._check(assistant)
        now = self._clock.now()
        assistant = assistant.replace(version=1, created_at=now, updated_at=now)
        self._owners.add(owner)
        return await self._journal.write(_create, owner, assistant)

    async def get(self, owner: str, assistant_id: str) -> Assistant | None:
        if owner not in self._owners and not self._journal.is_shared:
            return None
        return await self._journal.query(_get, owner, assistant_id)

    async def change(
        self, owner: str, assistant_id: str, change: AssistantChange, default: Assistant | None = None
    ) -> Assistant:
        self._owners.add(owner)
        return await self._journal.write(self._change, owner, assistant_id, change, default)

    def _change(
        self, tx: Transaction, owner: str, assistant_id: str, change: AssistantChange, default: Assistant | None
    ) -> Assistant:
        current = _get(tx.connection, owner, assistant_id)
        before = current or default
        if before is None:
            raise _not_found(assistant_id)
        newest = _newest(tx.connection, owner, assistant_id) if current else before.version
        changed = _apply_change(before, change).replace(version=newest + 1, updated_at=self._clock.now())
        self._check(changed)
        if current is None:
            _create(tx, owner, before)
        _keep_version(tx, owner, changed)
        _use(tx, owner, changed)
        return changed

    async def use_version(self, owner: str, assistant_id: str, version: int) -> Assistant:
        return await self._journal.write(self._use_version, owner, assistant_id, version)

    def _use_version(self, tx: Transaction, owner: str, assistant_id: str, version: int) -> Assistant:
        if _get(tx.connection, owner, assistant_id) is None:
            raise _not_found(assistant_id)
        chosen = _get_version(tx.connection, owner, assistant_id, version)
        if chosen is None:
            # The error text of langgraph-api 0.16.7.
            text = f"Version {version} not found for assistant {assistant_id}"
            raise FaultError(FaultCode.NOT_FOUND, text)
        assistant = chosen.replace(updated_at=self._clock.now())
        _use(tx, owner, assistant)
        return assistant

    async def delete(self, owner: str, assistant_id: str) -> bool:
        return await self._journal.write_audited(
            deletion("assistant", assistant_id, owner), _delete, owner, assistant_id
        )

    async def search(self, owner: str, query: AssistantQuery) -> Listed[Assistant]:
        places = await self._journal.query(_search, owner, query)
        defaults = {each.assistant_id: each for each in query.defaults}
        return create_listing(self._journal, places, partial(_read, owner=owner, defaults=defaults))

    async def count(self, owner: str, query: AssistantQuery) -> int:
        return await self._journal.query(_count, owner, query)

    async def versions(self, owner: str, assistant_id: str) -> Sequence[int]:
        return await self._journal.query(_versions, owner, assistant_id)

    async def version(self, owner: str, assistant_id: str, version: int) -> Assistant | None:
        return await self._journal.query(_get_version, owner, assistant_id, version)

    def _check(self, assistant: Assistant) -> None:
        limits = self._limits()
        check_size(limits.metadata, assistant.metadata)
        sized = (assistant.name, assistant.description, assistant.config, assistant.context)
        check_size(limits.input, *sized)


def _not_found(assistant_id: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {assistant_id} not found")


def _apply_change(before: Assistant, change: AssistantChange) -> Assistant:
    metadata: JsonObject = {**before.metadata, **(change.metadata or {})}
    values = {
        "agent": change.agent,
        "name": change.name,
        "description": change.description,
        "config": change.config,
        "context": change.context,
    }
    return before.replace(metadata=metadata, **{name: each for name, each in values.items() if each is not None})


# Rows


def _owners(connection: Connection) -> set[str]:
    return set(connection.execute(select(_ROW.c.owner).distinct()).scalars())


def _its(table: Any, owner: str, assistant_id: str) -> Any:
    return (table.c.owner == owner) & (table.c.assistant_id == assistant_id)


def _create(tx: Transaction, owner: str, assistant: Assistant) -> Assistant:
    if _get(tx.connection, owner, assistant.assistant_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Assistant {assistant.assistant_id} already exists")
    row = {"owner": owner, "assistant_id": assistant.assistant_id, "body": encode_snapshot(assistant)}
    tx.connection.execute(insert(_ROW), row)
    _keep_version(tx, owner, assistant)
    return assistant


def _keep_version(tx: Transaction, owner: str, assistant: Assistant) -> None:
    row = {
        "owner": owner,
        "assistant_id": assistant.assistant_id,
        "version": assistant.version,
        "body": encode_snapshot(assistant),
    }
    tx.connection.execute(insert(_VERSION), row)


def _use(tx: Transaction, owner: str, assistant: Assistant) -> None:
    tx.connection.execute(
        update(_ROW).where(_its(_ROW, owner, assistant.assistant_id)), {"body": encode_snapshot(assistant)}
    )


def _delete(tx: Transaction, owner: str, assistant_id: str) -> bool:
    tx.connection.execute(delete(_VERSION).where(_its(_VERSION, owner, assistant_id)))
    return tx.connection.execute(delete(_ROW).where(_its(_ROW, owner, assistant_id))).rowcount > 0


def _get(connection: Connection, owner: str, assistant_id: str) -> Assistant | None:
    body = connection.execute(select(_ROW.c.body).where(_its(_ROW, owner, assistant_id))).scalar()
    return None if body is None else decode_snapshot(Assistant, body)


def _newest(connection: Connection, owner: str, assistant_id: str) -> int:
    return _versions(connection, owner, assistant_id)[0]


def _versions(connection: Connection, owner: str, assistant_id: str) -> list[int]:
    numbers = select(_VERSION.c.version).where(_its(_VERSION, owner, assistant_id))
    return list(connection.execute(numbers.order_by(_VERSION.c.version.desc())).scalars())


def _get_version(connection: Connection, owner: str, assistant_id: str, version: int) -> Assistant | None:
    where = _its(_VERSION, owner, assistant_id) & (_VERSION.c.version == version)
    body = connection.execute(select(_VERSION.c.body).where(where)).scalar()
    return None if body is None else decode_snapshot(Assistant, body)


# Lists

_Match = tuple[Any, str, int]
"""One result of a search: the value to sort by, the assistant's id, and the size of its stored body in bytes."""
_DEFAULT_SIZE: Final = 1000
"""Assumed size, in bytes, of a default assistant in a list. Chosen: it has no stored body to measure."""


def _search(connection: Connection, owner: str, query: AssistantQuery) -> list[tuple[str, int]]:
    matches = sorted(_matching(connection, owner, query), reverse=query.descending)
    return [(key, size) for _, key, size in islice(matches, query.offset, query.offset + query.limit)]


def _count(connection: Connection, owner: str, query: AssistantQuery) -> int:
    return sum(1 for _ in _matching(connection, owner, query))


def _matching(connection: Connection, owner: str, query: AssistantQuery) -> Iterator[_Match]:
    defaults = {each.assistant_id: each for each in query.defaults}
    if defaults:  # also hidden by a changed copy that does not match
        changed = select(_ROW.c.assistant_id).where(_ROW.c.owner == owner, _ROW.c.assistant_id.in_(list(defaults)))
        for assistant_id in connection.execute(changed).scalars():
            del defaults[assistant_id]
    preselected = has_needles(_ROW.c.body, find_needles(query.metadata))
    selected = select(_ROW.c.body).where(_ROW.c.owner == owner, *preselected)
    with closing(connection.execute(stream_rows(selected))) as rows:
        for (body,) in rows:
            assistant = decode_snapshot(Assistant, body)
            if _is_match(assistant, query):
                yield getattr(assistant, query.order), assistant.assistant_id, len(body)
    for each in defaults.values():
        if _is_match(each, query):
            yield getattr(each, query.order), each.assistant_id, _DEFAULT_SIZE


def _is_match(assistant: Assistant, query: AssistantQuery) -> bool:
    if query.agents is not None and assistant.agent not in query.agents:
        return False
    if query.name is not None and query.name.casefold() not in assistant.name.casefold():
        return False
    return has_members(assistant.metadata, query.metadata)


def _read(
    connection: Connection, *, owner: str, defaults: dict[str, Assistant], keys: Sequence[str]
) -> dict[str, Assistant]:
    read_assistants = {each: defaults[each] for each in keys if each in defaults}
    where = (_ROW.c.owner == owner) & _ROW.c.assistant_id.in_(keys)
    for assistant_id, body in connection.execute(select(_ROW.c.assistant_id, _ROW.c.body).where(where)):
        read_assistants[assistant_id] = decode_snapshot(Assistant, body)
    return read_assistants

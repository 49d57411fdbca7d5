"""Counter of the commits of the journal's writer, as SQLite reports them."""

from typing import Any

from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import Transaction


class Commits:
    def __init__(self) -> None:
        self.count = 0

    async def watch(self, journal: Journal) -> None:
        await journal.write(self._watch)
        self.count = 0

    def _watch(self, tx: Transaction) -> None:
        driver: Any = tx.connection.connection.dbapi_connection
        driver.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        self.count += statement == "COMMIT"

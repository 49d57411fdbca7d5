"""The extension on HTTP: who asks for it is told that it is active."""

from typing import Any

import pytest
from litestar import Request

from babelgate.adapters._extension import HEADER, URI
from babelgate.adapters._server.extended import confirm, is_asked


def _request(*headers: tuple[str, str]) -> Request[Any, Any, Any]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope: Any = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw, "state": {}}
    return Request(scope)


@pytest.mark.parametrize(
    ("named", "active"), [(URI, True), (f"https://example.com/x, {URI}", True), (f"{URI}2", False), ("", False)]
)
def test_it_is_active_for_a_request_that_names_it(named: str, active: bool) -> None:
    assert is_asked(_request((HEADER, named))) == active
    assert confirm(active=active) == ({HEADER: URI} if active else {})


def test_it_is_not_where_nothing_is_named() -> None:
    assert not is_asked(_request())

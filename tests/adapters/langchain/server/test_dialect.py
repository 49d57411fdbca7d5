"""Dialect of a path."""

import pytest
from litestar.testing import RequestFactory

from babelgate.adapters.langchain.server.dialect import PREFIX, both, dialect_of


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        ("agent-protocol", ["/agent-protocol", "/agent-protocol/runs", "/agent-protocol/threads/a/runs"]),
        ("langgraph", ["/runs", "/agent-protocols/runs", "/threads/agent-protocol", "/"]),
    ],
)
def test_only_paths_below_the_prefix_use_the_agent_protocol(dialect: str, paths: list[str]) -> None:
    assert {dialect_of(RequestFactory().get(path)) for path in paths} == {dialect}
    assert both("/runs") == ["/runs", f"{PREFIX}/runs"]

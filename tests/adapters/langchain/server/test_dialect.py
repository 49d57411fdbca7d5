"""Which dialect a path is in."""

import pytest
from litestar.testing import RequestFactory

from babelgate.adapters.langchain.server.dialect import PREFIX, both, dialect_of


@pytest.mark.parametrize("path", ["/agent-protocol", "/agent-protocol/runs", "/agent-protocol/threads/a/runs"])
def test_below_the_prefix_the_agent_protocol_is_spoken(path: str) -> None:
    assert dialect_of(RequestFactory().get(path)) == "agent-protocol"


@pytest.mark.parametrize("path", ["/runs", "/agent-protocols/runs", "/threads/agent-protocol", "/"])
def test_everywhere_else_it_is_langgraph(path: str) -> None:
    assert dialect_of(RequestFactory().get(path)) == "langgraph"


def test_a_path_of_both_is_there_once_in_each() -> None:
    assert [dialect_of(RequestFactory().get(path)) for path in both("/runs")] == ["langgraph", "agent-protocol"]
    assert both("/runs") == ["/runs", f"{PREFIX}/runs"]

"""Which dialect a path is in."""

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
def test_the_agent_protocol_is_spoken_below_its_prefix_alone(dialect: str, paths: list[str]) -> None:
    assert {dialect_of(RequestFactory().get(path)) for path in paths} == {dialect}
    assert both("/runs") == ["/runs", f"{PREFIX}/runs"]

"""Names for agents of upstream servers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.client.agent_name import free_name, legal_name
from babelgate.canonical.agent import AGENT_NAME


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Echo Agent", "echo-agent"),
        ("127.0.0.1:9000", "127.0.0.1-9000"),
        ("_x_", "x"),
        ("a_b.c", "a_b.c"),
        ("--x--", "x"),
        ("日本", "agent"),
        ("", "agent"),
        ("x" * 99, "x" * 63),
    ],
)
def test_a_name_is_derived_from_the_servers_name(text: str, name: str) -> None:
    assert legal_name(text) == name


def test_two_agents_of_a_server_do_not_share_a_name() -> None:
    assert free_name("Echo", {"echo", "echo-2"}) == "echo-3"


@given(st.text(max_size=80), st.integers(0, 5))
def test_every_name_is_legal_and_free(text: str, others: int) -> None:
    names: list[str] = []
    for _ in range(others + 1):
        name = free_name(text, names)
        assert name not in names
        assert AGENT_NAME.fullmatch(name)
        names.append(name)

"""The URL that a caller addressed, and response headers that report losses."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.server.caller import Caller, loss_header
from babelgate.canonical import Principal
from babelgate.canonical.thread import Loss

_DICTIONARY: Final = re.compile(
    r'[a-z*][a-z0-9_.*-]*="(?:[ !#-\[\]-~]|\\["\\])*"(?:, [a-z*][a-z0-9_.*-]*="(?:[ !#-\[\]-~]|\\["\\])*")*\Z'
)
"""Pattern of an RFC 8941 dictionary (section 3.2) whose values are strings."""


def _header(*losses: tuple[str, str]) -> str:
    return loss_header(Loss(feature=feature, how=how) for feature, how in losses).get("Babelgate-Loss", "")


@pytest.mark.parametrize(
    ("base_url", "agent", "path", "root"),
    [
        ("https://h/agent/echo", "echo", "/agent/echo", "https://h"),
        ("https://h/gate/agent/echo", "echo", "/agent/echo", "https://h/gate"),
        ("https://h", "echo", "", "https://h"),
        ("https://h", None, "", "https://h"),
        ("https://h/agent/None", None, "", "https://h/agent/None"),
    ],
)
def test_single_agent_is_that_of_the_url(base_url: str, agent: str | None, path: str, root: str) -> None:
    who = Caller(Principal.of_owner("alice"), base_url, agent)
    assert (who.agent_path, who.has_single_agent, who.root_url) == (path, path != "", root)


def test_without_losses_there_is_no_header() -> None:
    assert loss_header(()) == {}


def test_losses_of_one_feature_are_one_member() -> None:
    header = _header(("text", "cut"), ("file-url", "not read"), ("text", "cut"), ("text", "changed"))
    assert header == 'text="cut; changed", file-url="not read"'


def test_other_characters_of_a_feature_are_replaced() -> None:
    assert _header(("Tool calls\r\nX: y", "a")) == 'tool_calls__x__y="a"'
    assert _header(("", "a")) == '*="a"'
    assert _header(("Zoë", "a")) == 'zo_="a"'


def test_other_characters_of_a_text_are_escaped() -> None:
    assert _header(("text", 'say "ü"\n\\')) == r'text="say \"\\xfc\"\\n\\"'


def test_many_losses_are_counted_and_long_ones_truncated() -> None:
    many = _header(*((f"feature-{n}", "gone") for n in range(3_000)))
    assert len(many) < 5_000
    omitted = 3_000 - many.count('="gone"')
    assert many.endswith(f', others="{omitted} more features"')
    assert len(_header(("text", "ü" * 200_000))) < 3_000
    assert len(_header(("x" * 200_000, "gone"))) < 100


@given(st.lists(st.tuples(st.text(), st.text())))
def test_any_losses_are_a_dictionary_of_rfc_8941(losses: list[tuple[str, str]]) -> None:
    header = _header(*losses)
    assert not losses or _DICTIONARY.match(header)
    assert len(header) < 5_000

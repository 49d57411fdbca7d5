"""Which events a subscription takes, and what is none."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.subscription import CHANNELS, parse_subscription
from babelgate.canonical import FaultError


@pytest.mark.parametrize(
    ("asked", "event", "taken"),
    [
        ({"channels": ["values"]}, (1, "values", ()), True),
        ({"channels": ["values"]}, (1, "updates", ()), False),
        ({"channels": ["values"], "since": 5}, (5, "values", ()), False),
        ({"channels": ["values"], "since": 5}, (6, "values", ()), True),
        ({"channels": ["custom"]}, (1, "custom", (), "a"), True),
        ({"channels": ["custom"]}, (1, "custom", ()), True),
        ({"channels": ["custom:a"]}, (1, "custom", (), "a"), True),
        ({"channels": ["custom:a"]}, (1, "custom", (), "b"), False),
        ({"channels": ["custom:a"]}, (1, "custom", ()), False),
    ],
)
def test_events_are_taken_by_channel_name_and_number(asked: Any, event: Any, taken: bool) -> None:
    assert parse_subscription(asked).is_subscribed(*event) is taken


PLACES: list[tuple[dict[str, Any], list[str], bool]] = [
    ({}, ["a:1", "b:2"], True),
    ({"namespaces": []}, ["a:1"], True),
    ({"namespaces": [["a"]]}, ["a:1"], True),
    ({"namespaces": [["a:1"]]}, ["a:1"], True),
    ({"namespaces": [["a:1"]]}, ["a:2"], False),
    ({"namespaces": [["a"]]}, [], False),
    ({"namespaces": [["a"]]}, ["ab:1"], False),
    ({"namespaces": [[]], "depth": 0}, [], True),
    ({"namespaces": [[]], "depth": 0}, ["a:1"], False),
    ({"namespaces": [[]], "depth": 1}, ["a:1"], True),
    ({"namespaces": [["b"], ["a"]], "depth": 1}, ["a:1", "c", "d"], False),
]


@pytest.mark.parametrize(("asked", "ns", "taken"), PLACES, ids=str)
def test_a_namespace_begins_with_a_path(asked: dict[str, Any], ns: list[str], taken: bool) -> None:
    assert parse_subscription({"channels": ["values"], **asked}).is_subscribed(1, "values", ns) is taken


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"channels": []},
        {"channels": "values"},
        {"channels": ["values", "nope"]},
        {"channels": ["custom:"]},
        {"channels": [1]},
        {"channels": ["values"], "since": -1},
        {"channels": ["values"], "since": True},
        {"channels": ["values"], "since": 2**53},
        {"channels": ["values"], "depth": "1"},
        {"channels": ["values"], "namespaces": {}},
        {"channels": ["values"], "namespaces": [[1]]},
    ],
    ids=str,
)
def test_what_is_no_subscription_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(FaultError):
        parse_subscription(params)


def test_all_channels_are_known() -> None:
    assert parse_subscription({"channels": list(CHANNELS)}).channels == frozenset(CHANNELS)

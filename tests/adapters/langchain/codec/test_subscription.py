"""Events that a subscription matches, and invalid subscriptions."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.subscription import CHANNELS, parse_subscription
from babelgate.canonical import FaultError


@pytest.mark.parametrize(
    ("params", "event", "expected"),
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
def test_events_are_matched_by_channel_name_and_number(params: Any, event: Any, expected: bool) -> None:
    assert parse_subscription(params).is_subscribed(*event) is expected


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


@pytest.mark.parametrize(("params", "ns", "expected"), PLACES, ids=str)
def test_events_are_matched_by_prefix_and_depth_of_namespace(
    params: dict[str, Any], ns: list[str], expected: bool
) -> None:
    assert parse_subscription({"channels": ["values"], **params}).is_subscribed(1, "values", ns) is expected


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
def test_an_invalid_subscription_is_rejected(params: dict[str, Any]) -> None:
    with pytest.raises(FaultError):
        parse_subscription(params)


def test_all_channels_can_be_subscribed() -> None:
    assert parse_subscription({"channels": list(CHANNELS)}).channels == frozenset(CHANNELS)

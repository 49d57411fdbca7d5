"""Which events a subscription takes, and what is none."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.subscription import CHANNELS, parse_subscription
from babelgate.canonical import FaultError


def test_channels_are_named() -> None:
    asked = parse_subscription({"channels": ["values"]})
    assert asked.is_subscribed(1, "values", ())
    assert not asked.is_subscribed(1, "updates", ())


def test_events_up_to_since_are_known() -> None:
    asked = parse_subscription({"channels": ["values"], "since": 5})
    assert not asked.is_subscribed(5, "values", ())
    assert asked.is_subscribed(6, "values", ())


def test_custom_events_are_taken_by_name_or_all() -> None:
    every, some = parse_subscription({"channels": ["custom"]}), parse_subscription({"channels": ["custom:a"]})
    assert every.is_subscribed(1, "custom", (), "a")
    assert every.is_subscribed(1, "custom", ())
    assert some.is_subscribed(1, "custom", (), "a")
    assert not some.is_subscribed(1, "custom", (), "b")
    assert not some.is_subscribed(1, "custom", ())


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

"""Features and how they are carried."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy


def test_features_are_named_like_the_keys_of_a_structured_header():
    for feature in Feature:
        assert feature.value.replace("-", "").isalpha()  # RFC 8941 §3.1.2: a key is lower-case letters, digits, `_-.*`
        assert feature.value == feature.value.lower()


def test_a_loss_says_how_and_where_it_is_written():
    assert lossy("cut", "Spec §1") == Carry("lossy", "cut", "Spec §1")
    assert dropped("no form", "Spec §2") == Carry("dropped", "no form", "Spec §2")
    assert FULL.level == "full"


def test_a_carry_cannot_be_changed():
    carry: Any = lossy("cut", "Spec §1")
    with pytest.raises(FrozenInstanceError):
        carry.level = "full"

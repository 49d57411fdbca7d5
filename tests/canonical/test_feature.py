"""Features, and how protocols carry them."""

import pytest

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole


def test_feature_names_are_keys_of_structured_headers():
    for feature in Feature:
        assert feature.value.replace("-", "").isalpha()  # RFC 8941 §3.1.2: a key is lower-case letters, digits, `_-.*`
        assert feature.value == feature.value.lower()


@pytest.mark.parametrize(
    ("carry", "in_answer", "in_stream"),
    [
        (FULL, False, False),
        (whole("with a mark", "x"), False, False),
        (whole("an event", "x", streamed_only=True), True, False),
        (lossy("in words", "x"), True, True),
        (dropped("no form", "x"), True, True),
    ],
)
def test_a_carry_is_lost_unless_it_arrives(carry: Carry, in_answer: bool, in_stream: bool) -> None:
    assert (carry.is_lost(), carry.is_lost(in_stream=True)) == (in_answer, in_stream)

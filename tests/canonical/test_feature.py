"""Features and how they are carried."""

from babelgate.canonical import Feature


def test_features_are_named_like_the_keys_of_a_structured_header():
    for feature in Feature:
        assert feature.value.replace("-", "").isalpha()  # RFC 8941 §3.1.2: a key is lower-case letters, digits, `_-.*`
        assert feature.value == feature.value.lower()

from babelgate.adapters.a2a.codec.names import to_camel_case, to_snake_case
from babelgate.canonical.value import JsonObject

USAGE: JsonObject = {"input_tokens": 3, "input_token_details": {"cache_read": [{"of_which": 1}]}, "total": None}


def test_names_of_every_object_are_in_camel_case() -> None:
    expected = {"inputTokens": 3, "inputTokenDetails": {"cacheRead": [{"ofWhich": 1}]}, "total": None}
    assert to_camel_case(USAGE) == expected


def test_names_survive_a_round_trip() -> None:
    assert to_snake_case(to_camel_case(USAGE)) == USAGE


def test_names_that_an_older_gateway_wrote_are_read() -> None:
    assert to_snake_case(USAGE) == USAGE

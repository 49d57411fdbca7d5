from base64 import b64encode
from random import Random
from typing import Any

import pytest

from babelgate.adapters.openai.codec.compaction import encode_compaction, expand_items, is_compaction
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject

ITEMS = [
    {"type": "message", "role": "user", "content": "é" * 1000},
    {"type": "message", "role": "assistant", "content": ""},
]


def expand(*items: Any, most: int = 2**20, values: int = 1000) -> list[Any]:
    return expand_items(items, most=most, values=values)


def bomb(size: int) -> JsonObject:
    """Return a small compaction of a large text."""
    return encode_compaction([{"type": "message", "role": "user", "content": "x" * size}])


def test_compaction_round_trips_and_is_deterministic() -> None:
    compaction = encode_compaction(ITEMS)
    assert is_compaction(compaction)
    assert expand({"role": "user"}, compaction, "?", compaction) == [{"role": "user"}, *ITEMS, "?", *ITEMS]
    assert compaction == encode_compaction(ITEMS)


@pytest.mark.parametrize("content", ["babelgate.1.", "babelgate.1.!", "babelgate.1." + b64encode(b"x" * 40).decode()])
def test_invalid_compaction_is_rejected(content: str) -> None:
    with pytest.raises(FaultError) as refused:
        expand("?", {"type": "compaction", "encrypted_content": content})
    fault = refused.value.fault
    assert (fault.code, fault.details["openai"]) == (FaultCode.INVALID, {"code": "invalid_compaction"})
    assert fault.message.startswith("input.1: ")


def test_changed_or_truncated_compaction_is_rejected() -> None:
    content = str(encode_compaction(ITEMS)["encrypted_content"])
    for other in (content[:-8], content[:-8] + "AAAAAAA=", content.replace("babelgate.1.", "babelgate.1.AAAA")):
        with pytest.raises(FaultError):
            expand({"type": "compaction", "encrypted_content": other})


def test_all_compactions_of_an_input_share_one_size_limit() -> None:
    compaction = bomb(2**18)
    assert len(str(compaction["encrypted_content"])) < 2000
    assert len(expand(compaction, compaction, compaction)) == 3
    with pytest.raises(FaultError) as refused:
        expand(compaction, compaction, compaction, compaction)
    assert refused.value.fault.code is FaultCode.TOO_LARGE


def test_all_compactions_of_an_input_share_one_value_limit() -> None:
    compaction = encode_compaction([{"n": n} for n in range(200)])
    assert len(expand(compaction, compaction)) == 400
    with pytest.raises(FaultError) as refused:
        expand(compaction, compaction, compaction)
    assert refused.value.fault.code is FaultCode.TOO_LARGE


def test_conversation_too_large_to_compact_is_rejected_with_advice() -> None:
    noise = b64encode(Random(0).randbytes(8 * 2**20)).decode()  # random bytes cannot be compressed
    with pytest.raises(FaultError, match="previous_response_id") as refused:
        encode_compaction([{"type": "message", "role": "user", "content": noise}])
    assert refused.value.fault.code is FaultCode.TOO_LARGE


def test_compaction_of_another_server_is_not_recognized() -> None:
    assert not is_compaction({"type": "compaction", "encrypted_content": "gAAAA"})
    assert not is_compaction({"type": "message"})
    assert not is_compaction("compaction")

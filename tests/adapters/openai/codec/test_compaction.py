import zlib
from base64 import b64encode

import pytest

from adapters.openai.codec.compaction import decode_compaction, encode_compaction, is_compaction
from canonical import FaultCode, FaultError

ITEMS = [
    {"type": "message", "role": "user", "content": "é" * 1000},
    {"type": "message", "role": "assistant", "content": ""},
]


def test_what_is_packed_is_unpacked_and_the_same_is_packed_the_same() -> None:
    made = encode_compaction(ITEMS)
    assert is_compaction(made)
    assert decode_compaction(made, "input.0") == ITEMS
    assert made == encode_compaction(ITEMS)


@pytest.mark.parametrize("content", ["babelgate.1.", "babelgate.1.!", "babelgate.1." + b64encode(b"x" * 40).decode()])
def test_what_is_none_is_refused(content: str) -> None:
    with pytest.raises(FaultError) as refused:
        decode_compaction({"type": "compaction", "encrypted_content": content}, "input.3")
    fault = refused.value.fault
    assert (fault.code, fault.details["openai"]) == (FaultCode.INVALID, {"code": "invalid_compaction"})


def test_one_that_was_changed_or_cut_is_refused() -> None:
    content = str(encode_compaction(ITEMS)["encrypted_content"])
    for other in (content[:-8], content[:-8] + "AAAAAAA=", content.replace("babelgate.1.", "babelgate.1.AAAA")):
        with pytest.raises(FaultError):
            decode_compaction({"type": "compaction", "encrypted_content": other}, "input.0")


def test_one_that_unpacks_to_more_than_it_may_is_refused() -> None:
    packed = b64encode(bytes(16) + zlib.compress(bytes(80 * 2**20))).decode()
    with pytest.raises(FaultError):
        decode_compaction({"type": "compaction", "encrypted_content": f"babelgate.1.{packed}"}, "input.0")


def test_a_conversation_that_is_too_long_is_refused_with_what_to_do() -> None:
    noise = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(7 * 2**20))
    with pytest.raises(FaultError, match="previous_response_id") as refused:
        encode_compaction([{"type": "message", "role": "user", "content": noise}])
    assert refused.value.fault.code is FaultCode.TOO_LARGE


def test_one_of_a_model_s_own_server_is_none_of_ours() -> None:
    assert not is_compaction({"type": "compaction", "encrypted_content": "gAAAA"})
    assert not is_compaction({"type": "message"})
    assert not is_compaction("compaction")

"""Requests and errors that one side of a dialect encodes, and the other side decodes."""

from typing import Any

import pytest

from babelgate.adapters.a2a.codec import v0_3, v0_3_rest, v1_0
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import decode_error, error_object, rest_error, rest_error_0_3
from babelgate.canonical import DataPart, Fault, FaultCode, FilePart, Message, TextPart

DIALECTS = [v1_0.Codec, v0_3.Codec, v0_3_rest.Codec]

MESSAGE = Message(
    message_id="1",
    role="user",
    parts=(
        TextPart(text="Hello", metadata={"a": 1}),
        DataPart(data={"n": [1, None]}),
        DataPart(data=7),
        FilePart(name="x.bin", media_type="image/png", inline=b"\0\1", size=2),
        FilePart(name="y", media_type="text/plain", url="https://example.com/y"),
    ),
    metadata={"m": 1},
)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("wait", [True, False])
def test_encoded_request_is_decoded_unchanged(dialect: type[Dialect], wait: bool) -> None:
    codec = dialect("", "far")
    params = codec.encode_send(
        MESSAGE,
        context_id="c",
        task_id="t",
        references=["r"],
        wait=wait,
        output_modes=["text/plain"],
        metadata={"k": 2},
    )
    ask = codec.decode_send(params)
    assert ask.message.parts == MESSAGE.parts
    assert ask.message.metadata == {"m": 1}
    assert (ask.context_id, ask.task_id, ask.wait) == ("c", "t", wait)
    assert (ask.output_modes, ask.metadata) == (("text/plain",), {"k": 2})
    # The protocol buffer of 0.3 has no field for references, and its parser rejects unknown fields.
    assert ask.references == (() if dialect is v0_3_rest.Codec else ("r",))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_new_conversation_names_neither_task_nor_context(dialect: type[Dialect]) -> None:
    params = dialect("", "far").encode_send(MESSAGE)
    assert not {"taskId", "contextId", "referenceTaskIds"} & set(params["message"])
    assert set(params) == {"message"}


FAULTS = [
    (Fault(code=FaultCode.AGENT_UNREACHABLE, message="Gone"), FaultCode.AGENT_UNREACHABLE),
    (Fault(code=FaultCode.AGENT_TIMEOUT, message="Late"), FaultCode.AGENT_TIMEOUT),
    (Fault(code=FaultCode.AGENT_INVALID, message="What"), FaultCode.AGENT_INVALID),
    (Fault(code=FaultCode.UNSUPPORTED_TYPE, message="No"), FaultCode.UNSUPPORTED_TYPE),
    (Fault(code=FaultCode.UNSUPPORTED, message="No"), FaultCode.UNSUPPORTED),
    (Fault(code=FaultCode.INVALID, message="No"), FaultCode.AGENT_FAILED),
    (Fault(code=FaultCode.INTERNAL, message="No"), FaultCode.AGENT_FAILED),
]


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_error_of_1_0_becomes_the_matching_fault(fault: Fault, code: FaultCode) -> None:
    for body in ({"error": error_object(fault, "1.0")}, rest_error(fault)):
        error = decode_error(body).fault
        assert (error.code, error.details["said"]) == (code, fault.message)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (rest_error_0_3(Fault(code=FaultCode.INVALID, message="No")), 422, "answered 422: No"),
        ({"detail": "Not Found"}, 404, "answered 404: Not Found"),
        ({"error": {"code": -32603, "message": None, "data": None}}, 200, "answered -32603"),
        ({"error": {"code": "x", "message": "No", "data": [None, {"reason": 7}]}}, 200, "answered 200: No"),
        ({"error": "No"}, 500, "answered 500"),
        (None, 500, "answered 500"),
        ([], 500, "answered 500"),
    ],
)
def test_other_errors_keep_their_code_and_message(body: Any, status: int, words: str) -> None:
    error = decode_error(body, status).fault
    assert (error.code, error.message) == (FaultCode.AGENT_FAILED, f"The agent's server {words}")

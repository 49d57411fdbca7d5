"""Messages of calls to an A2A server over gRPC: the codecs of the methods, by the JSON of A2A 1.0.

Needs the extra `babelgate[grpc]`.
"""

from functools import cache, partial

from pydantic_core import from_json, to_json

from babelgate.adapters.a2a.codec.protobuf import decode_status, from_bytes, to_bytes
from babelgate.adapters.a2a.wire.protobuf import REPLIES, REQUESTS, SERVICE, STREAMS
from babelgate.adapters.kit.client.rpc import RpcCodec
from babelgate.canonical import FaultCode, FaultError


@cache
def codec_of(method: str) -> RpcCodec:
    """Return the codec of a method of A2A 1.0, such as `SendMessage`."""
    return RpcCodec(
        streams=method in STREAMS,
        encode=partial(_encode, method),
        decode=partial(_decode, method),
        decode_error=_decode_error,
    )


def path_of(method: str) -> str:
    return f"/{SERVICE}/{method}"


def _encode(method: str, body: bytes) -> bytes:
    return to_bytes(from_json(body), REQUESTS[method]())


def _decode(method: str, message: bytes) -> bytes:
    try:
        return to_json(from_bytes(message, REPLIES[method]()))
    except FaultError as error:
        text = f"The agent breaks its protocol: {error.fault.message}"
        raise FaultError(FaultCode.AGENT_INVALID, text) from error


def _decode_error(status: int, name: str, text: str, details: bytes | None) -> bytes:
    """Return an error in the form of REST (specification 1.0, 11.6), which is that of `google.rpc.Status`."""
    listed = [] if details is None else list(decode_status(details))
    if status == 413:  # of the transport: the response is larger than the gateway reads
        listed = [{"reason": "INVALID_AGENT_RESPONSE"}]
    return to_json({"error": {"code": status, "status": name, "message": text, "details": listed}})

"""Messages of the protocol buffer `lf.a2a.v1` (specification 1.0, 10), and those of its errors.

Needs the extra `babelgate[grpc]`, so other modules import this one only when gRPC is used. The descriptors are in a
separate pool, because an agent in this process may import the official SDK, which has the same names. `python -m
tests.protobuf` writes them.
"""

from importlib.resources import files
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

SERVICE: Final = "lf.a2a.v1.A2AService"
_WELL_KNOWN: Final = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2)


def _load() -> DescriptorPool:
    pool = DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    content = files("babelgate.adapters.a2a.wire").joinpath("a2a.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _load()


def message_type(name: str) -> type[Message]:
    """Return the class of the messages with a full name, such as `google.rpc.Status`."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))


_DESCRIPTOR: Any = POOL.FindServiceByName(SERVICE)
REQUESTS: Final[dict[str, type[Message]]] = {
    method.name: GetMessageClass(method.input_type) for method in _DESCRIPTOR.methods
}
"""Types of the requests by the name of the method."""
REPLIES: Final[dict[str, type[Message]]] = {
    method.name: GetMessageClass(method.output_type) for method in _DESCRIPTOR.methods
}
"""Types of the responses, or of the events of the stream, by the name of the method."""
STREAMS: Final = frozenset(method.name for method in _DESCRIPTOR.methods if method.server_streaming)
"""Names of the methods whose response is a stream."""
Status: Final = message_type("google.rpc.Status")

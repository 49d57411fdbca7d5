"""Messages of a gRPC service, converted to JSON and back by `google.protobuf.json_format`.

Needs the extra `babelgate[grpc]`, so other modules import this one only when gRPC is used. The descriptors are in a
separate pool, because an agent in this process may import the official SDK, which has the same names.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

_WELL_KNOWN: Final = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2)


class ProtoService:
    """Methods of one gRPC service, and the JSON of their messages."""

    def __init__(self, name: str, descriptors: bytes, empty: Mapping[str, Collection[str]]) -> None:
        """Read the service `name` from `descriptors`, a `FileDescriptorSet` that also has `google.rpc.Status`.

        `empty` has the members that are required and may be empty, by the name of the message type. A message on the
        wire omits an empty list or text, so these members are added to its JSON.
        """
        self.name = name
        self._empty = empty
        self._pool = DescriptorPool()
        for module in _WELL_KNOWN:
            self._pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            self._pool.AddSerializedFile(file.SerializeToString())
        methods: Any = self._pool.FindServiceByName(name).methods
        self._requests = {each.name: GetMessageClass(each.input_type) for each in methods}
        self._responses = {each.name: GetMessageClass(each.output_type) for each in methods}
        self._status = GetMessageClass(self._pool.FindMessageTypeByName("google.rpc.Status"))

    @property
    def methods(self) -> Collection[str]:
        return self._requests.keys()

    def encode_request(self, method: str, value: Mapping[str, Any]) -> bytes:
        """Return the request of a method from its JSON. Raises ValueError for JSON that the message cannot hold."""
        return self._encode(self._requests[method](), value)

    def decode_request(self, method: str, content: bytes) -> Any:
        """Return the JSON of a request. Raises ValueError for bytes that are no such message."""
        return self._decode(self._requests[method](), content)

    def encode_response(self, method: str, value: Mapping[str, Any]) -> bytes:
        """Return the response of a method from its JSON. Raises ValueError for JSON that the message cannot hold."""
        return self._encode(self._responses[method](), value)

    def decode_response(self, method: str, content: bytes) -> Any:
        """Return the JSON of a response, or of one message of a stream. Raises ValueError for bytes that are no such
        message."""
        return self._decode(self._responses[method](), content)

    def encode_status(self, value: Mapping[str, Any]) -> bytes:
        """Return a `google.rpc.Status` from its JSON. Raises ValueError for JSON that is no such
        message."""
        return self._encode(self._status(), value)

    def decode_status(self, content: bytes) -> Any:
        """Return the JSON of a `google.rpc.Status`. Raises ValueError for other bytes, and for details of an unknown
        type."""
        return self._decode(self._status(), content)

    def _encode(self, message: Message, value: Mapping[str, Any]) -> bytes:
        try:
            ParseDict(dict(value), message, descriptor_pool=self._pool)
            return message.SerializeToString(deterministic=True)
        except (Error, EncodeError, TypeError, RecursionError, AttributeError) as error:
            raise ValueError(str(error)) from None

    def _decode(self, message: Message, content: bytes) -> Any:
        try:
            message.ParseFromString(content)
            value = MessageToDict(message, descriptor_pool=self._pool)
        except (Error, DecodeError, TypeError, RecursionError, UnicodeError) as error:
            raise ValueError(f"{message.DESCRIPTOR.full_name}: {error}") from None
        return _as_integers(self._complete(value, message.DESCRIPTOR))

    def _complete(self, value: Any, descriptor: Any) -> Any:
        """Add the empty members to the JSON of a message and of the messages in it, and return it."""
        if descriptor.full_name.startswith("google."):
            return value
        members = cast("dict[str, Any]", value)
        for name in self._empty.get(descriptor.name, ()):
            members.setdefault(name, _empty_value(descriptor.fields_by_camelcase_name[name]))
        for field in descriptor.fields:
            content, kind = members.get(field.json_name), field.message_type
            if content is None or kind is None:
                continue
            if kind.GetOptions().map_entry:
                for each in content.values():
                    self._complete(each, kind.fields_by_name["value"].message_type)
            else:
                for each in content if field.is_repeated else (content,):
                    self._complete(each, kind)
        return members


def _empty_value(field: Any) -> Any:
    if field.is_repeated:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        return {} if is_map else []
    return "" if field.type == FieldDescriptor.TYPE_STRING else 0


def _as_integers(value: Any) -> Any:
    """Return the JSON with doubles that have no fraction as integers. `google.protobuf.Value` holds all numbers as
    doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _as_integers(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_as_integers(each) for each in cast("list[Any]", value)]
    return value

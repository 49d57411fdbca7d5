"""gRPC client of A2A for tests: methods by name, messages as their JSON."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict, ParseDict

from babelgate.adapters.a2a.codec.protobuf import decode_status
from babelgate.adapters.a2a.wire.protobuf import POOL, REPLIES, REQUESTS, SERVICE

HELLO: Mapping[str, Any] = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello there"}]}}


class RpcClient:
    def __init__(self, channel: Any, tenant: str) -> None:
        self.channel = channel
        self.tenant = tenant

    def open(
        self, method: str, /, *, metadata: Sequence[tuple[str, str]] = (), seconds: float | None = None, **params: Any
    ) -> Any:
        """Start a call, and return it. `seconds` is the time until its deadline; None for no deadline."""
        tenant = {"tenant": self.tenant} if self.tenant else {}
        request = ParseDict({**tenant, **params}, REQUESTS[method](), descriptor_pool=POOL)
        start = self.channel.unary_stream(f"/{SERVICE}/{method}", response_deserializer=REPLIES[method].FromString)
        return start(request.SerializeToString(), metadata=tuple(metadata), timeout=seconds)

    async def call(self, method: str, /, **request: Any) -> dict[str, Any]:
        """Return the response to a call without a stream."""
        (reply,) = [each async for each in self.stream(method, **request)]
        return reply

    async def stream(self, method: str, /, **request: Any) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a stream. Closing the generator cancels the call."""
        call = self.open(method, **request)
        try:
            async for message in call:
                yield as_json(message)
        finally:
            call.cancel()

    async def refused(self, method: str, /, **request: Any) -> tuple[str, str]:
        """Return the status and the reason with which a call is refused."""
        try:
            async for _ in self.open(method, **request):
                pass
        except grpc.aio.AioRpcError as error:
            return error.code().name, reason_of(error)
        raise AssertionError("the call was not refused")


def as_json(message: Any) -> dict[str, Any]:
    return MessageToDict(message, descriptor_pool=POOL)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the reason in the details of an error; empty if it has none."""
    found = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    assert isinstance(found, bytes)
    return next((each["reason"] for each in decode_status(found) if "reason" in each), "")


@asynccontextmanager
async def calling(
    address: str, tenant: str = "", credentials: grpc.ChannelCredentials | None = None
) -> AsyncGenerator[RpcClient]:
    """Open a channel to a gRPC server. `tenant` is the agent of all calls; empty for the default agent."""
    channel = (
        grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
    )
    async with channel:
        yield RpcClient(channel, tenant)

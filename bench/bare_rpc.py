"""Server of grpc.aio that answers with prepared bytes: the least that a call costs in gRPC for Python.

    python -m bench.bare_rpc PORT

Its messages are as large as those of the gateway's demo agents `echo` and `stream`.
"""

import sys
from typing import Any, Final

import grpc
import grpc.aio
import uvloop

from babelgate.adapters.a2a.codec.protobuf import to_bytes
from babelgate.adapters.a2a.wire.protobuf import REPLIES, SERVICE
from bench.bare import TOKENS

_IDS: Final = {"id": "0198f5c2-0000-7000-8000-000000000001", "contextId": "0198f5c2-0000-7000-8000-000000000002"}
_ARTIFACT: Final = "0198f5c2-0000-7000-8000-000000000000"
_TIME: Final = "2026-11-30T00:00:00.123Z"


def _event(name: str, **members: Any) -> bytes:
    return to_bytes({name: members}, REPLIES["SendStreamingMessage"]())


def _answer() -> bytes:
    status = {"state": "TASK_STATE_COMPLETED", "timestamp": _TIME}
    artifacts = [{"artifactId": _ARTIFACT, "parts": [{"text": "Hello"}]}]
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    return _event("task", **_IDS, status=status, artifacts=artifacts, history=[message])


def _events() -> list[bytes]:
    ids = {"taskId": _IDS["id"], "contextId": _IDS["contextId"]}
    tokens = [
        _event("artifactUpdate", **ids, artifact={"artifactId": _ARTIFACT, "parts": [{"text": f" token{number:03}"}]})
        for number in range(TOKENS)
    ]
    states = [
        _event("statusUpdate", **ids, status={"state": state, "timestamp": _TIME})
        for state in ("TASK_STATE_WORKING", "TASK_STATE_COMPLETED")
    ]
    task = _event("task", **_IDS, status={"state": "TASK_STATE_SUBMITTED", "timestamp": _TIME})
    return [task, states[0], *tokens, states[1]]


async def main() -> None:
    answer, events = _answer(), _events()

    async def unary(message: bytes, context: Any) -> bytes:
        return answer

    async def stream(message: bytes, context: Any) -> None:
        for event in events:
            await context.write(event)

    server = grpc.aio.server()
    handlers: dict[str, Any] = {
        "SendMessage": grpc.unary_unary_rpc_method_handler(unary),
        "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main())

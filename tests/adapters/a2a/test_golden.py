"""Goldens of A2A: one log per case, and its encoding. A difference is a change of the wire format.

- `canonical.json`: the log.
- `a2a-<version>.http`: the events of a stream of the log, and the final task.
- `a2a-<version>.read.json`: the messages of that task, decoded as if a caller sent them.
- `a2a-1.0-grpc.json`: the same events and task as messages of gRPC, in ProtoJSON.

`pytest --accept` writes all but the log.
"""

import json
from typing import Any

import pytest
from pydantic_core import to_json

from babelgate.adapters.a2a.codec import v0_3, v0_3_rest, v1_0
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.codec.protobuf import from_bytes, to_bytes
from babelgate.adapters.a2a.wire.protobuf import REPLIES
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import FaultError, Record
from babelgate.canonical.event import RunCreated
from tests.adapters.a2a.schema import check
from tests.adapters.log import task_of
from tests.golden_json import value_to_json
from tests.goldens import CASES, GOLDEN, compare, log_of

DIALECTS: dict[str, type[Dialect]] = {
    "1.0": v1_0.Codec,
    "0.3": v0_3.Codec,
    "0.3-rest": v0_3_rest.Codec,
}


def head(version: str) -> str:
    return f"# A2A {version}: the events of the task's log as a stream, and then the task as it is got\n"


def written(log: list[Record], dialect: Dialect) -> bytes:
    writer = EventWriter(task_of(log), "my context")
    frames: list[bytes] = []
    for record in log:
        updates = writer.write(record)
        if not frames and isinstance(record.event, RunCreated):
            updates = [writer.snapshot()]
        frames += [frame(to_json(dialect.encode_update(update))) for update in updates]
    frames.append(frame(to_json(dialect.encode_task(writer.snapshot()))))
    return b"".join(frames)


def read(frames: bytes, dialect: Dialect) -> list[Any]:
    task = json.loads(Frames().all([frames])[-1].data)
    messages: list[Any] = []
    for wire in task["history"]:
        try:
            message = dialect.decode_send({"message": wire}).message
        except FaultError as error:
            messages.append({"fault": error.fault.members()})
        else:
            messages.append(value_to_json(message))
    return messages


@pytest.mark.parametrize("version", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_stream_and_task_of_a_log_match_the_golden(case: str, version: str, accept: bool) -> None:
    dialect = DIALECTS[version]("http://127.0.0.1:8000", "echo")
    text = head(version) + written(log_of(case), dialect).decode()
    compare(GOLDEN / case / f"a2a-{version}.http", text, accept)


@pytest.mark.parametrize("version", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_read_messages_match_the_golden(case: str, version: str, accept: bool) -> None:
    dialect = DIALECTS[version]("http://127.0.0.1:8000", "echo")
    frames = (GOLDEN / case / f"a2a-{version}.http").read_text().removeprefix(head(version)).encode()
    lines = ",\n".join("  " + json.dumps(message, ensure_ascii=False) for message in read(frames, dialect))
    compare(GOLDEN / case / f"a2a-{version}.read.json", f"[\n{lines}\n]\n", accept)


@pytest.mark.parametrize("version", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_goldens_match_the_published_types(case: str, version: Any) -> None:
    frames = (GOLDEN / case / f"a2a-{version}.http").read_text().removeprefix(head(version)).encode()
    *events, task = [json.loads(each.data) for each in Frames().all([frames])]
    for event in events:
        check("event", version, event)
    check("task", version, task)


@pytest.mark.parametrize("case", CASES)
def test_messages_of_grpc_match_the_golden(case: str, accept: bool) -> None:
    frames = (GOLDEN / case / "a2a-1.0.http").read_text().removeprefix(head("1.0")).encode()
    *events, task = [json.loads(each.data) for each in Frames().all([frames])]
    kinds = [*(("SendStreamingMessage", event) for event in events), ("GetTask", task)]
    decoded = [from_bytes(to_bytes(value, REPLIES[method]()), REPLIES[method]()) for method, value in kinds]
    lines = ",\n".join("  " + json.dumps(each, ensure_ascii=False, sort_keys=True) for each in decoded)
    compare(GOLDEN / case / "a2a-1.0-grpc.json", f"[\n{lines}\n]\n", accept)

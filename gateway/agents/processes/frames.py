"""Frames between the gateway and the process of an agent in Python: JSON after its length in bytes.

A connection carries one run. The gateway sends `StartRun`. The process sends each event in an `EventFrame`, and then
`RunFinished`. In between, it may send a `DataRequest` for data that the gateway reads on demand, and the gateway sends
a `DataReply`. A closed connection cancels the run.

One more connection, the control connection, is open as long as the process runs. It carries `Setup` and its answer,
`Ping`, `Pong` and `Forget`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import Cause, Event, InterruptAnswered, Record
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import Message
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.value import JsonObject

_PREFIX: Final = 4
"""Size of the big-endian number before each frame, in bytes. The number is the length of the frame in bytes."""
MAX_FRAME: Final = 2**30
"""Maximum size of one frame in bytes. Chosen: above every file or event that the default limits allow."""
_DATA: Final = (
    "owner",
    "agent",
    "thread_id",
    "task_id",
    "run_id",
    "attempt",
    "cause",
    "input",
    "answers",
    "metadata",
    "origin",
    "state",
    "opens_thread",
    "history",
    "upstream",
)
"""Fields of an `Invocation` that are data, and are sent to the process. Other fields are functions that read data on
demand. The process can call them only by a `DataRequest`."""


class _Frame(msgspec.Struct, tag_field="op", omit_defaults=True, forbid_unknown_fields=True):
    """Base of all frames, in both directions. The member `op` of the JSON names the type of the frame."""


class CallData(msgspec.Struct, omit_defaults=True):
    """Fields of an `Invocation` that can be sent to another process. Each has its meaning in `Invocation`."""

    owner: str
    agent: str
    thread_id: str
    task_id: str
    run_id: str
    attempt: int
    cause: Cause
    input: RunInput
    answers: tuple[InterruptAnswered, ...] = ()
    metadata: JsonObject = {}
    origin: dict[str, str] = {}
    state: JsonObject = {}
    opens_thread: bool = False
    history: tuple[Message, ...] = ()
    upstream: dict[str, str] = {}

    @classmethod
    def of(cls, call: Invocation) -> "CallData":
        """Return the fields of a call that can be sent to the process."""
        values: dict[str, Any] = {name: getattr(call, name) for name in _DATA}
        values |= {"origin": dict(call.origin), "upstream": dict(call.upstream)}
        return cls(**values)

    def invocation(self, **functions: Any) -> Invocation:
        """Return the `Invocation` for the agent. `functions` are the fields that read data on demand, such as
        `past`."""
        return Invocation(**{name: getattr(self, name) for name in _DATA}, **functions)


class Setup(_Frame, tag="setup"):
    """First frame of the control connection, from the gateway: the agent to import."""

    target: str
    """Import path such as `module:name` or `./file.py:name`."""
    name: str
    replay: bool
    path: Sequence[str]
    """Folders and archives in which modules are searched (`sys.path` of the gateway)."""
    log_level: str


class ProcessReady(_Frame, tag="ready"):
    """Answer to `Setup`: the agent is imported, and the process accepts runs."""

    info: AgentInfo


class ProcessUnusable(_Frame, tag="unusable"):
    """Answer to `Setup`: the agent cannot be imported, and a new process could not import it either."""

    reason: str


class Ping(_Frame, tag="ping"):
    """Request for a `Pong` on the control connection. The process does not answer while its event loop is blocked."""


class Pong(_Frame, tag="pong"):
    """Answer to `Ping`."""


class Forget(_Frame, tag="forget"):
    """Notice that a paused task has ended: the process can close its paused generator."""

    owner: str
    task_id: str


class StartRun(_Frame, tag="start"):
    """First frame of a connection, from the gateway: the run to execute."""

    call: CallData


class EventFrame(_Frame, tag="event"):
    """One event of the run."""

    event: Event


class RunFinished(_Frame, tag="finished"):
    """Last frame of a connection: the agent has ended the run. `fault` is None if the agent raised no exception."""

    fault: Fault | None = None


class DataRequest(_Frame, tag="request"):
    """Request of the process for the records of the task (`Invocation.past`), or for the files of a message
    (`Invocation.with_files`)."""

    number: int
    """Number of the request within its run. The reply has the same number."""
    asks: Literal["past", "files"]
    message: Message | None = None


class DataReply(_Frame, tag="reply"):
    """Answer to a `DataRequest`. Either `records`, `message` or `fault` is set."""

    number: int
    records: tuple[Record, ...] | None = None
    message: Message | None = None
    fault: Fault | None = None


ToProcess = Setup | Ping | Forget | StartRun | DataReply
FromProcess = ProcessReady | ProcessUnusable | Pong | EventFrame | RunFinished | DataRequest
_ENCODER: Final = msgspec.json.Encoder()
TO_PROCESS: Final[msgspec.json.Decoder[ToProcess]] = msgspec.json.Decoder(ToProcess)
FROM_PROCESS: Final[msgspec.json.Decoder[FromProcess]] = msgspec.json.Decoder(FromProcess)
T = TypeVar("T")


def encode_frame(frame: ToProcess | FromProcess) -> bytes:
    """Return the bytes of a frame, with its length in front. Raises agent_failed if the frame is too large."""
    body = _ENCODER.encode(frame)
    if len(body) > MAX_FRAME:
        raise FaultError(
            FaultCode.AGENT_FAILED, f"an event or a request of {len(body)} bytes exceeds the limit of {MAX_FRAME} bytes"
        )
    return len(body).to_bytes(_PREFIX, "big") + body


async def read_frame(reader: asyncio.StreamReader, decoder: "msgspec.json.Decoder[T]") -> T | None:
    """Return the next frame, or None at the end of the connection.

    Raises ValueError for bytes that are not a frame, and ConnectionError if the connection breaks.
    """
    try:
        size = int.from_bytes(await reader.readexactly(_PREFIX), "big")
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes, where at most {MAX_FRAME} are allowed")
        return decoder.decode(await reader.readexactly(size))
    except asyncio.IncompleteReadError:
        return None

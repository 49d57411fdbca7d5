"""Frames between the gateway and the process of an agent: JSON after its length in bytes.

A connection carries one run. The gateway sends `StartRun`. The process sends each event in an `EventFrame`, and then
`RunFinished`. In between, it may send a `DataRequest` for data that the gateway reads or stores on demand, and the
gateway sends a `DataReply`. A closed connection cancels the run.

For a graph, a connection can carry a change of its state (`UpdateState`) or its description (`DescribeGraph`) instead
of a run.

One more connection, the control connection, is open as long as the process runs. It carries `Setup` and its answer,
`Ping`, `Pong` and `Forget`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import Cause, Event, InterruptAnswered, Record
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import Message
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.stored_checkpoint import PendingWrite, StoredCheckpoint

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
    is_graph: bool
    """True if the target must be a graph, or a function that creates graphs."""
    replay: bool
    path: Sequence[str]
    """Folders and archives in which modules are searched (`sys.path` of the gateway)."""
    log_level: str


class ProcessReady(_Frame, tag="ready"):
    """Answer to `Setup`: the agent is imported, and the process accepts runs."""

    info: AgentInfo
    is_graph: bool = False
    """True if the agent is a graph, which stores its state in the gateway."""


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


class UpdateState(_Frame, tag="update_state"):
    """First frame of a connection, from the gateway: the change of a graph's state. The process answers with the
    `StateSaved` in an `EventFrame`, and then `RunFinished`."""

    call: CallData
    removed_ids: tuple[str, ...] = ()
    as_node: str | None = None


class DescribeGraph(_Frame, tag="describe"):
    """First frame of a connection, from the gateway: the request for a drawing of the graph or for the schemas of its
    subgraphs. The process answers with `GraphDescribed`, and then `RunFinished`."""

    depth: int | bool | None = None
    """Number of subgraph levels to draw, or True for all. None requests the schemas of the subgraphs."""
    namespace: str | None = None
    """Namespace of the only subgraph to describe; None describes all."""
    recurse: bool = False


class EventFrame(_Frame, tag="event"):
    """One event of the run."""

    event: Event


class RunFinished(_Frame, tag="finished"):
    """Last frame of a connection: the agent has ended the run. `fault` is None if the agent raised no exception."""

    fault: Fault | None = None


class GraphDescribed(_Frame, tag="described"):
    """Answer to `DescribeGraph`. `description` is None if the graph cannot be described."""

    description: JsonObject | None = None


class AskPast(_Frame, tag="past"):
    """Request for the records of the task (`Invocation.past`)."""


class AskFiles(_Frame, tag="files"):
    """Request for the files of a message (`Invocation.with_files`)."""

    message: Message


class AskStates(_Frame, tag="states"):
    """Request for the states of the thread that a graph may continue from (`Invocation.states`)."""


class FindCheckpoints(_Frame, tag="find_checkpoints"):
    """Request for checkpoints of the call's thread, the newest first. Each of `ns`, `checkpoint_id` and `before` is a
    condition unless it is None."""

    ns: str | None
    checkpoint_id: str | None
    before: str | None = None
    limit: int = 1


class PutCheckpoint(_Frame, tag="put_checkpoint"):
    """Request to store a checkpoint."""

    checkpoint: StoredCheckpoint


class PutWrites(_Frame, tag="put_writes"):
    """Request to store pending writes of a checkpoint."""

    ns: str
    checkpoint_id: str
    writes: tuple[PendingWrite, ...]


class GetItem(_Frame, tag="get_item"):
    """Request for one item of the caller's store."""

    namespace: tuple[str, ...]
    key: str
    refresh: bool


class PutItem(_Frame, tag="put_item"):
    """Request to store an item, or to delete it if `value` is None. `ttl` is its time to live in seconds; None means
    unlimited."""

    namespace: tuple[str, ...]
    key: str
    value: JsonObject | None = None
    ttl: int | None = None


class SearchItems(_Frame, tag="search_items"):
    """Request for items of the caller's store that match a query."""

    query: ItemQuery


class ListNamespaces(_Frame, tag="list_namespaces"):
    """Request for namespaces of the caller's store that match a query."""

    query: NamespaceQuery


Ask = (
    AskPast
    | AskFiles
    | AskStates
    | FindCheckpoints
    | PutCheckpoint
    | PutWrites
    | GetItem
    | PutItem
    | SearchItems
    | ListNamespaces
)


class DataRequest(_Frame, tag="request"):
    """Request of the process for an operation on the gateway's data."""

    number: int
    """Number of the request within its run. The reply has the same number."""
    ask: Ask


class KnownStates(_Frame, tag="known_states"):
    """States of a thread, as far as a graph in a process needs them."""

    head_id: str | None
    """Checkpoint id of the thread's newest state; None if the thread has none."""
    values: dict[str, JsonObject]
    """Values of some states, by checkpoint id."""


class DataReply(_Frame, tag="reply"):
    """Answer to a `DataRequest`. At most one of the other members is set."""

    number: int
    records: tuple[Record, ...] = ()
    message: Message | None = None
    states: KnownStates | None = None
    checkpoints: tuple[StoredCheckpoint, ...] = ()
    items: tuple[Item, ...] = ()
    namespaces: tuple[tuple[str, ...], ...] = ()
    fault: Fault | None = None


FirstFrame = StartRun | UpdateState | DescribeGraph
ToProcess = Setup | Ping | Forget | FirstFrame | DataReply
FromProcess = ProcessReady | ProcessUnusable | Pong | EventFrame | GraphDescribed | RunFinished | DataRequest
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

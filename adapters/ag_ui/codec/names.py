"""Names and ids that the gateway uses on the wire: own types of activities and events, and ids derived from those of
the log."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from babelgate.adapters.ag_ui import wire as w
from babelgate.canonical.event import RunCreated
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import JsonObject

PROTOCOL: Final = "ag-ui"

FILE: Final = "babelgate.file"
"""`activityType` of the activity that shows a file of a message."""
ARTIFACT: Final = "babelgate.artifact"
"""`activityType` of the activity that shows an artifact."""
PROGRESS: Final = "babelgate.progress"
"""`activityType` of the activity that shows a progress message."""
LOSS: Final = "babelgate.loss"
"""Name of the `CUSTOM` event that reports a loss. Its value has the members `feature` and `how`."""
CUSTOM: Final = "babelgate.custom"
"""Name of the `CUSTOM` event for a value that an agent emitted without a name."""

CANCELLED: Final = "cancelled"
"""Code of the `RUN_ERROR` of a cancelled run, for clients older than 1.0."""
SUPERSEDED: Final = "superseded"
"""Code of the `RUN_ERROR` of a run that another one has replaced."""


class WireIds(NamedTuple):
    """Ids of a thread and a run as their caller knows them, and the protocol version that the caller understands."""

    thread_id: str
    run_id: str
    is_old: bool = False
    """True if the caller is older than 1.0: its request had no `protocolVersion`."""


def encode_ids(ids: WireIds) -> JsonObject:
    """Return the caller's run id, and whether the caller is old, as members that are stored with the run. With them,
    each replay of the stream has the same bytes."""
    return {"runId": ids.run_id, **({"old": True} if ids.is_old else {})}


def decode_ids(created: RunCreated, thread_id: str) -> WireIds:
    """Return the wire ids of a run. `thread_id` is the reader's name of the thread, which may differ from the name that
    the run's caller uses. A run that began in another protocol has the gateway's run id."""
    stored = as_object(created.extra.get(PROTOCOL))
    return WireIds(thread_id, as_text(stored.get("runId")) or created.run_id, stored.get("old") is True)


def reasoning_id(message_id: str, index: int) -> str:
    """Return the id of the AG-UI message that shows a reasoning part. `index` is the index of the part in its canonical
    message."""
    return f"reasoning-{index}-{message_id}"


def file_id(message_id: str, index: int) -> str:
    """Return the id of the activity that shows a file of a message. `index` is the index of the part in its canonical
    message."""
    return f"file-{index}-{message_id}"


def artifact_id(name: str) -> str:
    """Return the id of the activity that shows an artifact. `name` is the artifact's id in the log."""
    return f"artifact-{name}"


def parent_id(call_id: str) -> str:
    """Return the id of the message that holds a tool call if no other message of the agent can hold it."""
    return f"call-{call_id}"


def result_id(call_id: str) -> str:
    """Return the id of the tool message that holds the result of a tool call."""
    return f"result-{call_id}"


def own_of(event: Mapping[str, Any]) -> JsonObject:
    """Return the gateway's own members, `metadata.babelgate`, of an AG-UI event or message; empty if there are none."""
    return as_object(as_object(event.get("metadata")).get(w.OWN))
